/* special.h - faults and checks of single rows: each is true when the fault was noticed, or the
 * check holds. */
#ifndef LPLAN_TESTS_BUGS_SPECIAL_H
#define LPLAN_TESTS_BUGS_SPECIAL_H

#include "tests/bugs/bug.h"

/* Weights that make each micro-batch a mean of its own: another loss. */
bool special_mean_of_means(const Bug *bug, Arena *arena, const char **ret_what);
/* A balance term over micro-batches instead of sequences: another norm with other micro-batches. */
bool special_balance_of_batches(const Bug *bug, Arena *arena, const char **ret_what);
/* Weights times seven: loss and whole gradient times seven; the balance term alone otherwise: not.
 */
bool special_weights_scale_all(const Bug *bug, Arena *arena, const char **ret_what);
/* A sum that goes over what is read again: the static proof names it. */
bool special_alias(const Bug *bug, Arena *arena, const char **ret_what);
/* Padded sequences give what shorter ones do; where every token counts they do not. */
bool special_padding(const Bug *bug, Arena *arena, const char **ret_what);
/* Both homes of a tied parameter are moved by one rule, or the static proof objects. */
bool special_same_optimizer(const Bug *bug, Arena *arena, const char **ret_what);
/* Biases of a router that leave half of its experts without a token; they get no gradient at all.
 */
void special_starve(const Net *net, double *const *param);
bool special_starved_expert(const Bug *bug, Arena *arena, const char **ret_what);
/* Each parameter's gradient is in the norm, as the oracle says, and moves with it. */
bool special_every_parameter(const Bug *bug, Arena *arena, const char **ret_what);
/* Messages in another order: the static proof says who meets whom, or who waits. */
bool special_swapped_messages(const Bug *bug, Arena *arena, const char **ret_what);
/* Ten orders that events allow: one result, to the bit. */
bool special_many_orders(const Bug *bug, Arena *arena, const char **ret_what);
/* Some micro-batch leaves an expert without tokens that another one gives it. */
bool special_idle_experts(const Bug *bug, Arena *arena, const char **ret_what);
/* What ranks of a ring have to do in a zigzag is the same; in the sequence's own order it is not.
 */
bool special_balanced_ring(const Bug *bug, Arena *arena, const char **ret_what);
/* Evaluations leave every bit of the steps as it is. An evaluation that draws, or one that does not
 * wait for updated weights, shows. */
bool special_evaluation(const Bug *bug, Arena *arena, const char **ret_what);

#endif
