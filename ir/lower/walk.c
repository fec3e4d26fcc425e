/* walk.c - entries become Steps: bodies bound to a layer and a micro-batch, buckets to their
 * ranges. */
#include "ir/lower/walk.h"

#include <string.h>

#include "ir/lower/layout.h"
#include "ir/lower/sync.h"

const char *const stream_text[STREAM_COUNT] = {"compute",  "block",     "gradient", "send_act",
                                               "recv_act", "send_grad", "recv_grad"};
const char *const step_text[STEP_COUNT] = {"load", "kernel", "move",     "merge", "accumulate",
                                           "send", "recv",   "own_loss", "tied",  "world"};

struct Walk {
    Arena *arena;
    const Program *program;
    const StageProgram *stage;
    int coordinate, rounds, round, entry;
    Sync *sync;
    VEC(Step) queue; /* Steps of the current entry */
    int next;
};

/* Names of values: what kind, which link or edge of the chain, which copy, which micro-batch.
 * Static memory (weights, gradients, moments, scalars) is one name: its cells never change owner.
 */
typedef enum {
    NAME_STATIC = 1,
    NAME_DATA,
    NAME_EDGE,
    NAME_GRAD_EDGE,
    NAME_SAVED,
    NAME_TEMP
} NameKind;

static uint64_t name_of(NameKind kind, int link, int copy, int micro)
{
    return (uint64_t)kind << 56 | (uint64_t)(link & 0xffff) << 40 |
           (uint64_t)(copy & 0xffff) << 24 | (uint64_t)(micro & 0xffffff);
}

Walk *walk_begin(Arena *arena, const Program *program, int stage, int coordinate,
                 int optimizer_steps)
{
    Walk *walk = ARENA_NEW(arena, Walk);
    *walk = (Walk){.arena = arena,
                   .program = program,
                   .stage = &program->stage[stage],
                   .coordinate = coordinate,
                   .rounds = optimizer_steps,
                   .sync = sync_new(arena)};
    return walk;
}

static Step *put_step(Walk *walk, StepKind kind, Stream stream)
{
    Step *step = &vec_push(walk->arena, &walk->queue);
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->stream = stream;
    step->stage = walk->stage->index;
    step->coordinate = walk->coordinate;
    step->round = walk->round;
    step->entry = walk->entry;
    step->link = step->micro = step->bucket = NONE;
    step->peer = NONE;
    return step;
}

static void put_operand(Step *step, int64_t address, int64_t bytes, uint64_t name, const Copy *copy,
                        bool read, bool write)
{
    CHECK(step->operands < 2 * MAX_OPERANDS);
    step->operand[step->operands++] = (Operand){address, bytes, name, copy, write, read};
}

/* Flat memory: weights, gradients, moments. */
static void put_static(Step *step, int64_t address, int64_t bytes, bool read, bool write)
{
    put_operand(step, address, bytes, name_of(NAME_STATIC, 0, 0, 0), NULL, read, write);
}

static uint64_t copy_name(const Walk *walk, int at, int id, int micro)
{
    const StageLink *link = &walk->stage->link[at];
    const Copy *copy = &link->body->copies.at[id];
    int chain = link->link;
    switch (copy->home) {
    case HOME_DATA:
        return name_of(NAME_DATA, walk->stage->chunk[link->chunk].index,
                       link->body->graph->values.at[copy->value].out, micro);
    case HOME_PARAM:
    case HOME_ACC:
        return name_of(NAME_STATIC, 0, 0, 0);
    case HOME_IN:
        return name_of(NAME_EDGE, chain, 0, micro);
    case HOME_OUT:
        return name_of(NAME_EDGE, chain + 1, 0, micro);
    case HOME_GRAD_IN:
        return name_of(NAME_GRAD_EDGE, chain + 1, 0, micro);
    case HOME_GRAD_OUT:
        return name_of(NAME_GRAD_EDGE, chain, 0, micro);
    case HOME_SAVED:
    case HOME_SAVED_W:
    case HOME_SAVED_IW:
        return name_of(NAME_SAVED, chain, id, micro);
    case HOME_TEMP:
        return name_of(NAME_TEMP, chain, id, micro);
    case HOME_FUSED:
    case HOME_COUNT:
        break;
    }
    BUG("fused copies have no name");
}

