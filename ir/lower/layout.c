/* layout.c - addresses: address = base + slot * stride + link offset.
 *
 * A ring holds what outlives a row, slot = micro-batch mod n. n is the smallest number for which no
 * slot is taken again before its life has ended: the most lives that overlap when lives end in the
 * order they begin (1F1B), all of them when they end against it (GPipe). Lives in no order (the W
 * of ZB-H1) have a column of slots instead. */
#include "ir/lower/layout.h"

#include "ir/base/num.h"
#include "ir/lower/home.h"
#include "ir/lower/spill.h"
#include "ir/lower/state.h"

static const Graph *class_of(const Program *program, const StageLink *link)
{
    return program->net->classes.at[program->net->chain.at[link->link].class];
}

static int64_t copy_bytes(const Body *body, int copy)
{
    return copy == NONE ? 0 : num_align64(body->copies.at[copy].bytes);
}

typedef enum { DOES_F, DOES_I, DOES_W, DOES_COUNT } Does;

/* Where the entries of every chunk and micro-batch of step 0 stand in a stage's table: NONE where
 * there is none. A whole backward does I and W. One pass, because tables of long steps are long.
 * Two rows in one have one place. Where steps flow, places go on from turn to turn, and those of
 * step t are t turns later. */
typedef struct Places {
    int micros;
    int *row[DOES_COUNT], *send[2], *recv[2]; /* [chunk * micros + micro] */
} Places;

static int *no_places(Arena *arena, int n)
{
    int *at = ARENA_ARRAY(arena, int, n);
    for (int i = 0; i < n; i++)
        at[i] = NONE;
    return at;
}

static Places find_places(Arena *arena, const Program *program, const StageProgram *stage)
{
    Places places = {.micros = program->plan->micro_batches};
    int cells = stage->chunks * places.micros;
    for (int k = 0; k < DOES_COUNT; k++)
        places.row[k] = no_places(arena, cells);
    for (int k = 0; k < 2; k++) {
        places.send[k] = no_places(arena, cells);
        places.recv[k] = no_places(arena, cells);
    }
    for (int i = 0; i < stage->table.n; i++) {
        const Entry *entry = &stage->table.at[i];
        int cell = entry->chunk * places.micros + entry->micro;
        int at = (stage->ahead - entry->ahead) * stage->table.n + i - entry->braided;
        if (entry->kind == ENTRY_SEND)
            places.send[entry->message][cell] = at;
        if (entry->kind == ENTRY_RECV)
            places.recv[entry->message][cell] = at;
        if (entry->kind != ENTRY_COMPUTE)
            continue;
        if (entry->part == PART_F)
            places.row[DOES_F][cell] = at;
        if (entry->part == PART_B || entry->part == PART_I)
            places.row[DOES_I][cell] = at;
        if (entry->part == PART_B || entry->part == PART_W)
            places.row[DOES_W][cell] = at;
    }
    return places;
}

static int after_slack(const Program *program, const StageProgram *stage, int entry)
{
    int rows = 0, i = entry, n = stage->table.n;
    while (rows < program->slack && (++i < n || program->flows))
        rows += stage->table.at[i % n].kind == ENTRY_COMPUTE;
    return i < n || program->flows ? i : n - 1;
}

/* Does W read data? */
static bool weights_read_data(const StageProgram *stage, const Chunk *chunk)
{
    for (int i = chunk->begin; i < chunk->end; i++) {
        const Body *body = stage->link[i].body;
        for (int k = 0; k < body->weight.n; k++)
            for (int j = 0; j < body->weight.at[k].ins; j++)
                if (body->copies.at[body->weight.at[k].in[j]].home == HOME_DATA)
                    return true;
    }
    return false;
}

/* When a value of a neighbour chunk arrives: with a message, or when that chunk's row makes it. */
static int arrival(const Program *program, const StageProgram *stage, const Chunk *chunk,
                   const Places *places, MsgKind message, int micro)
{
    int from = message == MSG_ACTIVATION ? chunk->index - 1 : chunk->index + 1;
    if (chunk_stage(program, from) != stage->index)
        return places->recv[message][(int)(chunk - stage->chunk) * places->micros + micro];
    return places->row[message == MSG_ACTIVATION ? DOES_F : DOES_I]
                      [chunk_of_stage(program, from) * places->micros + micro];
}

