/* contradict.h - why no plan has these pins: names the pins that cannot go together, and what they
 * would have to be. */
#ifndef LPLAN_PLANNER_CONTRADICT_H
#define LPLAN_PLANNER_CONTRADICT_H

#include "planner/search.h"

/* One error in `diag`: that of the first rule the pins break. */
void say_contradiction(Diag *diag, Search *search, const Problem *problem, const Pins *pins);

/* The machine has the memories in which pins put something; else false, and an error. */
/* Does the cluster say that it has a memory that `who` asks for; else plan `without`. */
bool home_known(Diag *diag, const Cluster *cluster, Memory home, const char *who,
                const char *without);
bool memories_known(Diag *diag, const Cluster *cluster, const Pins *pins);
/* A step has no more than MAX_MICROS; else false, and an error. */
bool micros_fit(Diag *diag, const Problem *problem, const Pins *pins);
/* The sequence divides by the pinned cp, and cp by cp_heads; else false, and an error. */
bool sequence_fits(Diag *diag, const Problem *problem, const Pins *pins);
/* Ranks that share experts: of a model that has some, as many as divide its data-parallel ranks and
 * its experts. False after an error. Pins are complete. */
bool experts_fit(Diag *diag, const Problem *problem, const Pins *pins);

#endif