static void put_copy(Walk *walk, Step *step, int at, int id, int micro, bool read, bool write)
{
    const Copy *copy = &walk->stage->link[at].body->copies.at[id];
    put_operand(step, copy_address(walk->program, walk->stage, at, id, micro), copy->bytes,
                copy_name(walk, at, id, micro), copy, read, write);
}

static void put_inst(Walk *walk, const Entry *entry, int at, const Inst *inst)
{
    const Body *body = walk->stage->link[at].body;
    bool comm = inst->kind == INST_MOVE && inst->move.kind <= MOVE_PERMUTE;
    StepKind kind = inst->kind == INST_KERNEL  ? STEP_KERNEL
                    : inst->kind == INST_MOVE  ? STEP_MOVE
                    : inst->kind == INST_MERGE ? STEP_MERGE
                                               : STEP_ACCUMULATE;
    Step *step = put_step(walk, kind, comm ? STREAM_BLOCK : STREAM_COMPUTE);
    step->body = body;
    step->inst = inst;
    step->link = at;
    step->micro = entry->micro;
    step->move = inst->kind == INST_MOVE ? &inst->move : NULL;
    step->first = entry->first;
    for (int k = 0; k < inst->outs; k++) {
        const Copy *copy = &body->copies.at[inst->out[k]];
        if (copy->home == HOME_ACC && copy->param != NONE &&
            !link_opens(walk->stage, at, copy->param))
            step->first = false;
    }
    for (int k = 0; k < inst->ins; k++)
        put_copy(walk, step, at, inst->in[k], entry->micro, true, false);
    for (int k = 0; k < inst->outs; k++) {
        bool adds = body->copies.at[inst->out[k]].home == HOME_ACC && !step->first;
        put_copy(walk, step, at, inst->out[k], entry->micro, adds, true);
    }
}

static void put_load(Walk *walk, const Entry *entry)
{
    const StageProgram *stage = walk->stage;
    const Chunk *chunk = &stage->chunk[entry->chunk];
    if (chunk->ring[RING_DATA].stride == 0)
        return;
    Step *step = put_step(walk, STEP_LOAD, STREAM_COMPUTE);
    step->micro = entry->micro;
    for (int d = 0; d < DATA_COUNT; d++)
        for (int i = chunk->begin; chunk->data_offset[d] != NONE && i < chunk->end; i++) {
            const Body *body = stage->link[i].body;
            if (body->graph->data[d] == NONE)
                continue;
            for (int c = 0; c < body->copies.n; c++)
                if (body->copies.at[c].home == HOME_DATA &&
                    body->copies.at[c].value == body->graph->data[d]) {
                    put_copy(walk, step, i, c, entry->micro, false, true);
                    step->link = i;
                    i = chunk->end;
                    break;
                }
        }
}

/* Moves on the flat gradient or weight of a bucket, in place: each shrinks (scatter, slice) or
 * widens (gather) the range of elements that this rank holds. */
static void put_flat_moves(Walk *walk, int bucket_index, const Path *path, int64_t base, int width,
                           int64_t begin, int64_t count)
{
    const Mesh *mesh = &walk->program->plan->mesh;
    for (int i = 0; i < path->n; i++) {
        const Move *move = &path->move[i];
        int n = list_extent(mesh, &move->atoms),
            index = list_index(mesh, &move->atoms, walk->coordinate);
        int64_t next_begin = begin, next_count = count;
        if (move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE) {
            next_count = count / n;
            next_begin = begin + index * next_count;
        } else if (move->kind == MOVE_ALL_GATHER) {
            next_count = count * n;
            next_begin = begin - index * count;
        } else if (move->kind != MOVE_ALL_REDUCE) {
            BUG("a flat bucket has no %s", move_text[move->kind]);
        }
        if (move->kind != MOVE_SLICE) {
            Step *step = put_step(walk, STEP_MOVE, STREAM_GRADIENT);
            step->move = move;
            step->bucket = bucket_index;
            step->elements = count;
            put_static(step, base + begin * width, count * width, true, false);
            put_static(step, base + next_begin * width, next_count * width, false, true);
        }
        begin = next_begin;
        count = next_count;
    }
}

