/* stage_tail.h - two choices for the links of a family: which have the other one. Private to
 * stage*.c. */
#ifndef LPLAN_PLANNER_STAGE_TAIL_H
#define LPLAN_PLANNER_STAGE_TAIL_H

#include "planner/stage.h"

/* The other choice of the last layers of stages, and of the ends of the chain. */
typedef struct Tail {
    const Card *card;  /* per class */
    bool tied;         /* both ends have one choice: that of the others */
    TailLinks at;      /* in the cost that is made at the moment, */
    int end;           /* which the last of its layers has */
    TailLinks **links; /* per stage: of (first link, end); layers NONE: not asked yet */
} Tail;

/* The cost of links of which these have the other choice; begin: of family_begin. */
const StageCost *stage_cost_with(Family *family, int begin, int end, bool together, TailLinks tail);

#endif
