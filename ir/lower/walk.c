/* walk.c - entries become Steps: bodies bound to a layer and a micro-batch, buckets to their
 * ranges. */
#include "ir/lower/walk.h"

#include <string.h>

#include "ir/lower/braid.h"
#include "ir/lower/layout.h"
#include "ir/lower/walk_in.h"

const char *const stream_text[STREAM_COUNT] = {"compute",  "block",    "gradient",  "weight",
                                               "send_act", "recv_act", "send_grad", "recv_grad",
                                               "copy_in",  "copy_out", "file_read", "file_write"};
const char *const step_text[STEP_COUNT] = {"load",       "kernel", "move",  "merge",
                                           "accumulate", "send",   "recv",  "own_loss",
                                           "tied",       "world",  "clear", "copy"};

/* Values of an evaluation are none of training's. */
enum { EVALUATED = 1 << 23 };

uint64_t walk_name(NameKind kind, int link, int copy, int micro)
{
    return (uint64_t)kind << 56 | (uint64_t)(link & 0xffff) << 40 |
           (uint64_t)(copy & 0xffff) << 24 | (uint64_t)(micro & 0xffffff);
}

Kept step_carries(const Step *step)
{
    if (step->bucket == NONE)
        return KEPT_SAVED;
    for (int k = 0; k < step->operands; k++)
        switch ((NameKind)(step->operand[k].name >> 56)) {
        case NAME_FETCHED:
            return KEPT_WEIGHTS;
        case NAME_SUMS:
            return KEPT_GRADIENTS;
        default:
            break;
        }
    return KEPT_STATE;
}

Stream hop_stream(Memory near, bool in)
{
    if (near == MEMORY_HBM)
        return in ? STREAM_COPY_IN : STREAM_COPY_OUT;
    return in ? STREAM_FILE_READ : STREAM_FILE_WRITE;
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
                   .turn = -program->stage[stage].ahead,
                   .turns = optimizer_steps + program->stage[stage].lag,
                   .sync = sync_new(arena)};
    return walk;
}

Walk *walk_begin_evaluating(Arena *arena, const Program *program, int stage, int coordinate,
                            int optimizer_steps)
{
    Walk *walk = walk_begin(arena, program, stage, coordinate, optimizer_steps);
    walk->evaluates = walk->evaluating = true;
    return walk;
}

bool step_entry_before(const Step *a, const Step *b)
{
    if (a->turn != b->turn)
        return a->turn < b->turn;
    return a->evaluates != b->evaluates ? a->evaluates : a->entry < b->entry;
}

Step *walk_put(Walk *walk, StepKind kind, Stream stream)
{
    Step *step = &vec_push(walk->arena, &walk->queue);
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->stream = stream;
    step->stage = walk->stage->index;
    step->coordinate = walk->coordinate;
    step->round = walk->round;
    step->turn = walk->turn;
    step->entry = walk->entry;
    step->evaluates = walk->evaluating;
    step->link = step->micro = step->bucket = NONE;
    step->peer = NONE;
    return step;
}

void walk_operand(Step *step, int64_t address, int64_t bytes, uint64_t name, const Copy *copy,
                  bool read, bool write)
{
    CHECK(step->operands < 2 * MAX_OPERANDS);
    step->operand[step->operands++] = (Operand){address, bytes, name, copy, write, read};
}

uint64_t walk_fetched_name(const Walk *walk, int bucket, Memory memory, bool back, int version)
{
    return walk_name(NAME_FETCHED, bucket,
                     2 * (int)memory + (back && walk->stage->fetched_back > 0),
                     ring_slot(&walk->stage->versions, version, false));
}

/* A weight or an accumulator at its home, or where its bucket is whole for a while. */
static uint64_t flat_name(const Walk *walk, const StageLink *link, const Copy *copy, int micro,
                          bool back)
{
    int b = copy->param == NONE ? NONE : link->bucket[copy->param];
    const Bucket *bucket = b == NONE ? NULL : &walk->stage->buckets.at[b];
    if (bucket && copy->home == HOME_PARAM && bucket->fetch != NONE)
        return walk_fetched_name(walk, b, MEMORY_HBM, back,
                                 stage_version(walk->stage, walk->round));
    if (bucket && copy->home == HOME_ACC && bucket->buffer != NONE)
        return walk_name(NAME_BUFFER, b, 0, micro);
    if (bucket && copy->home == HOME_ACC && bucket->gradient[MEMORY_HBM] != NONE)
        return walk_name(NAME_SUMS, MEMORY_HBM, 0, b);
    return walk_name(NAME_STATIC, 0, 0, 0);
}