static void put_reduce(Walk *walk, int index)
{
    const Bucket *bucket = &walk->stage->buckets.at[index];
    const Group *group = &walk->stage->groups.at[bucket->group];
    put_flat_moves(walk, index, &group->reduce, group->gradient,
                   dtype_bytes(walk->program->recipe->gradient), bucket->begin, bucket->elements);
}

static void put_list(Walk *walk, const Entry *entry, int link, const InstList *list)
{
    for (int k = 0; k < list->n; k++)
        put_inst(walk, entry, link, &list->at[k]);
}

static void put_compute(Walk *walk, const Entry *entry)
{
    const StageProgram *stage = walk->stage;
    const Chunk *chunk = &stage->chunk[entry->chunk];
    if (entry->part == PART_F) {
        put_load(walk, entry);
        for (int i = chunk->begin; i < chunk->end; i++)
            put_list(walk, entry, i, &stage->link[i].body->forward);
        return;
    }
    for (int i = chunk->end - 1; i >= chunk->begin; i--) {
        if (entry->part != PART_W)
            put_list(walk, entry, i, &stage->link[i].body->backward);
        if (entry->part != PART_I)
            put_list(walk, entry, i, &stage->link[i].body->weight);
        for (int b = 0; entry->last && b < stage->buckets.n; b++)
            if (stage->buckets.at[b].close_link == i)
                put_reduce(walk, b);
    }
}

static void put_message(Walk *walk, const Entry *entry)
{
    const StageProgram *stage = walk->stage;
    const Chunk *chunk = &stage->chunk[entry->chunk];
    bool send = entry->kind == ENTRY_SEND, act = entry->message == MSG_ACTIVATION;
    Stream stream = send  ? act ? STREAM_SEND_ACT : STREAM_SEND_GRAD
                    : act ? STREAM_RECV_ACT
                          : STREAM_RECV_GRAD;
    int at = send == act ? chunk->end - 1 : chunk->begin;
    const Body *body = stage->link[at].body;
    Step *step = put_step(walk, send ? STEP_SEND : STEP_RECV, stream);
    step->micro = entry->micro;
    step->message = entry->message;
    step->boundary = chunk->index + (send == act);
    step->peer = entry->peer;
    step->link = at;
    step->body = body;
    int id = send ? act ? body->out : body->grad_out : act ? body->in : body->grad_in;
    put_copy(walk, step, at, id, entry->micro, send, !send);
}

static int64_t scalar(const Walk *walk, int which)
{
    return walk->stage->scalars + 64 * which;
}

static int scalar_bytes(const Walk *walk)
{
    return dtype_bytes(walk->program->recipe->gradient);
}

/* The rank whose copy counts: coordinate 0 on every atom on which the group is Replicate, and the
 * first home stage. */
static bool owns(const Walk *walk, const Group *group)
{
    const Mesh *mesh = &walk->program->plan->mesh;
    AtomSet distinct = (AtomSet)(group->sharded | list_set(&group->share));
    for (int a = 0; a < mesh->n; a++)
        if (!(distinct >> a & 1) && mesh_coordinate(mesh, walk->coordinate, a) != 0)
            return false;
    return group->tied_stage == NONE || walk->stage->index < group->tied_stage;
}

/* The loss accumulator is Partial on the atoms of the tokens and Replicate on the rest: coordinate
 * 0 there owns it. */
static int owns_loss(const Walk *walk)
{
    const StageProgram *stage = walk->stage;
    const Mesh *mesh = &walk->program->plan->mesh;
    for (int i = 0; i < stage->links; i++) {
        const Body *body = stage->link[i].body;
        if (body->loss == NONE)
            continue;
        for (int a = 0; a < mesh->n; a++)
            if (!(body->copies.at[body->loss].place.partial >> a & 1) &&
                mesh_coordinate(mesh, walk->coordinate, a) != 0)
                return 0;
        return 1;
    }
    return 0;
}

