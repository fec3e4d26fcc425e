/* collectives.h - the collectives that the algebra derived for a plan: one by one inside of layers,
 * by kind once a step. */
#ifndef LPLAN_PLANNER_COLLECTIVES_H
#define LPLAN_PLANNER_COLLECTIVES_H

#include <jansson.h>

#include "planner/assess.h"
#include "planner/table.h"

/* A table for each class whose layers move anything, a line a collective: in which part of the
 * layer, how many bytes a rank sends, ns alone, by which algorithm, and why. Behind them what a
 * step moves besides: gradients, weights, messages between stages. */
void collectives_put(Str *str, Arena *arena, const Assessment *assessment, const Style *style);
/* {"layers": [{class, links, kinds: [{collective, count, sent_bytes, ns}], collectives: [{part,
 * collective, of, over, sent_bytes, ns, algorithm, why}]}], "step": traffic}: a new reference.
 * Bytes and ns are of one layer and micro-batch. */
json_t *collectives_json(Arena *arena, const Assessment *assessment);

#endif
