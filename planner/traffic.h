/* traffic.h - which collectives move the bytes of a step, longest first, for every report of them.
 */
#ifndef LPLAN_PLANNER_TRAFFIC_H
#define LPLAN_PLANNER_TRAFFIC_H

#include <jansson.h>

#include "planner/assess.h"

typedef struct HotRow {
    const Traffic *traffic;
    int stage; /* on which it takes longest */
} HotRow;

/* All kinds of traffic that a step has, by the time they take; returns their number. */
int hot_rows(Arena *arena, const StepTimes *times, HotRow **ret);
/* ns on the stage for which nothing else was done meanwhile. */
int64_t hot_exposed(const StepTimes *times, const HotRow *row);

/* "tp", "all_gather", "activations, again". */
const char *traffic_role(Arena *arena, const Assessment *it, const Traffic *traffic);
const char *traffic_kind(const Traffic *traffic);
const char *traffic_what(Arena *arena, const Traffic *traffic);

/* A list of {role, collective, of, over, stage, algorithm, in_layers, count, sent_bytes, ns,
 * exposed_ns}: a new reference. */
json_t *traffic_json(Arena *arena, const Assessment *assessment);

#endif