static void put_norm(Walk *walk)
{
    const StageProgram *stage = walk->stage;
    int width = scalar_bytes(walk);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        Step *step = put_step(walk, STEP_KERNEL, STREAM_COMPUTE);
        step->node = &walk->program->optimizer->nodes.at[walk->program->sumsq];
        step->bucket = b;
        step->first = b == 0;
        step->from_element = bucket_share_begin(walk->program, stage, bucket, walk->coordinate);
        step->count = group->rate == 0 && owns(walk, group) ? bucket->share_elements : 0;
        put_static(step, group->gradient + step->from_element * width, step->count * width, true,
                   false);
        put_static(step, scalar(walk, SCALAR_PAIR) + width, width, b > 0, true);
    }
    Step *own = put_step(walk, STEP_OWN_LOSS, STREAM_COMPUTE);
    own->count = owns_loss(walk);
    put_static(own, scalar(walk, SCALAR_LOSS), width, true, false);
    put_static(own, scalar(walk, SCALAR_PAIR), width, false, true);
    Step *world = put_step(walk, STEP_WORLD, STREAM_GRADIENT);
    world->elements = 2;
    put_static(world, scalar(walk, SCALAR_PAIR), 2 * width, true, false);
    put_static(world, scalar(walk, SCALAR_PAIR), 2 * width, false, true);
    Step *clip = put_step(walk, STEP_KERNEL, STREAM_COMPUTE);
    clip->node = &walk->program->optimizer->nodes.at[walk->program->clip];
    put_static(clip, scalar(walk, SCALAR_PAIR) + width, width, true, false);
    put_static(clip, scalar(walk, SCALAR_COEF), width, false, true);
}

static void put_tied(Walk *walk, int g)
{
    const StageProgram *stage = walk->stage;
    const Group *group = &stage->groups.at[g];
    int width = scalar_bytes(walk);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        if (bucket->group != g)
            continue;
        int64_t begin = bucket_share_begin(walk->program, stage, bucket, walk->coordinate);
        Step *step = put_step(walk, STEP_TIED, STREAM_GRADIENT);
        step->bucket = b;
        step->peer = group->tied_stage;
        step->elements = bucket->share_elements;
        put_static(step, group->gradient + begin * width, step->elements * width, true, false);
        put_static(step, group->gradient + begin * width, step->elements * width, false, true);
    }
}

static void put_adamw(Walk *walk, int index, int64_t begin, int64_t end, bool decay)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    const Recipe *recipe = walk->program->recipe;
    int gradient = dtype_bytes(recipe->gradient), weight = dtype_bytes(recipe->weight),
        state = dtype_bytes(recipe->master);
    int64_t count = end - begin;
    int64_t share = bucket->share_begin + begin -
                    bucket_share_begin(walk->program, stage, bucket, walk->coordinate);
    Step *step = put_step(walk, STEP_KERNEL, STREAM_COMPUTE);
    step->node = &walk->program->optimizer->nodes.at[walk->program->adamw];
    step->bucket = index;
    step->from_element = begin;
    step->count = count;
    step->decay = decay;
    put_static(step, group->weight + begin * weight, count * weight, true, true);
    put_static(step, group->moment1 + share * state, count * state, true, true);
    put_static(step, group->moment2 + share * state, count * state, true, true);
    put_static(step, group->gradient + begin * gradient, count * gradient, true, false);
    put_static(step, scalar(walk, SCALAR_COEF), gradient, true, false);
    put_static(step, scalar(walk, SCALAR_LR), gradient, true, false);
    put_static(step, scalar(walk, SCALAR_STEP), gradient, true, false);
    if (group->master != NONE)
        put_static(step, group->master + share * state, count * state, true, true);
}

