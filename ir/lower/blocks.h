/* blocks.h - what a move does to the blocks of its group, on dense fp64 arrays: the meaning of
 * place.h's table of moves. */
#ifndef LPLAN_IR_LOWER_BLOCKS_H
#define LPLAN_IR_LOWER_BLOCKS_H

#include "ir/lower/place.h"

/* Blocks of one shape: extents of the local block before the move. */
typedef struct BlockShape {
    int axes;
    int64_t extent[MAX_AXES];
} BlockShape;

int64_t block_elements(const BlockShape *shape);
/* Shape after the move of a group of n. */
BlockShape block_after(const BlockShape *shape, const Move *move, int n);
/* Result for member `me` (its index along move->atoms; `order_me` along move->order for a permute)
 * from all members' blocks. */
void block_move(const BlockShape *shape, const Move *move, int n, int me, int order_me,
                const double *const *from, double *to);

#endif
