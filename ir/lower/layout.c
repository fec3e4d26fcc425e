/* layout.c - addresses: address = base + slot * stride + link offset.
 *
 * A ring holds what outlives a row, slot = micro-batch mod n. n is the smallest number for which no
 * slot is taken again before its life has ended: the most lives that overlap when lives end in the
 * order they begin (1F1B), all of them when not (GPipe). */
#include "ir/lower/layout.h"

#include "ir/base/num.h"

static const Graph *class_of(const Program *program, const StageLink *link)
{
    return program->net->classes.at[program->net->chain.at[link->link].class];
}

static int64_t copy_bytes(const Body *body, int copy)
{
    return copy == NONE ? 0 : num_align64(body->copies.at[copy].bytes);
}

/* Where the entries of every micro-batch stand in a stage's table: NONE where there is none. One
 * pass, because tables of long steps are long. */
typedef struct Places {
    int *at[ENTRY_COUNT][PART_COUNT]; /* [micro-batch], of computing, sending and receiving */
} Places;

static Places find_places(Arena *arena, const Program *program, const StageProgram *stage)
{
    static const EntryKind kinds[] = {ENTRY_COMPUTE, ENTRY_SEND, ENTRY_RECV};
    int micros = program->plan->micro_batches;
    Places places = {0};
    for (int k = 0; k < 3; k++)
        for (int part = 0; part < PART_COUNT; part++) {
            places.at[kinds[k]][part] = ARENA_ARRAY(arena, int, micros);
            for (int micro = 0; micro < micros; micro++)
                places.at[kinds[k]][part][micro] = NONE;
        }
    for (int i = stage->table.n - 1; i >= 0; i--) {
        const Entry *entry = &stage->table.at[i];
        if (places.at[entry->kind][entry->part])
            places.at[entry->kind][entry->part][entry->micro] = i;
    }
    return places;
}

static int after_slack(const Program *program, const StageProgram *stage, int entry)
{
    int rows = 0, i = entry;
    while (rows < program->slack && ++i < stage->table.n)
        rows += stage->table.at[i].kind == ENTRY_COMPUTE;
    return i < stage->table.n ? i : stage->table.n - 1;
}

