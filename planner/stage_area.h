/* stage_area.h - buffers of buckets as a row's clock asks for them: whose bytes each one takes
 * over.
 */
#ifndef LPLAN_PLANNER_STAGE_AREA_H
#define LPLAN_PLANNER_STAGE_AREA_H

#include "planner/stage.h"

/* Where the buffer of each bucket lies in its area; bytes 0: it has none. Of those that share bytes
 * with it (and it does so itself) some come last in a row that runs up or down to it, or that ran
 * before: the nearest below and above, the lowest and the highest. */
enum { NEAR = 4 };
typedef struct Area {
    int64_t *at, *bytes;
    int (*near)[NEAR];
} Area;

/* Of weights that are whole for a use, or of accumulators, of a chunk that ends at link `end`;
 * ret_bytes: of the area. */
Area area_place(Arena *scratch, const Family *family, const StageCost *cost, int end, bool weights,
                int64_t *ret_bytes);
/* Places in the host's memory of weights that live in files. */
Area area_place_between(Arena *scratch, const Family *family, const StageCost *cost, int end,
                        int64_t *ret_bytes);
/* Places of far gradients on the device; ret_bytes, by memory: of these and of those in memories
 * between. */
Area area_place_sums(Arena *scratch, const Family *family, const StageCost *cost, int end,
                     int64_t *ret_bytes);
/* Of buckets that are updated one after the other, behind a row: sets StageBucket.behind and
 * free_ns of a memory. left: per bucket, when the row needed its place no longer, from its end on.
 */
void area_find_behind(const Area *area, const int64_t *left, StageCost *cost, int near);

#endif
