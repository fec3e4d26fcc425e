/* stage_spill.h - rows whose saved values live in other memories (ir/lower/spill.h), on the clock.
 */
#ifndef LPLAN_PLANNER_STAGE_SPILL_H
#define LPLAN_PLANNER_STAGE_SPILL_H

#include "planner/stage.h"

/* Lanes between memories and the places of blocks, as rows of one chunk find them. */
typedef struct SpillRun SpillRun;
/* NULL where saved values live on the device; all functions take that. */
SpillRun *spill_run_new(Arena *scratch, const Family *family, int begin, int end);
/* The same for the row behind one that ended at `clock`. */
SpillRun *spill_run_behind(Arena *scratch, const SpillRun *before, int64_t clock);
/* Of a backward that runs beside a forward of the same chunk: their places lie apart, but what it
 * brings is what the forward before that one has taken away. */
void spill_run_follow(SpillRun *run, const SpillRun *forward);
/* The lanes of another chunk are this one's. */
void spill_run_share(SpillRun *run, const SpillRun *other);
/* A link of a row would begin at `clock`: when its block is there, or free. turns: as
 * OrderRow.turns. */
int64_t spill_run_begin(SpillRun *run, PartKind part, bool turns, int link, int64_t clock);
/* It would end at `clock`: when it does. */
int64_t spill_run_end(SpillRun *run, PartKind part, bool turns, int link, int64_t clock);

/* Bytes of a link's hop in a row of this part. */
int64_t spill_hop_bytes(const Family *family, int link, PartKind part, bool first, bool last);

#endif
