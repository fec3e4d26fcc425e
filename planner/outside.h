/* outside.h - what a device holds beside the arena, line by line: each with its formula, and
 * whether its figures were measured or estimated. Together they must stay within the cluster's
 * margin. */
#ifndef LPLAN_PLANNER_OUTSIDE_H
#define LPLAN_PLANNER_OUTSIDE_H

#include "planner/assess.h"

enum { OUTSIDE_LINES = 5 };

typedef struct OutsideLine {
    const char *name;    /* of figure (c): context, code, libraries, communicators, graphs */
    const char *formula; /* as a person would check it */
    int64_t bytes;
    Tag tag;
} OutsideLine;

typedef struct Outside {
    OutsideLine line[OUTSIDE_LINES];
    int64_t bytes; /* of all lines */
} Outside;

/* Of the stage that needs most. */
Outside outside_of(Arena *arena, const Assessment *assessment);

#endif
