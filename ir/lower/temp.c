/* temp.c - addresses inside a body: temps in the scratch area, saved values in the link's saved
 * block. */
#include "ir/lower/body.h"
#include "ir/lower/life.h"

#include <stdlib.h>
#include <string.h>

#include "ir/base/num.h"

static int storage_of(const Body *body, int id)
{
    while (body->copies.at[id].alias != NONE)
        id = body->copies.at[id].alias;
    return id;
}

static void extend(Body *body, int id, int at)
{
    Copy *copy = &body->copies.at[storage_of(body, id)];
    if (copy->first == NONE || at < copy->first)
        copy->first = at;
    if (at > copy->last)
        copy->last = at;
}

/* A move may still be reading its source when the next instruction runs: the source lives until the
 * first reader of the result, which is where the move is waited for. */
static int first_reader(const InstList *list, int from, int id)
{
    for (int i = from + 1; i < list->n; i++)
        for (int k = 0; k < list->at[i].ins; k++)
            if (list->at[i].in[k] == id)
                return i;
    return list->n - 1;
}

static void fill_lives(Body *body, const InstList *list)
{
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        for (int k = 0; k < inst->ins; k++)
            if (body->copies.at[storage_of(body, inst->in[k])].home == HOME_TEMP)
                extend(body, inst->in[k], i);
        for (int k = 0; k < inst->outs; k++)
            if (body->copies.at[storage_of(body, inst->out[k])].home == HOME_TEMP)
                extend(body, inst->out[k], i);
        for (int k = 0; k < inst->ins && inst->kind == INST_MOVE; k++)
            if (body->copies.at[storage_of(body, inst->in[k])].home == HOME_TEMP)
                extend(body, inst->in[k], first_reader(list, i, inst->out[0]));
    }
}

static int by_size(const void *a, const void *b)
{
    const Life *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->id - y->id;
}

static int by_start(const void *a, const void *b)
{
    const Life *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->id - y->id;
}

/* Temps of the lists' instructions, best of two orders. */
static int64_t place_list(Body *body, const InstList *list, bool back, Arena *arena)
{
    Life *block = ARENA_ARRAY(arena, Life, body->copies.n + 1);
    int64_t *offset[2] = {ARENA_ARRAY(arena, int64_t, body->copies.n + 1),
                          ARENA_ARRAY(arena, int64_t, body->copies.n + 1)};
    bool *seen = ARENA_ARRAY(arena, bool, body->copies.n + 1);
    int n = 0;
    for (int i = 0; i < list->n; i++)
        for (int k = 0; k < list->at[i].outs; k++) {
            int id = storage_of(body, list->at[i].out[k]);
            Copy *copy = &body->copies.at[id];
            copy->back = back;
            if (copy->home != HOME_TEMP || seen[id])
                continue;
            seen[id] = true;
            block[n++] = (Life){id, num_align64(copy->bytes), copy->first, copy->last};
        }
    qsort(block, (size_t)n, sizeof block[0], by_size);
    int64_t best = lives_fit(block, n, offset[0]);
    for (int i = 0; i < n; i++)
        body->copies.at[block[i].id].offset = offset[0][i];
    qsort(block, (size_t)n, sizeof block[0], by_start);
    int64_t other = lives_fit(block, n, offset[1]);
    if (other < best) {
        best = other;
        for (int i = 0; i < n; i++)
            body->copies.at[block[i].id].offset = offset[1][i];
    }
    return best;
}

static int uses_in(const InstList *list, int copy)
{
    int n = 0;
    for (int i = 0; i < list->n; i++)
        for (int k = 0; k < list->at[i].ins; k++)
            n += list->at[i].in[k] == copy;
    return n;
}

/* An all-reduce or a merge whose source nobody else reads runs in place. */
static void alias_in_place(Body *body, const InstList *list)
{
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        bool reduces = inst->kind == INST_MOVE && inst->move.kind == MOVE_ALL_REDUCE;
        for (int k = 0; k < inst->outs && (reduces || inst->kind == INST_MERGE); k++) {
            Copy *source = &body->copies.at[inst->in[k]];
            int uses = 0;
            for (int l = 0; l < BODY_LISTS; l++)
                uses += uses_in(body_list(body, l), inst->in[k]);
            if (uses == 1 && source->home == HOME_TEMP && source->alias == NONE)
                source->alias = inst->out[k];
        }
    }
}

void body_place_temps(Body *body)
{
    alias_in_place(body, &body->forward);
    alias_in_place(body, &body->backward);
    alias_in_place(body, &body->weight);
    for (int i = 0; i < body->copies.n; i++)
        body->copies.at[i].first = body->copies.at[i].last = NONE;
    fill_lives(body, &body->forward);
    memset(body->saved_bytes, 0, sizeof body->saved_bytes);
    for (int i = 0; i < body->copies.n; i++) {
        Copy *copy = &body->copies.at[i];
        if (copy->home < HOME_SAVED || copy->home > HOME_SAVED_IW || copy->alias != NONE)
            continue;
        int64_t *bytes = &body->saved_bytes[copy->home - HOME_SAVED];
        copy->offset = *bytes;
        *bytes += num_align64(copy->bytes);
    }
    fill_lives(body, &body->backward);
    fill_lives(body, &body->weight);
    Arena *scratch = arena_new("temps");
    body->forward_temp_bytes = place_list(body, &body->forward, false, scratch);
    body->backward_temp_bytes = place_list(body, &body->backward, true, scratch);
    body->weight_temp_bytes = place_list(body, &body->weight, true, scratch);
    arena_free(scratch);
}
