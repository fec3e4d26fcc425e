/* recall.h - blocks that are kept, equal ones once: what kernels of the right run read and gave.
 *
 * A proof runs one Program many times: in other orders, and broken in one place each. Most kernels
 * of such a run read what they read in the right one, byte by byte, and so they give what they
 * gave. */
#ifndef LPLAN_IR_LOWER_RECALL_H
#define LPLAN_IR_LOWER_RECALL_H

#include <stdint.h>

#include "ir/base/arena.h"

typedef struct Recall Recall;

/* Keeps at most so many bytes; lives in the arena. */
Recall *recall_new(Arena *arena, int64_t most_bytes);
/* A kept block of these very bytes; NULL where there is no room for it. */
const double *recall_keep(Recall *recall, const double *block, int64_t elements);

#endif