static bool life_in_step(const Program *program, const StageProgram *stage, const Chunk *chunk,
                         const Places *places, RingKind kind, int micro, int *ret_first,
                         int *ret_last)
{
    int cell = (int)(chunk - stage->chunk) * places->micros + micro, does[DOES_COUNT];
    for (int k = 0; k < DOES_COUNT; k++)
        does[k] = places->row[k][cell];
    const Body *head = stage->link[chunk->begin].body, *tail = stage->link[chunk->end - 1].body;
    int first = does[DOES_F], last = does[DOES_I];
    switch (kind) {
    case RING_SAVED:
    case RING_STAYS:
        break;
    case RING_DATA:
        last = weights_read_data(stage, chunk) ? does[DOES_W] : last;
        break;
    case RING_SAVED_W:
    case RING_STAYS_W:
        last = does[DOES_W];
        break;
    case RING_SAVED_IW:
        first = does[DOES_I];
        last = does[DOES_W];
        break;
    case RING_IN:
        first = arrival(program, stage, chunk, places, MSG_ACTIVATION, micro);
        last = does[!head->saves_in ? DOES_F : head->saves_in_late ? DOES_W : DOES_I];
        break;
    case RING_GRAD_IN:
        first = arrival(program, stage, chunk, places, MSG_GRADIENT, micro);
        last = does[tail->saves_grad_in ? DOES_W : DOES_I];
        break;
    case RING_OUT:
    case RING_GRAD_OUT: {
        int send = places->send[kind == RING_OUT ? MSG_ACTIVATION : MSG_GRADIENT][cell];
        first = does[kind == RING_OUT ? DOES_F : DOES_I];
        last = send == NONE ? NONE : after_slack(program, stage, send);
        break;
    }
    case RING_COUNT:
        BUG("no such ring");
    }
    *ret_first = first;
    *ret_last = last;
    return first != NONE && last != NONE;
}

/* The same of a micro-batch by its number: micro_number(). */
static bool life_at(const Program *program, const StageProgram *stage, const Chunk *chunk,
                    const Places *places, RingKind kind, int number, int *ret_first, int *ret_last)
{
    int step = number / places->micros, later = step * stage->table.n;
    bool lives = life_in_step(program, stage, chunk, places, kind, number % places->micros,
                              ret_first, ret_last);
    *ret_first += later;
    *ret_last += later;
    return lives;
}

bool ring_life(const Program *program, const StageProgram *stage, const Chunk *chunk, RingKind kind,
               int micro, int *ret_first, int *ret_last)
{
    Arena *scratch = arena_new("life");
    Places places = find_places(scratch, program, stage);
    bool lives = life_at(program, stage, chunk, &places, kind, micro, ret_first, ret_last);
    arena_free(scratch);
    return lives;
}

/* Does micro mod n meet a live slot? Where lives begin in the order of micro-batches (or end
 * against it), who meets a later taker of his slot meets the next one already. */
static bool slots_clash(const int *first, const int *last, int micros, int n, bool ordered)
{
    for (int a = 0; a + n < micros; a++)
        for (int b = a + n; b < micros; b += n) {
            if (first[a] <= last[b] && first[b] <= last[a])
                return true;
            if (ordered)
                break;
        }
    return false;
}

/* Each life takes the lowest slot that is free where it begins: as many as are ever alive. Their
 * number; it may be as large as that of the lives. */
