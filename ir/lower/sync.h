/* sync.h - events from bytes: which Steps of other streams a Step must wait for. A streaming filter
 * inside the walk. */
#ifndef LPLAN_IR_LOWER_SYNC_H
#define LPLAN_IR_LOWER_SYNC_H

#include "ir/lower/walk.h"

typedef struct Sync Sync;
Sync *sync_new(Arena *arena);
/* Gives the Step its number in its stream and its waits, and records what it touches. Steps come in
 * program order. */
void sync_step(Sync *sync, Step *step);

#endif
