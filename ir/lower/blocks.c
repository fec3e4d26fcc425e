/* blocks.c - moves on dense blocks: cut, join, sum. */
#include "ir/lower/blocks.h"

#include <stdlib.h>
#include <string.h>

int64_t block_elements(const BlockShape *shape)
{
    int64_t n = 1;
    for (int a = 0; a < shape->axes; a++)
        n *= shape->extent[a];
    return n;
}

BlockShape block_after(const BlockShape *shape, const Move *move, int n)
{
    BlockShape after = *shape;
    bool joins =
        move->kind == MOVE_ALL_GATHER || move->kind == MOVE_ALL_TO_ALL || move->kind == MOVE_PAD;
    bool cuts = move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_ALL_TO_ALL ||
                move->kind == MOVE_SLICE;
    if (joins)
        after.extent[move->from] *= n;
    if (cuts && move->to != NONE)
        after.extent[move->to] /= n;
    return after;
}

/* Runs before the axis, and elements of one index of it and all after. */
static void strides(const BlockShape *shape, int axis, int64_t *ret_outer, int64_t *ret_inner)
{
    *ret_outer = *ret_inner = 1;
    for (int a = 0; a < shape->axes; a++)
        *(a < axis ? ret_outer : ret_inner) *= shape->extent[a];
}

/* Piece i of n along the axis of a block of this shape. */
static void cut(const BlockShape *shape, int axis, int i, int n, const double *from, double *to)
{
    int64_t outer, inner;
    strides(shape, axis, &outer, &inner);
    for (int64_t o = 0; o < outer; o++)
        memcpy(to + o * (inner / n), from + o * inner + i * (inner / n),
               (size_t)(inner / n) * sizeof *to);
}

/* Puts a block of this shape as piece i of n of a block that is n times as long along the axis. */
static void paste(const BlockShape *shape, int axis, int i, int n, const double *from, double *to)
{
    int64_t outer, inner;
    strides(shape, axis, &outer, &inner);
    for (int64_t o = 0; o < outer; o++)
        memcpy(to + (o * n + i) * inner, from + o * inner, (size_t)inner * sizeof *to);
}

static void merge(int64_t elements, Monoid monoid, int n, const double *const *from, double *to)
{
    memcpy(to, from[0], (size_t)elements * sizeof *to);
    for (int k = 1; k < n; k++)
        for (int64_t e = 0; e < elements; e++)
            to[e] = monoid == MONOID_MAX ? (from[k][e] > to[e] ? from[k][e] : to[e])
                                         : to[e] + from[k][e];
}

void block_move(const BlockShape *shape, const Move *move, int n, int me, int order_me,
                const double *const *from, double *to)
{
    int64_t elements = block_elements(shape);
    BlockShape joined = *shape;
    if (move->from != NONE && move->from < shape->axes)
        joined.extent[move->from] *= n;
    double *whole = calloc((size_t)(elements * n) + 1, sizeof *whole);
    CHECK(whole != NULL);
    switch (move->kind) {
    case MOVE_ALL_REDUCE:
        merge(elements, move->monoid, n, from, to);
        break;
    case MOVE_REDUCE_SCATTER:
        merge(elements, move->monoid, n, from, whole);
        cut(shape, move->to, me, n, whole, to);
        break;
    case MOVE_ALL_GATHER:
        for (int k = 0; k < n; k++)
            paste(shape, move->from, k, n, from[k], to);
        break;
    case MOVE_ROTATE:
        memcpy(to, from[((me - move->by) % n + n) % n], (size_t)elements * sizeof *to);
        break;
    case MOVE_ALL_TO_ALL:
    case MOVE_PERMUTE:
        for (int k = 0; k < n; k++)
            paste(shape, move->from, k, n, from[k], whole);
        cut(&joined, move->to, move->kind == MOVE_PERMUTE ? order_me : me, n, whole, to);
        break;
    case MOVE_SLICE:
        if (move->to == NONE)
            memcpy(to, from[me], (size_t)elements * sizeof *to);
        else
            cut(shape, move->to, me, n, from[me], to);
        break;
    case MOVE_OWN:
        for (int64_t e = 0; e < elements; e++)
            to[e] = me == 0 ? from[me][e] : 0;
        break;
    case MOVE_PAD:
        memset(to, 0, (size_t)(elements * n) * sizeof *to);
        paste(shape, move->from, me, n, from[me], to);
        break;
    case MOVE_KIND_COUNT:
        BUG("no such move");
    }
    free(whole);
}

/* ---- rows that go by whom they name ---- */

/* The member that has what a row names, or NONE. */
static int route_owner(const Route *route, int64_t row)
{
    double id = route->choice[row];
    return id >= 0 ? (int)((int64_t)id / route->named) : NONE;
}

/* Where the i-th row of a member is among all. */
static int64_t route_row(const Route *route, int member, int64_t i)
{
    const RouteRuns *runs = &route->runs;
    int64_t each = route->rows / route->n / runs->run;
    return ((member / runs->cuts * each + i / runs->run) * runs->cuts + member % runs->cuts) *
               runs->run +
           i % runs->run;
}

/* Where a member's part of a block begins, of padded messages. */
static int64_t route_part(const Route *route, int64_t member)
{
    return (member + route->turn) % route->n * route->message;
}

bool route_send(const Route *route, int me, const double *const *from, bool whole, int64_t width,
                int64_t room, double blank, double *to)
{
    int64_t each = route->rows / route->n, got = 0, end = room;
    for (int64_t e = 0; e < room * width; e++)
        to[e] = blank;
    for (int64_t i = 0; i < route->rows; i++) {
        int64_t row = route_row(route, (int)(i / each), i % each);
        if (i % each == 0 && route->message > 0)
            end = (got = route_part(route, i / each)) + route->message;
        if (route_owner(route, row) != me)
            continue;
        if (got == end)
            return false;
        const double *source = whole ? from[0] + row * width : from[i / each] + i % each * width;
        memcpy(to + got++ * width, source, (size_t)width * sizeof *to);
    }
    return true;
}

bool route_back(const Route *route, int me, const double *const *from, int64_t width, int64_t room,
                double *to)
{
    int64_t each = route->rows / route->n;
    int64_t *sent = calloc((size_t)route->n, sizeof *sent);
    bool fits = true;
    CHECK(sent != NULL);
    memset(to, 0, (size_t)(each * width) * sizeof *to);
    for (int64_t i = 0; i < route->rows && fits; i++) {
        int owner = route_owner(route, route_row(route, (int)(i / each), i % each));
        if (i % each == 0 && route->message > 0)
            for (int k = 0; k < route->n; k++)
                sent[k] = route_part(route, i / each);
        if (owner == NONE)
            continue;
        int64_t at = sent[owner]++;
        fits = at < (route->message > 0 ? route_part(route, i / each) + route->message : room);
        if (fits && i / each == me)
            memcpy(to + i % each * width, from[owner] + at * width, (size_t)width * sizeof *to);
    }
    free(sent);
    return fits;
}
