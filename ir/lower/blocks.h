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
/* Rows that go by whom they name (place.h): `rows` choices of all members' tokens together, of
 * which each has its runs; each has `named` things. NaN and negative choices name nobody. */
typedef struct Route {
    const double *choice;
    int64_t rows, named;
    int n;
    RouteRuns runs;
    int64_t
        message; /* rows that a member's part of a block has; 0: they lie one behind the other */
    int turn; /* of a mutation: a member's part is taken to be that of the one so many places on */
} Route;
/* To the member `me`: its rows, of `width` elements, from where the members have their own (or from
 * one block of all, when `whole`), and `blank` elsewhere. False when there is no room. */
bool route_send(const Route *route, int me, const double *const *from, bool whole, int64_t width,
                int64_t room, double blank, double *to);
/* Back to the tokens of `me`, from the members' blocks of `room` rows; zeros where nobody was
 * named. */
bool route_back(const Route *route, int me, const double *const *from, int64_t width, int64_t room,
                double *to);
/* Result for member `me` (its index along move->atoms; `order_me` along move->order for a permute)
 * from all members' blocks. */
void block_move(const BlockShape *shape, const Move *move, int n, int me, int order_me,
                const double *const *from, double *to);

#endif
