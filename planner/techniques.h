/* techniques.h - the field's names for what a plan does, recognised from its placements, homes and
 * rows.
 *
 * No pass knows these names: a plan says over which atoms every letter is cut, where every value
 * has its home and in which order rows run, and a row of the table in techniques.c tells by that
 * whether it is what others gave a name to. Pins are not asked. */
#ifndef LPLAN_PLANNER_TECHNIQUES_H
#define LPLAN_PLANNER_TECHNIQUES_H

#include "planner/assess.h"

typedef struct Technique {
    const char *key;  /* stable: "zero3" */
    const char *name; /* for a person: "ZeRO-3 (FSDP)" */
    const char *says; /* what the plan has that is called so: "weights over dp 8" */
} Technique;
typedef VEC(Technique) Techniques;

/* In the order of the table: what cuts tokens, homes, sums, what cuts layers, the sequence,
 * experts, the chain; then what is made again, dtypes, the optimizer. */
Techniques techniques_of(Arena *arena, const Assessment *assessment);

#endif
