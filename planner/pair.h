/* pair.h - what a row costs that is two in one: cards of pairs of links, added up.
 *
 * A pair of bodies is lowered to one order of their instructions (ir/lower/braid.h) and run alone,
 * on made-up addresses, as a card is: once, and twice in a row. */
#ifndef LPLAN_PLANNER_PAIR_H
#define LPLAN_PLANNER_PAIR_H

#include "ir/lower/braid.h"
#include "planner/card.h"

/* Cards of pairs that have been made, by their bodies: those of a net's classes, which live as
 * long.
 */
typedef struct PairShelf PairShelf;
PairShelf *pair_shelf_new(Arena *arena, const Pricer *pricer, const Body *const *body);

/* The classes of a row's links, in the order in which they run. */
typedef struct PairRow {
    int n;
    int *class;
} PairRow;
PairRow pair_row(Arena *arena, const Net *net, int begin, int end, bool forward);

/* Two rows in one. */
typedef struct PairTimes {
    int64_t ns;      /* never less than their work on the compute stream */
    int64_t forward; /* from the start: the forward's result is there, */
    int64_t lead;    /* and what the backward receives is asked for */
} PairTimes;
/* One pair of links of the two, counted in each row's own order, or NONE; what it adds, when in
 * that the forward's link ends and the backward's begins. */
typedef struct PairStep {
    int forward, backward;
    int64_t ns, forward_ns, lead_ns;
} PairStep;
/* ret_step: NULL, or room for the links of both; ret_steps then is how many there are. */
PairTimes pair_row_times(PairShelf *shelf, const PairRow *forward, const PairRow *backward,
                         PartKind part, PairStep *ret_step, int *ret_steps);

#endif
