/* resize.h - the same model for another micro-batch and vocabulary padding, without reading it
 * again. */
#ifndef LPLAN_PLANNER_RESIZE_H
#define LPLAN_PLANNER_RESIZE_H

#include "ir/graph.h"

/* `base` was read with a padding of 1. Values, nodes and parameters are shared with it. What
 * model_read would give for these numbers; a test compares. */
Net *net_resize(Arena *arena, const Net *base, int64_t batch, int64_t pad_vocabulary);

#endif