/* A bucket that AdamW does not move: on the master where there is one. */
static void put_sign(Walk *walk, int index, int64_t begin, int64_t count)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    const Recipe *recipe = walk->program->recipe;
    int gradient = dtype_bytes(recipe->gradient), weight = dtype_bytes(recipe->weight),
        state = dtype_bytes(recipe->master);
    Step *step = put_step(walk, STEP_KERNEL, STREAM_COMPUTE);
    step->node = &walk->program->optimizer->nodes.at[walk->program->sign];
    step->bucket = index;
    step->from_element = begin;
    step->count = count;
    put_static(step, group->weight + begin * weight, count * weight, true, true);
    put_static(step, group->gradient + begin * gradient, count * gradient, true, false);
    if (group->master != NONE)
        put_static(step, group->master + bucket->share_begin * state, count * state, true, true);
}

/* The optimizer on this rank's share, one Step per run of elements with one decay flag, then the
 * way home. */
static void put_update(Walk *walk, int index)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    int64_t begin = bucket_share_begin(walk->program, stage, bucket, walk->coordinate);
    int64_t end = begin + bucket->share_elements, at = begin;
    if (group->rate > 0)
        put_sign(walk, index, begin, bucket->share_elements);
    for (int i = 0; group->rate == 0 && i < group->members.n && at < end; i++) {
        const GroupMember *member = &group->members.at[i];
        bool same_next =
            i + 1 < group->members.n && group->members.at[i + 1].decay == member->decay;
        int64_t stop = i + 1 < group->members.n ? group->members.at[i + 1].offset : group->elements;
        if (stop <= at || (same_next && stop < end))
            continue;
        stop = stop < end ? stop : end;
        put_adamw(walk, index, at, stop, member->decay);
        at = stop;
    }
    put_flat_moves(walk, index, &group->gather, group->weight,
                   dtype_bytes(walk->program->recipe->weight), begin, bucket->share_elements);
}

static void expand(Walk *walk, const Entry *entry)
{
    switch (entry->kind) {
    case ENTRY_COMPUTE:
        put_compute(walk, entry);
        break;
    case ENTRY_SEND:
    case ENTRY_RECV:
        put_message(walk, entry);
        break;
    case ENTRY_REDUCE:
        put_reduce(walk, entry->index);
        break;
    case ENTRY_TIED:
        put_tied(walk, entry->index);
        break;
    case ENTRY_NORM:
        put_norm(walk);
        break;
    case ENTRY_UPDATE:
        put_update(walk, entry->index);
        break;
    case ENTRY_COUNT:
        BUG("no such entry");
    }
}

const Step *walk_next(Walk *walk)
{
    while (walk->next == walk->queue.n) {
        if (walk->entry == walk->stage->table.n) {
            walk->entry = 0;
            walk->round++;
        }
        if (walk->round == walk->rounds)
            return NULL;
        walk->queue.n = walk->next = 0;
        expand(walk, &walk->stage->table.at[walk->entry]);
        walk->entry++;
    }
    Step *step = &walk->queue.at[walk->next++];
    sync_step(walk->sync, step);
    return step;
}

static const char *step_name(const Step *step)
{
    if (step->node)
        return step->node->name;
    if (step->inst && step->inst->kind == INST_KERNEL)
        return step->body->graph->nodes.at[step->inst->node[step->inst->nodes - 1]].name;
    if (step->move)
        return move_text[step->move->kind];
    return "";
}

void step_put(Str *str, const Program *program, const Step *step)
{
    (void)program;
    str_putf(str, "%s#%lld %s %s", stream_text[step->stream], (long long)step->seq,
             step_text[step->kind], step_name(step));
    if (step->link != NONE && step->body)
        str_putf(str, " link %d", step->link);
    if (step->micro != NONE)
        str_putf(str, " micro %d", step->micro);
    for (int k = 0; k < step->operands; k++) {
        const Operand *operand = &step->operand[k];
        str_putf(str, " %s%s[%lld+%lld]", operand->read ? "r" : "", operand->write ? "w" : "",
                 (long long)operand->address, (long long)operand->bytes);
    }
    for (int k = 0; k < step->waits; k++)
        str_putf(str, " wait %s#%lld", stream_text[step->wait[k].stream],
                 (long long)step->wait[k].seq);
    str_putc(str, '\n');
}
