/* stage_tail.h - two choices for the links of a family: which have the other one. Private to
 * stage*.c. */
#ifndef LPLAN_PLANNER_STAGE_TAIL_H
#define LPLAN_PLANNER_STAGE_TAIL_H

#include "planner/stage.h"

/* The links of a chunk, of family_begin on. */
typedef struct StageRun {
    int chunk, begin, end;
    bool together; /* the other home of tied parameters is in another chunk of the stage */
} StageRun;

/* What a stage of these runs has decided. */
typedef struct KnownTails {
    struct KnownTails *next; /* whose first run has the same links */
    bool even;
    const StageRun *run;
    const TailLinks *links; /* of the runs */
} KnownTails;

/* The other choice of the last layers of chunks, and of the ends of the chain. */
typedef struct Tail {
    const Card *card;    /* per class */
    bool tied;           /* both ends have one choice: that of the others */
    bool even;           /* family_even_tails */
    TailLinks at;        /* in the cost that is made at the moment, */
    int end;             /* which the last of its layers has */
    KnownTails ***known; /* per stage: of (first link, end) of its first run */
} Tail;

/* Of the runs of a stage, all of them: which of their links have the other choice. */
const TailLinks *stage_tails(Family *family, const StageRun *run, int runs);
/* The cost of links of which these have the other choice; begin: of family_begin. */
const StageCost *stage_cost_with(Family *family, int begin, int end, bool together, TailLinks tail);
/* What a stage holds whose chunks cost this. */
StageBytes stage_runs_bytes(const Family *family, const StageRun *run, const StageCost *const *cost,
                            int runs);

#endif