static uint64_t copy_name(const Walk *walk, int at, int id, int micro, bool back)
{
    const StageLink *link = &walk->stage->link[at];
    const Copy *copy = &link->body->copies.at[id];
    int chain = link->link;
    switch (copy->home) {
    case HOME_DATA:
        return walk_name(NAME_DATA, walk->stage->chunk[link->chunk].index,
                         link->body->graph->values.at[copy->value].out, micro);
    case HOME_PARAM:
    case HOME_ACC:
        return flat_name(walk, link, copy, micro, back);
    case HOME_IN:
        return walk_name(NAME_EDGE, chain, 0, micro);
    case HOME_OUT:
        return walk_name(NAME_EDGE, chain + 1, 0, micro);
    case HOME_GRAD_IN:
        return walk_name(NAME_GRAD_EDGE, chain + 1, 0, micro);
    case HOME_GRAD_OUT:
        return walk_name(NAME_GRAD_EDGE, chain, 0, micro);
    case HOME_SAVED:
    case HOME_SAVED_W:
    case HOME_SAVED_IW:
        return walk_name(NAME_SAVED, chain, id, micro);
    case HOME_TEMP:
        return walk_name(NAME_TEMP, chain, id, micro);
    case HOME_FUSED:
    case HOME_COUNT:
        break;
    }
    BUG("fused copies have no name");
}

static void put_copy(Walk *walk, Step *step, int at, int id, int micro, bool read, bool write)
{
    const Body *body = walk->stage->link[at].body;
    const Copy *copy = &body->copies.at[id];
    bool back = step->inst && body_list_with(body, step->inst) > 0;
    walk_operand(step, copy_address(walk->program, walk->stage, at, id, walk->round, micro, back),
                 copy->bytes,
                 copy_name(walk, at, id,
                           micro_number(walk->program, walk->round, micro) +
                               (walk->evaluating ? EVALUATED : 0),
                           back),
                 copy, read, write);
}

/* The accumulator holds nothing of this step yet, or nothing of this micro-batch. */
static bool begins_sum(const Walk *walk, const Entry *entry, int at, const Copy *copy)
{
    const StageProgram *stage = walk->stage;
    int bucket = copy->param == NONE ? NONE : stage->link[at].bucket[copy->param];
    bool buffered = bucket != NONE && stage->buckets.at[bucket].buffer != NONE;
    return (buffered || entry->first) &&
           (copy->param == NONE || link_opens(stage, at, copy->param));
}

Step *walk_inst(Walk *walk, const Body *body, const Inst *inst)
{
    bool comm = inst->kind == INST_MOVE && inst->move.kind <= MOVE_PERMUTE;
    StepKind kind = inst->kind == INST_KERNEL  ? STEP_KERNEL
                    : inst->kind == INST_MOVE  ? STEP_MOVE
                    : inst->kind == INST_MERGE ? STEP_MERGE
                                               : STEP_ACCUMULATE;
    Step *step = walk_put(walk, kind, comm ? STREAM_BLOCK : STREAM_COMPUTE);
    step->body = body;
    step->inst = inst;
    step->move = inst->kind == INST_MOVE ? &inst->move : NULL;
    return step;
}

static void put_inst(Walk *walk, const Entry *entry, int at, const Inst *inst)
{
    const Body *body = walk->stage->link[at].body;
    Step *step = walk_inst(walk, body, inst);
    step->link = at;
    step->micro = entry->micro;
    int sums = 0, begun = 0;
    for (int k = 0; k < inst->outs; k++) {
        const Copy *copy = &body->copies.at[inst->out[k]];
        sums += copy->home == HOME_ACC;
        begun += copy->home == HOME_ACC && begins_sum(walk, entry, at, copy);
    }
    step->first = sums ? begun == sums : entry->first;
    for (int k = 0; k < inst->ins; k++)
        put_copy(walk, step, at, inst->in[k], entry->micro, true, false);
    for (int k = 0; k < inst->outs; k++) {
        bool adds = (body->copies.at[inst->out[k]].home == HOME_ACC && !step->first) ||
                    (inst->adds >> k & 1);
        put_copy(walk, step, at, inst->out[k], entry->micro, adds, true);
    }
}