static int colour_slots(Arena *scratch, const int *first, const int *last, int micros,
                        int *ret_slot)
{
    int *order = ARENA_ARRAY(scratch, int, micros), *ends = ARENA_ARRAY(scratch, int, micros),
        n = 0;
    for (int i = 0; i < micros; i++) {
        int at = i;
        for (; at > 0 && first[order[at - 1]] > first[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < micros; i++) {
        int micro = order[i], slot = 0;
        while (slot < n && ends[slot] >= first[micro])
            slot++;
        n = slot == n ? n + 1 : n;
        ends[slot] = last[micro];
        ret_slot[micro] = slot;
    }
    return n;
}

/* The lives of a ring, and in which order they begin and end. */
typedef struct Lives {
    int *first, *last;
    bool begins_rise, begins_fall, ends_rise, ends_fall;
} Lives;

static Lives ring_lives(Arena *scratch, const Program *program, const StageProgram *stage,
                        const Chunk *chunk, RingKind kind, int micros)
{
    Places places = find_places(scratch, program, stage);
    Lives lives = {ARENA_ARRAY(scratch, int, micros),
                   ARENA_ARRAY(scratch, int, micros),
                   true,
                   true,
                   true,
                   true};
    for (int i = 0; i < micros; i++) {
        if (!life_at(program, stage, chunk, &places, kind, i, &lives.first[i], &lives.last[i]))
            BUG("chunk %d never fills its %s ring", chunk->index, ring_text[kind]);
        lives.begins_rise &= i == 0 || lives.first[i] >= lives.first[i - 1];
        lives.begins_fall &= i == 0 || lives.first[i] <= lives.first[i - 1];
        lives.ends_rise &= i == 0 || lives.last[i] >= lives.last[i - 1];
        lives.ends_fall &= i == 0 || lives.last[i] <= lives.last[i - 1];
    }
    return lives;
}

/* The fewest slots for which micro mod n never meets a live slot; a column of slots where that
 * takes more than are ever alive, which may be where lives begin or end out of order. */
void layout_choose_slots(const Program *program, const StageProgram *stage, const Chunk *chunk,
                         RingKind kind, Ring *ring)
{
    int micros = program->plan->micro_batches;
    if (program->flows) /* a life is over when as many turns have passed as it may lie ahead */
        micros *= stage->ahead + 3;
    Arena *scratch = arena_new("ring");
    Lives lives = ring_lives(scratch, program, stage, chunk, kind, micros);
    bool ordered = lives.begins_rise || lives.ends_fall;
    ring->n = 1;
    while (ring->n < micros && slots_clash(lives.first, lives.last, micros, ring->n, ordered))
        ring->n++;
    bool regular = (lives.begins_rise || lives.begins_fall) && (lives.ends_rise || lives.ends_fall);
    CHECK(regular || !program->flows);
    if (!regular) {
        int *slot = ARENA_ARRAY(program->arena, int, micros);
        int n = colour_slots(scratch, lives.first, lives.last, micros, slot);
        if (n < ring->n)
            *ring = (Ring){.base = ring->base, .stride = ring->stride, .n = n, .slot = slot};
    }
    arena_free(scratch);
}

static int64_t put_ring(const Program *program, StageProgram *stage, Chunk *chunk, RingKind kind,
                        int64_t stride, int64_t at)
{
    Ring *ring = &chunk->ring[kind];
    *ring = (Ring){.base = at, .stride = stride};
    if (stride)
        layout_choose_slots(program, stage, chunk, kind, ring);
    return at + stride * ring->n;
}

static int64_t data_slot(const Program *program, const StageProgram *stage, Chunk *chunk)
{
    int64_t at = 0;
    for (int d = 0; d < DATA_COUNT; d++) {
        chunk->data_offset[d] = NONE;
        for (int i = chunk->begin; i < chunk->end; i++) {
            const StageLink *link = &stage->link[i];
            ValueId value = class_of(program, link)->data[d];
            for (int c = 0; value != NONE && c < link->body->copies.n; c++) {
                const Copy *copy = &link->body->copies.at[c];
                if (copy->value == value && copy->home == HOME_DATA &&
                    chunk->data_offset[d] == NONE) {
                    chunk->data_offset[d] = at;
                    at += num_align64(copy->bytes);
                }
            }
        }
    }
    return at;
}

/* Offsets of a chunk's links in the slots of a ring of saved values; the slot's bytes. */
static int64_t saved_slot(const Program *program, StageProgram *stage, const Chunk *chunk,
                          RingKind ring)
{
    SavedKind kind = (SavedKind)(ring - (ring >= RING_STAYS ? RING_STAYS : RING_SAVED));
    int64_t at = 0;
    for (int i = chunk->begin; i < chunk->end; i++) {
        StageLink *link = &stage->link[i];
        if (spill_ring(program, link, kind) != ring)
            continue;
        const Body *body = link->body;
        SavedKind in_kind = body->saves_in_late ? SAVED_W : SAVED_I;
        link->saved_offset[kind] = at;
        at += body->saved_bytes[kind];
        if (body->saves_in && i > chunk->begin && kind == in_kind) {
            link->in_offset = at;
            at += copy_bytes(body, body->in);
        }
        if (body->saves_grad_in && i + 1 < chunk->end && kind == SAVED_IW) {
            link->grad_in_offset = at;
            at += copy_bytes(body, body->grad_in);
        }
        link->block_bytes[kind] = at - link->saved_offset[kind];
    }
    return at;
}

/* Homes of weights, and their versions, one behind the other. Where there are several a stage has
 * one chunk, so that no weight stays on the device while others leave it. */
static int64_t put_weights(const Program *program, StageProgram *stage, int64_t at)
{
    Memory kept = program->plan->memory[KEPT_WEIGHTS];
    int64_t begin = at, far = stage->far_bytes[kept];
    for (int g = 0; g < stage->groups.n; g++) {
        Group *group = &stage->groups.at[g];
        int64_t *end = group->far ? &stage->far_bytes[kept] : &at;
        group->weight = memory_address(group->far ? kept : MEMORY_HBM, *end);
        weight_lay_home(program, stage, g);
        *end += num_align64(group->weight_elements * dtype_bytes(program->recipe->weight));
    }
    bool away = at == begin && kept != MEMORY_HBM;
    Ring *versions = &stage->versions;
    *versions =
        away ? (Ring){.base = memory_address(kept, far), .stride = stage->far_bytes[kept] - far}
             : (Ring){.base = begin, .stride = at - begin};
    versions->n = stage->delay + 1;
    *(away ? &stage->far_bytes[kept] : &at) += versions->stride * stage->delay;
    CHECK(stage->delay == 0 || away == (kept != MEMORY_HBM));
    for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++)
        stage->far_bytes[m] = (stage->far_bytes[m] + FILE_GRAIN - 1) / FILE_GRAIN * FILE_GRAIN;
    return at;
}

static int64_t put_groups(const Program *program, StageProgram *stage, int64_t at)
{
    const Mesh *mesh = &program->plan->mesh;
    const Recipe *recipe = program->recipe;
    int64_t begin = at;
    at = put_weights(program, stage, at);
    stage->group_bytes[0] = at - begin;
    begin = at;
    for (int g = 0; g < stage->groups.n; g++) {
        Group *group = &stage->groups.at[g];
        if (group->far_gradients) {
            gradient_place_homes(program, stage, g);
            continue;
        }
        group->gradient = at;
        at += home_bytes(group, list_extent(mesh, &group->gradient_share),
                         dtype_bytes(recipe->gradient));
    }
    stage->group_bytes[1] = at - begin;
    begin = at;
    at = state_layout(program, stage, at);
    stage->group_bytes[2] = at - begin;
    return at;
}

/* Where a body finds a parameter, or its accumulator: at its home, or where its bucket is whole. A
 * tied second use in the same stage points at the first's storage. */
static void point_at_members(const Program *program, StageProgram *stage)
{
    int weight = dtype_bytes(program->recipe->weight),
        gradient = dtype_bytes(program->recipe->gradient);
    for (int i = 0; i < stage->links; i++) {
        StageLink *link = &stage->link[i];
        int params = class_of(program, link)->params.n;
        link->weight = ARENA_ARRAY(program->arena, int64_t, params + 1);
        link->gradient = ARENA_ARRAY(program->arena, int64_t, params + 1);
        for (int p = 0; p < params; p++) {
            link->weight[p] = link->gradient[p] = NONE;
            if (link->bucket[p] == NONE)
                continue;
            const Bucket *bucket = &stage->buckets.at[link->bucket[p]];
            const Group *group = &stage->groups.at[bucket->group];
            int64_t offset = group->members.at[link->member[p]].offset,
                    behind = offset - bucket->begin;
            link->weight[p] = bucket->fetch == NONE ? group->weight + offset * weight
                                                    : bucket->fetch + behind * weight;
            int64_t whole = bucket->buffer == NONE ? bucket->gradient[MEMORY_HBM] : bucket->buffer;
            link->gradient[p] =
                whole == NONE ? group->gradient + offset * gradient : whole + behind * gradient;
        }
    }
}

static int64_t put_rings(const Program *program, StageProgram *stage, Chunk *chunk, int64_t at)
{
    const Body *head = stage->link[chunk->begin].body, *tail = stage->link[chunk->end - 1].body;
    bool first = chunk->index == 0, last = chunk->index == program->chunks - 1;
    bool sends = !last && chunk_stage(program, chunk->index + 1) != stage->index;
    bool returns = !first && chunk_stage(program, chunk->index - 1) != stage->index;
    for (int i = chunk->begin; i < chunk->end; i++)
        stage->link[i].in_offset = stage->link[i].grad_in_offset = NONE;
    int64_t stride[RING_COUNT] = {
        [RING_DATA] = data_slot(program, stage, chunk),
        [RING_IN] = first ? 0 : copy_bytes(head, head->in),
        [RING_OUT] = sends ? copy_bytes(tail, tail->out) : 0,
        [RING_GRAD_IN] = last ? 0 : copy_bytes(tail, tail->grad_in),
        [RING_GRAD_OUT] = returns ? copy_bytes(head, head->grad_out) : 0,
    };
    for (int kind = RING_SAVED; kind <= RING_STAYS_W; kind++)
        stride[kind] = saved_slot(program, stage, chunk, (RingKind)kind);
    for (int kind = 0; kind < RING_COUNT; kind++)
        if ((kind == RING_SAVED || kind == RING_SAVED_W) && chunk->end_block > chunk->first_block)
            at = spill_layout(program, stage, chunk, (SavedKind)(kind - RING_SAVED), at);
        else
            at = put_ring(program, stage, chunk, (RingKind)kind, stride[kind], at);
    return at;
}

void stage_layout(Program *program, StageProgram *stage)
{
    int64_t at = 0;
    stage->scalars = at;
    at += 64 * SCALAR_COUNT;
    /* where steps flow, one more than are due, so that none is waited for */
    stage->pair =
        (Ring){.base = at, .stride = PAIR_BYTES, .n = program->flows ? stage->lag + 2 : 1};
    at += stage->pair.stride * stage->pair.n;
    at = put_groups(program, stage, at);

    int64_t begin = at;
    for (int c = 0; c < stage->chunks; c++)
        at = put_rings(program, stage, &stage->chunk[c], at);
    int64_t pass = 0, forward = 0, backward = 0;
    for (int i = 0; i < stage->links; i++) {
        const Body *body = stage->link[i].body;
        const Chunk *chunk = &stage->chunk[stage->link[i].chunk];
        if (i > chunk->begin && !body->saves_in)
            pass = num_larger(pass, copy_bytes(body, body->in));
        if (i > chunk->begin && !stage->link[i - 1].body->saves_grad_in)
            pass = num_larger(pass, copy_bytes(body, body->grad_out));
        forward = num_larger(forward, body->forward_temp_bytes);
        backward =
            num_larger(backward, num_larger(body->backward_temp_bytes, body->weight_temp_bytes));
    }
    bool apart = stage->pairings.n > 0;
    int64_t scratch = apart ? forward + backward : num_larger(forward, backward);
    for (int g = 0; g < stage->groups.n; g++)
        if (stage->groups.at[g].matrix != NONE)
            scratch = num_larger(
                scratch,
                program->matrices.at[stage->groups.at[g].matrix].body->backward_temp_bytes);
    stage->pass_bytes = pass;
    for (int i = 0; i < 4; i++) {
        stage->pass[i] = at;
        at += pass;
    }
    stage->scratch = at;
    stage->scratch_back = at + (apart ? forward : 0);
    stage->scratch_bytes = scratch;
    at += scratch;
    at = stage_place_buffers(program, stage, at);
    point_at_members(program, stage);
    stage->group_bytes[3] = at - begin;
    stage->arena_bytes = at;
}

/* What leaves a chunk: its own ring when it is sent, else that of the neighbour who reads it. */
static const Ring *outer_ring(const Program *program, const StageProgram *stage, const Chunk *chunk,
                              bool gradient)
{
    int to = gradient ? chunk->index - 1 : chunk->index + 1;
    if (chunk_stage(program, to) != stage->index)
        return &chunk->ring[gradient ? RING_GRAD_OUT : RING_OUT];
    return &stage->chunk[chunk_of_stage(program, to)].ring[gradient ? RING_GRAD_IN : RING_IN];
}

/* The ring of the value which enters a link of the chunk, or leaves the last one (link ==
 * chunk->end), or of its gradient; NULL for a transient. */
static const Ring *edge_ring(const Program *program, const StageProgram *stage, const Chunk *chunk,
                             int link, bool gradient, int64_t *ret_offset)
{
    *ret_offset = 0;
    if (link == (gradient ? chunk->begin : chunk->end))
        return outer_ring(program, stage, chunk, gradient);
    if (link == (gradient ? chunk->end : chunk->begin))
        return &chunk->ring[gradient ? RING_GRAD_IN : RING_IN];
    /* a gradient belongs to the link whose output it is of */
    const StageLink *at = &stage->link[gradient ? link - 1 : link];
    int64_t offset = gradient ? at->grad_in_offset : at->in_offset;
    if (offset == NONE)
        return NULL;
    *ret_offset = offset;
    SavedKind kind = gradient ? SAVED_IW : at->body->saves_in_late ? SAVED_W : SAVED_I;
    return &chunk->ring[spill_ring(program, at, kind)];
}

int copy_storage(const Body *body, int id)
{
    while (body->copies.at[id].alias != NONE)
        id = body->copies.at[id].alias;
    return id;
}

const Ring *copy_ring(const Program *program, const StageProgram *stage, int at, int id,
                      int64_t *ret_offset)
{
    const StageLink *link = &stage->link[at];
    const Chunk *chunk = &stage->chunk[link->chunk];
    const Copy *copy = &link->body->copies.at[copy_storage(link->body, id)];
    int kind = (int)copy->home - HOME_SAVED;
    switch (copy->home) {
    case HOME_DATA:
        *ret_offset = chunk->data_offset[link->body->graph->values.at[copy->value].out];
        return &chunk->ring[RING_DATA];
    case HOME_IN:
    case HOME_OUT:
        return edge_ring(program, stage, chunk, at + (copy->home == HOME_OUT), false, ret_offset);
    case HOME_GRAD_IN:
    case HOME_GRAD_OUT:
        return edge_ring(program, stage, chunk, at + (copy->home == HOME_GRAD_IN), true,
                         ret_offset);
    case HOME_SAVED:
    case HOME_SAVED_W:
    case HOME_SAVED_IW:
        *ret_offset = link->saved_offset[kind] + copy->offset;
        return &chunk->ring[spill_ring(program, link, (SavedKind)kind)];
    default:
        return NULL;
    }
}

int64_t copy_address(const Program *program, const StageProgram *stage, int at, int id, int step,
                     int micro, bool back)
{
    const StageLink *link = &stage->link[at];
    const Body *body = link->body;
    const Copy *copy = &body->copies.at[copy_storage(body, id)];
    int64_t offset;
    const Ring *ring = copy_ring(program, stage, at, id, &offset);
    if (ring)
        return ring->base +
               ring->stride * ring_slot(ring, micro_number(program, step, micro), back) + offset;
    switch (copy->home) {
    case HOME_PARAM:
        /* at home; what is fetched for a use is of the version of that use */
        return link->weight[copy->param] +
               (stage->buckets.at[link->bucket[copy->param]].fetch == NONE
                    ? version_offset(stage, stage_version(stage, step))
                : back ? stage->fetched_back
                       : 0);
    case HOME_ACC:
        return copy->param == NONE ? loss_address(program, stage, copy->number)
                                   : link->gradient[copy->param];
    case HOME_IN:
        return stage->pass[at & 1];
    case HOME_OUT:
        return stage->pass[(at + 1) & 1];
    case HOME_GRAD_IN:
        return stage->pass[2 + ((at + 1) & 1)];
    case HOME_GRAD_OUT:
        return stage->pass[2 + (at & 1)];
    case HOME_TEMP:
        return (copy->back ? stage->scratch_back : stage->scratch) + copy->offset;
    default:
        BUG("%s of class %s is never stored", copy->name, body->graph->name);
    }
}
