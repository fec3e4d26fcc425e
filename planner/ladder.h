/* ladder.h - why not the simpler plan? Each rung allows one technique more than the one before. */
#ifndef LPLAN_PLANNER_LADDER_H
#define LPLAN_PLANNER_LADDER_H

#include "planner/search.h"

enum { LADDER_RUNGS = 10 };

typedef struct Rung {
    const char *name;
    bool fits;
    Found found;       /* the rung's best plan, when it fits */
    Tightest tightest; /* else what is missing */
} Rung;

/* Data parallel, then ZeRO-1, ZeRO-2 and 3, tensor parallel, sequence parallel, pipeline,
 * recompute and, where a model has experts, expert parallel, where sequences are long, context
 * parallel, and where the search may offload, homes in other memories. Before context parallelism
 * groups of tp ranks stay inside the fastest domain. Returns the number of rungs. */
int ladder_climb(Search *search, const Problem *problem, Rung ret[LADDER_RUNGS]);
/* The figure that is missing, with its largest part: "needs 91.2 GiB per device, 80 available;
 * largest: ...". */
char *tightest_text(Arena *arena, const Tightest *tightest);
/* The same for a line of a table: "needs 91.2 GiB of 80 GiB; largest: ...". */
char *tightest_short(Arena *arena, const Tightest *tightest);

#endif