static void put_load(Walk *walk, const Entry *entry)
{
    const StageProgram *stage = walk->stage;
    const Chunk *chunk = &stage->chunk[entry->chunk];
    if (chunk->ring[RING_DATA].stride == 0)
        return;
    Step *step = walk_put(walk, STEP_LOAD, STREAM_COMPUTE);
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
        walk_fetch_first(walk, entry);
        for (int i = chunk->begin; i < chunk->end; i++) {
            walk_fetch_ahead(walk, entry, i);
            put_list(walk, entry, i, &stage->link[i].body->forward);
            walk_spill(walk, entry, i);
        }
        return;
    }
    walk_fetch_first(walk, entry);
    for (int i = chunk->end - 1; i >= chunk->begin; i--) {
        walk_fetch_ahead(walk, entry, i);
        walk_spill(walk, entry, i);
        walk_sums(walk, entry, i, true);
        if (entry->part != PART_W)
            put_list(walk, entry, i, &stage->link[i].body->backward);
        if (entry->part != PART_I) {
            put_list(walk, entry, i, &stage->link[i].body->weight);
            walk_close(walk, entry, i);
            walk_sums(walk, entry, i, false);
        }
    }
}

/* Two rows in one, pair by pair of their links. */
static void put_pair(Walk *walk, const Entry *forward, const Entry *backward)
{
    const StageProgram *stage = walk->stage;
    const Pairing *pairing = entry_pairing(stage, forward);
    const Chunk *there = &stage->chunk[forward->chunk], *back = &stage->chunk[backward->chunk];
    put_load(walk, forward);
    walk_fetch_first(walk, forward);
    walk_fetch_first(walk, backward);
    for (int i = 0; i < pairing->links; i++) {
        const PairLink *pair = &pairing->link[i];
        int to = pair->forward == NONE ? NONE : row_link(there, true, pair->forward),
            from = pair->backward == NONE ? NONE : row_link(back, false, pair->backward);
        if (to != NONE)
            walk_fetch_ahead(walk, forward, to);
        if (from != NONE) {
            walk_fetch_ahead(walk, backward, from);
            walk_spill(walk, backward, from);
        }
        for (int k = 0; k < pair->braid->n; k++) {
            const BraidInst *at = &pair->braid->inst[k];
            bool ahead = at->list == 0;
            int link = ahead ? to : from;
            put_inst(walk, ahead ? forward : backward, link,
                     &body_list(stage->link[link].body, at->list)->at[at->inst]);
        }
        if (to != NONE)
            walk_spill(walk, forward, to);
        if (from != NONE && pairing->part != PART_I)
            walk_close(walk, backward, from);
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
    Step *step = walk_put(walk, send ? STEP_SEND : STEP_RECV, stream);
    step->micro = entry->micro;
    step->message = entry->message;
    step->boundary = chunk->index + (send == act);
    step->peer = entry->peer;
    step->link = at;
    step->body = body;
    int id = send ? act ? body->out : body->grad_out : act ? body->in : body->grad_in;
    put_copy(walk, step, at, id, entry->micro, send, !send);
}

static void expand(Walk *walk, const Entry *entry)
{
    switch (entry->kind) {
    case ENTRY_COMPUTE:
        if (entry->braids)
            put_pair(walk, entry, entry + 1);
        else if (!entry->braided)
            put_compute(walk, entry);
        break;
    case ENTRY_SEND:
    case ENTRY_RECV:
        put_message(walk, entry);
        break;
    case ENTRY_REDUCE:
        walk_reduce(walk, entry->index);
        break;
    case ENTRY_TIED:
        walk_tied(walk, entry->index);
        break;
    case ENTRY_NORM:
        walk_norm(walk);
        break;
    case ENTRY_UPDATE:
        walk_update(walk, entry->index);
        break;
    case ENTRY_WORLD:
        walk_world(walk);
        break;
    case ENTRY_LOSS:
        walk_evaluated(walk);
        break;
    case ENTRY_COUNT:
        BUG("no such entry");
    }
}

const Step *walk_next(Walk *walk)
{
    while (walk->next == walk->queue.n) {
        bool flows = walk->program->flows;
        int entries = walk->evaluating ? walk->stage->evaluation.n : walk->stage->table.n;
        if (walk->entry == entries) {
            walk->entry = 0;
            walk->turn += !walk->evaluating;
            walk->evaluating = walk->evaluates && !flows && !walk->evaluating;
        }
        if (walk->turn == walk->turns)
            return NULL;
        const Entry *entry = stage_entry(walk->stage, walk->entry, walk->evaluating);
        walk->round = walk->evaluating && flows ? 0 : walk->turn + entry->ahead;
        walk->queue.n = walk->next = 0;
        if (walk->round >= 0 && walk->round < walk->rounds)
            expand(walk, entry);
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