static bool life_at(const Program *program, const StageProgram *stage, const Places *places,
                    RingKind kind, int micro, int *ret_first, int *ret_last)
{
    int forward = places->at[ENTRY_COMPUTE][PART_F][micro];
    int backward = places->at[ENTRY_COMPUTE][PART_B][micro];
    int first = forward, last = backward;
    switch (kind) {
    case RING_DATA:
    case RING_SAVED:
        break;
    case RING_IN:
        first = places->at[ENTRY_RECV][PART_F][micro];
        last = stage->link[0].body->saves_in ? backward : forward;
        break;
    case RING_GRAD_IN:
        first = places->at[ENTRY_RECV][PART_B][micro];
        break;
    case RING_OUT:
    case RING_GRAD_OUT: {
        int send = places->at[ENTRY_SEND][kind == RING_OUT ? PART_F : PART_B][micro];
        first = kind == RING_OUT ? forward : backward;
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

bool ring_life(const Program *program, const StageProgram *stage, RingKind kind, int micro,
               int *ret_first, int *ret_last)
{
    Arena *scratch = arena_new("life");
    Places places = find_places(scratch, program, stage);
    bool lives = life_at(program, stage, &places, kind, micro, ret_first, ret_last);
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

/* The fewest slots for which micro mod n never meets a live slot. */
static int ring_slots(const Program *program, const StageProgram *stage, RingKind kind)
{
    int micros = program->plan->micro_batches;
    Arena *scratch = arena_new("ring");
    Places places = find_places(scratch, program, stage);
    int *first = ARENA_ARRAY(scratch, int, micros), *last = ARENA_ARRAY(scratch, int, micros);
    bool rising = true, falling = true;
    for (int micro = 0; micro < micros; micro++) {
        if (!life_at(program, stage, &places, kind, micro, &first[micro], &last[micro])) {
            arena_free(scratch);
            return 0;
        }
        rising &= micro == 0 || first[micro] >= first[micro - 1];
        falling &= micro == 0 || last[micro] <= last[micro - 1];
    }
    int n = 1;
    while (n < micros && slots_clash(first, last, micros, n, rising || falling))
        n++;
    arena_free(scratch);
    return n;
}

static int64_t put_ring(const Program *program, StageProgram *stage, RingKind kind, int64_t stride,
                        int64_t at)
{
    Ring *ring = &stage->ring[kind];
    ring->base = at;
    ring->stride = stride;
    ring->n = stride ? ring_slots(program, stage, kind) : 0;
    if (stride && ring->n == 0)
        BUG("stage %d never fills its %s ring", stage->index, ring_text[kind]);
    return at + stride * ring->n;
}

static int64_t data_slot(const Program *program, StageProgram *stage)
{
    int64_t at = 0;
    for (int d = 0; d < DATA_COUNT; d++) {
        stage->data_offset[d] = NONE;
        for (int i = 0; i < stage->links; i++) {
            const StageLink *link = &stage->link[i];
            ValueId value = class_of(program, link)->data[d];
            for (int c = 0; value != NONE && c < link->body->copies.n; c++) {
                const Copy *copy = &link->body->copies.at[c];
                if (copy->value == value && copy->home == HOME_DATA &&
                    stage->data_offset[d] == NONE) {
                    stage->data_offset[d] = at;
                    at += num_align64(copy->bytes);
                }
            }
        }
    }
    return at;
}

static int64_t saved_slot(StageProgram *stage)
{
    int64_t at = 0;
    for (int i = 0; i < stage->links; i++) {
        StageLink *link = &stage->link[i];
        link->saved_offset = at;
        at += link->body->saved_bytes;
        link->in_offset = NONE;
        if (link->body->saves_in && i > 0) {
            link->in_offset = at;
            at += copy_bytes(link->body, link->body->in);
        }
    }
    return at;
}

static int64_t put_groups(const Program *program, StageProgram *stage, int64_t at)
{
    int64_t begin = at;
    for (int g = 0; g < stage->groups.n; g++) {
        stage->groups.at[g].weight = at;
        at += num_align64(stage->groups.at[g].elements * dtype_bytes(program->recipe->weight));
    }
    stage->group_bytes[0] = at - begin;
    begin = at;
    for (int g = 0; g < stage->groups.n; g++) {
        stage->groups.at[g].gradient = at;
        at += num_align64(stage->groups.at[g].elements * dtype_bytes(program->recipe->gradient));
    }
    stage->group_bytes[1] = at - begin;
    begin = at;
    for (int g = 0; g < stage->groups.n; g++) {
        Group *group = &stage->groups.at[g];
        int64_t bytes = num_align64(group->share_elements * dtype_bytes(program->recipe->master));
        group->moment1 = at;
        group->moment2 = at + bytes;
        at += 2 * bytes;
        if (program->recipe->has_master) {
            group->master = at;
            at += bytes;
        }
    }
    stage->group_bytes[2] = at - begin;
    return at;
}

/* A tied second use in the same stage points at the first's storage. */
static void point_at_members(const Program *program, StageProgram *stage)
{
    for (int i = 0; i < stage->links; i++) {
        int params = class_of(program, &stage->link[i])->params.n;
        stage->link[i].weight = ARENA_ARRAY(program->arena, int64_t, params + 1);
        stage->link[i].gradient = ARENA_ARRAY(program->arena, int64_t, params + 1);
        for (int p = 0; p < params; p++)
            stage->link[i].weight[p] = stage->link[i].gradient[p] = NONE;
    }
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        for (int k = 0; k < group->members.n; k++) {
            const GroupMember *member = &group->members.at[k];
            const NetParam *param = &program->net->params.at[member->net_param];
            for (int use = 0; use < param->uses; use++) {
                int at = param->link[use] - stage->link[0].link;
                if (at < 0 || at >= stage->links)
                    continue;
                StageLink *link = &stage->link[at];
                link->weight[param->use_param[use]] =
                    group->weight + member->offset * dtype_bytes(program->recipe->weight);
                link->gradient[param->use_param[use]] =
                    group->gradient + member->offset * dtype_bytes(program->recipe->gradient);
            }
        }
    }
}

void stage_layout(Program *program, StageProgram *stage)
{
    int64_t at = 0;
    stage->scalars = at;
    at += 64 * SCALAR_COUNT;
    at = put_groups(program, stage, at);
    point_at_members(program, stage);

    int64_t begin = at;
    const Body *head = stage->link[0].body, *tail = stage->link[stage->links - 1].body;
    bool first = stage->index == 0, last = stage->index == program->stages - 1;
    at = put_ring(program, stage, RING_DATA, data_slot(program, stage), at);
    at = put_ring(program, stage, RING_SAVED, saved_slot(stage), at);
    at = put_ring(program, stage, RING_IN, first ? 0 : copy_bytes(head, head->in), at);
    at = put_ring(program, stage, RING_OUT, last ? 0 : copy_bytes(tail, tail->out), at);
    at = put_ring(program, stage, RING_GRAD_IN, last ? 0 : copy_bytes(tail, tail->grad_in), at);
    at = put_ring(program, stage, RING_GRAD_OUT, first ? 0 : copy_bytes(head, head->grad_out), at);
    int64_t pass = 0, scratch = 0;
    for (int i = 0; i < stage->links; i++) {
        const Body *body = stage->link[i].body;
        if (i > 0 && !body->saves_in)
            pass = num_larger(pass, copy_bytes(body, body->in));
        if (i > 0)
            pass = num_larger(pass, copy_bytes(body, body->grad_out));
        scratch =
            num_larger(scratch, num_larger(body->forward_temp_bytes, body->backward_temp_bytes));
    }
    stage->pass_bytes = pass;
    for (int i = 0; i < 4; i++) {
        stage->pass[i] = at;
        at += pass;
    }
    stage->scratch = at;
    stage->scratch_bytes = scratch;
    at += scratch;
    stage->group_bytes[3] = at - begin;
    stage->arena_bytes = at;
}

static int64_t in_ring(const StageProgram *stage, RingKind kind, int micro, int64_t offset)
{
    const Ring *ring = &stage->ring[kind];
    CHECK(ring->n > 0 && micro >= 0);
    return ring->base + ring->stride * (micro % ring->n) + offset;
}

/* The chain value that enters link i of the stage. */
static int64_t edge_address(const StageProgram *stage, int i, int micro)
{
    if (i == stage->links)
        return in_ring(stage, RING_OUT, micro, 0);
    if (i == 0)
        return in_ring(stage, RING_IN, micro, 0);
    const StageLink *link = &stage->link[i];
    return link->in_offset != NONE ? in_ring(stage, RING_SAVED, micro, link->in_offset)
                                   : stage->pass[i & 1];
}

static int64_t grad_edge_address(const StageProgram *stage, int i, int micro)
{
    if (i == stage->links)
        return in_ring(stage, RING_GRAD_IN, micro, 0);
    if (i == 0)
        return in_ring(stage, RING_GRAD_OUT, micro, 0);
    return stage->pass[2 + (i & 1)];
}

int64_t copy_address(const Program *program, const StageProgram *stage, int at, int id, int micro)
{
    const StageLink *link = &stage->link[at];
    const Body *body = link->body;
    while (body->copies.at[id].alias != NONE)
        id = body->copies.at[id].alias;
    const Copy *copy = &body->copies.at[id];
    switch (copy->home) {
    case HOME_DATA:
        return in_ring(stage, RING_DATA, micro,
                       stage->data_offset[body->graph->values.at[copy->value].out]);
    case HOME_PARAM:
        return link->weight[copy->param];
    case HOME_ACC:
        return copy->param == NONE ? stage->scalars + 64 * SCALAR_LOSS
                                   : link->gradient[copy->param];
    case HOME_IN:
        return edge_address(stage, at, micro);
    case HOME_OUT:
        return edge_address(stage, at + 1, micro);
    case HOME_GRAD_IN:
        return grad_edge_address(stage, at + 1, micro);
    case HOME_GRAD_OUT:
        return grad_edge_address(stage, at, micro);
    case HOME_SAVED:
        return in_ring(stage, RING_SAVED, micro, link->saved_offset + copy->offset);
    case HOME_TEMP:
        return stage->scratch + copy->offset;
    case HOME_FUSED:
    case HOME_COUNT:
        break;
    }
    (void)program;
    BUG("%s of class %s is never stored", copy->name, body->graph->name);
}
