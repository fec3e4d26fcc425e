/* execute.c - Steps of all ranks, executed as their events allow. */
#include "ir/lower/execute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/lower/blocks.h"
#include "ir/lower/layout.h"
#include "ir/lower/machine.h"

enum { MAX_GROUP = 64, WIDTH = 8 };

static const Mesh *mesh_of(const Machine *machine)
{
    return &machine->program->plan->mesh;
}

static Rank *rank_at(const Machine *machine, int stage, int coordinate)
{
    return &machine->rank[stage * machine->per_stage + coordinate];
}

Machine *machine_new(Arena *arena, const Program *program)
{
    CHECK(program->recipe->activation == DT_F64 && program->recipe->gradient == DT_F64);
    Machine *machine = ARENA_NEW(arena, Machine);
    machine->arena = arena;
    machine->program = program;
    machine->per_stage = mesh_ranks(&program->plan->mesh);
    machine->ranks = machine->per_stage * program->stages;
    CHECK(machine->per_stage <= MAX_GROUP);
    machine->rank = ARENA_ARRAY(arena, Rank, machine->ranks);
    for (int r = 0; r < machine->ranks; r++) {
        Rank *rank = &machine->rank[r];
        rank->stage = r / machine->per_stage;
        rank->coordinate = r % machine->per_stage;
        int64_t elements = program->stage[rank->stage].arena_bytes / WIDTH;
        rank->arena = ARENA_ARRAY(arena, double, elements);
        rank->touched = ARENA_ARRAY(arena, unsigned char, elements);
    }
    machine_find_sites(machine);
    return machine;
}

/* ---- parameters
 * ---------------------------------------------------------------------------------------- */

/* Calls visit(local index, global index) for every element of a local block. */
typedef struct BlockMap {
    int axes;
    int64_t local[MAX_AXES], origin[MAX_AXES], whole[MAX_AXES];
} BlockMap;

static BlockMap block_map(const Machine *machine, const Body *body, const Copy *copy,
                          int coordinate)
{
    const Net *net = machine->program->net;
    const Value *value = &body->graph->values.at[copy->value];
    BlockMap map = {.axes = value->axes};
    for (int a = 0; a < value->axes; a++) {
        map.local[a] = copy->local[a];
        map.whole[a] = net->dims.at[value->dim[a]].extent;
        map.origin[a] = place_origin(mesh_of(machine), net, value, &copy->place, a, coordinate);
    }
    return map;
}

static int64_t map_index(const BlockMap *map, int64_t local)
{
    int64_t index = 0, scale = 1;
    for (int a = map->axes - 1; a >= 0; a--) {
        index += (map->origin[a] + local % map->local[a]) * scale;
        local /= map->local[a];
        scale *= map->whole[a];
    }
    return index;
}

/* A member's local weights and the map to the whole parameter. */
static double *member_block(const Machine *machine, Rank *rank, const Group *group,
                            const GroupMember *member, BlockMap *ret_map)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    const Body *body = stage->link[member->link].body;
    *ret_map = block_map(machine, body, &body->copies.at[body->param_copy[member->param]],
                         rank->coordinate);
    return rank->arena + group->weight / WIDTH + member->offset;
}

void machine_set_params(Machine *machine, const double *const *param)
{
    for (int r = 0; r < machine->ranks; r++) {
        Rank *rank = &machine->rank[r];
        const StageProgram *stage = &machine->program->stage[rank->stage];
        int64_t elements = stage->arena_bytes / WIDTH;
        for (int64_t i = 0; i < elements; i++)
            rank->arena[i] = NAN;
        memset(rank->touched, 0, (size_t)elements);
        memset(rank->arena + stage->scalars / WIDTH, 0, 64 * SCALAR_COUNT);
        for (int g = 0; g < stage->groups.n; g++) {
            const Group *group = &stage->groups.at[g];
            /* padding between members is zero from the start, and stays so */
            memset(rank->arena + group->weight / WIDTH, 0, (size_t)group->elements * WIDTH);
            memset(rank->arena + group->gradient / WIDTH, 0, (size_t)group->elements * WIDTH);
            memset(rank->arena + group->moment1 / WIDTH, 0, (size_t)group->share_elements * WIDTH);
            memset(rank->arena + group->moment2 / WIDTH, 0, (size_t)group->share_elements * WIDTH);
            for (int k = 0; k < group->members.n; k++) {
                BlockMap map;
                double *block = member_block(machine, rank, group, &group->members.at[k], &map);
                for (int64_t i = 0; i < group->members.at[k].elements; i++)
                    block[i] = param[group->members.at[k].net_param][map_index(&map, i)];
            }
        }
    }
}

double machine_param_error(const Machine *machine, int net_param, const double *want)
{
    double worst = 0, scale = 1e-30;
    int64_t elements = eval_param_elements(machine->program->net, net_param);
    for (int64_t i = 0; i < elements; i++)
        scale = fabs(want[i]) > scale ? fabs(want[i]) : scale;
    for (int r = 0; r < machine->ranks; r++) {
        Rank *rank = &machine->rank[r];
        const StageProgram *stage = &machine->program->stage[rank->stage];
        for (int g = 0; g < stage->groups.n; g++)
            for (int k = 0; k < stage->groups.at[g].members.n; k++) {
                const GroupMember *member = &stage->groups.at[g].members.at[k];
                if (member->net_param != net_param)
                    continue;
                BlockMap map;
                const double *block =
                    member_block(machine, rank, &stage->groups.at[g], member, &map);
                for (int64_t i = 0; i < member->elements; i++) {
                    double error = fabs(block[i] - want[map_index(&map, i)]) / scale;
                    worst = isnan(error) ? INFINITY : error > worst ? error : worst;
                }
            }
    }
    return worst;
}

/* ---- kernels
 * ------------------------------------------------------------------------------------------- */

static double *at_operand(Rank *rank, const Operand *operand)
{
    memset(rank->touched + operand->address / WIDTH, 1, (size_t)(operand->bytes / WIDTH));
    return rank->arena + operand->address / WIDTH;
}

/* The array of one copy of a kernel: an operand of the Step, or a fused value in scratch memory. */
static double *copy_block(const Machine *machine, Rank *rank, const Step *step, int copy,
                          Arena *scratch, double **fused)
{
    const Inst *inst = step->inst;
    for (int k = 0; k < inst->outs; k++)
        if (inst->out[k] == copy)
            return at_operand(rank, &step->operand[inst->ins + k]);
    for (int k = 0; k < inst->ins; k++)
        if (inst->in[k] == copy) {
            Operand operand = step->operand[k];
            if (site_hits(machine, MUTATE_SLOT, step) && machine->site->operand == k)
                operand.address =
                    copy_address(machine->program, &machine->program->stage[rank->stage],
                                 step->link, copy, step->micro + 1);
            return at_operand(rank, &operand);
        }
    CHECK(step->body->copies.at[copy].home == HOME_FUSED);
    if (!fused[copy])
        fused[copy] = ARENA_ARRAY(scratch, double, step->body->copies.at[copy].elements);
    return fused[copy];
}

/* Extent and origin of the letters of one node on one rank. */
static void fill_letters(const Machine *machine, const Step *step, int i, int coordinate,
                         int64_t *extent, int64_t *origin)
{
    const Body *body = step->body;
    const Node *node = &body->graph->nodes.at[step->inst->node[i]];
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool in = k < node->ins;
        int id = in ? step->inst->bind_in[i][k] : step->inst->bind_out[i][k - node->ins];
        const int8_t *letters = in ? node->sig.in[k] : node->sig.out[k - node->ins];
        BlockMap map = block_map(machine, body, &body->copies.at[id], coordinate);
        for (int a = 0; a < map.axes; a++) {
            int letter = letters[a];
            extent[letter] = map.local[a];
            origin[letter] = map.origin[a];
            if (site_hits(machine, MUTATE_BASE, step) &&
                machine->site->node == step->inst->node[i] && machine->site->letter == letter)
                origin[letter] = (map.origin[a] + map.local[a]) % map.whole[a];
        }
    }
}

static bool accumulates(const Step *step, const Copy *copy)
{
    return copy->home == HOME_ACC && !step->first;
}

static void run_kernel(Machine *machine, Rank *rank, const Step *step)
{
    const Body *body = step->body;
    Arena *scratch = arena_new("kernel");
    double **fused = ARENA_ARRAY(scratch, double *, body->copies.n);
    for (int i = 0; i < step->inst->nodes; i++) {
        const Node *node = &body->graph->nodes.at[step->inst->node[i]];
        const double *in[MAX_IN] = {0};
        double *out[MAX_OUT] = {0}, *target[MAX_OUT] = {0};
        int64_t extent[MAX_LETTERS] = {0}, origin[MAX_LETTERS] = {0};
        fill_letters(machine, step, i, rank->coordinate, extent, origin);
        for (int k = 0; k < node->ins; k++)
            in[k] = copy_block(machine, rank, step, step->inst->bind_in[i][k], scratch, fused);
        for (int k = 0; k < node->outs; k++) {
            const Copy *copy = &body->copies.at[step->inst->bind_out[i][k]];
            target[k] = copy_block(machine, rank, step, step->inst->bind_out[i][k], scratch, fused);
            out[k] = ARENA_ARRAY(scratch, double, copy->elements);
        }
        eval_node(machine->program->net, body->graph, node, in, out, extent, origin);
        for (int k = 0; k < node->outs; k++) {
            const Copy *copy = &body->copies.at[step->inst->bind_out[i][k]];
            for (int64_t e = 0; e < copy->elements; e++)
                target[k][e] = accumulates(step, copy) ? target[k][e] + out[k][e] : out[k][e];
        }
    }
    arena_free(scratch);
}

static void run_accumulate(Rank *rank, const Step *step)
{
    const double *from = at_operand(rank, &step->operand[0]);
    double *to = at_operand(rank, &step->operand[1]);
    for (int64_t e = 0; e < step->operand[1].bytes / WIDTH; e++)
        to[e] = step->first ? from[e] : to[e] + from[e];
}

static void run_optimizer(Machine *machine, Rank *rank, const Step *step)
{
    const Program *program = machine->program;
    const StageProgram *stage = &program->stage[rank->stage];
    double *cell = rank->arena + stage->scalars / WIDTH;
    enum { CELL = 64 / WIDTH };
    if (step->node == &program->optimizer->nodes.at[program->sumsq]) {
        const double *gradient = at_operand(rank, &step->operand[0]);
        double sum = 0;
        int64_t count = step->count;
        if (site_hits(machine, MUTATE_OWN, step))
            count = stage->buckets.at[step->bucket].share_elements;
        for (int64_t e = 0; e < count; e++)
            sum += gradient[e] * gradient[e];
        double *norm2 = at_operand(rank, &step->operand[1]);
        *norm2 = step->first ? sum : *norm2 + sum;
        return;
    }
    cell[CELL * SCALAR_LR] = machine->lr;
    cell[CELL * SCALAR_STEP] = step->round + 1;
    const double *in[MAX_IN] = {0};
    double *out[MAX_OUT] = {0};
    int64_t extent[MAX_LETTERS] = {step->count}, origin[MAX_LETTERS] = {0};
    const Net *net = program->optimizer->net;
    if (step->node == &program->optimizer->nodes.at[program->clip]) {
        in[0] = at_operand(rank, &step->operand[0]);
        out[0] = at_operand(rank, &step->operand[1]);
        eval_node(net, program->optimizer, step->node, in, out, extent, origin);
        return;
    }
    Node node = *step->node;
    if (!step->decay)
        node.attrs.adamw.decay = 0;
    Arena *scratch = arena_new("adamw");
    for (int k = 0; k < node.ins; k++)
        in[k] = at_operand(rank, &step->operand[k]);
    for (int k = 0; k < 3; k++)
        out[k] = ARENA_ARRAY(scratch, double, step->count);
    eval_node(net, program->optimizer, &node, in, out, extent, origin);
    for (int k = 0; k < 3; k++)
        memcpy(at_operand(rank, &step->operand[k]), out[k], (size_t)step->count * WIDTH);
    arena_free(scratch);
}

static void run_load(Machine *machine, Rank *rank, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    const EvalBatch *batch =
        &machine->batch[step->round * machine->program->plan->micro_batches + step->micro];
    for (int k = 0; k < step->operands; k++) {
        const Copy *copy = step->operand[k].copy;
        for (int i = 0; i < stage->links; i++) {
            const Body *body = stage->link[i].body;
            if (copy < body->copies.at || copy >= body->copies.at + body->copies.n)
                continue;
            BlockMap map = block_map(machine, body, copy, rank->coordinate);
            double *to = at_operand(rank, &step->operand[k]);
            for (int64_t e = 0; e < copy->elements; e++)
                to[e] = batch->data[body->graph->values.at[copy->value].out][map_index(&map, e)];
            break;
        }
    }
}

/* ---- moves
 * --------------------------------------------------------------------------------------------- */

static BlockShape shape_of(const Step *step, const Operand *operand)
{
    BlockShape shape = {1, {step->elements}};
    if (operand->copy) {
        const Value *value = &step->body->graph->values.at[operand->copy->value];
        shape.axes = value->axes;
        memcpy(shape.extent, operand->copy->local, sizeof shape.extent);
    }
    return shape;
}

/* On the flat [c, e] of a bucket only e is there. */
static Move flat_move(const Move *move)
{
    Move flat = *move;
    flat.from = flat.from == NONE ? NONE : 0;
    flat.to = flat.to == NONE ? NONE : 0;
    return flat;
}

/* One move of a whole group: all blocks are read before any result is written, so it may run in
 * place. */
static void run_group(Machine *machine, const Move *move, int n, Rank **member, Step **step)
{
    Arena *scratch = arena_new("move");
    BlockShape shape = shape_of(step[0], &step[0]->operand[0]);
    int64_t elements = block_elements(&shape);
    BlockShape after = block_after(&shape, move, n);
    double *block[MAX_GROUP], *result[MAX_GROUP];
    for (int k = 0; k < n; k++) {
        block[k] = ARENA_ARRAY(scratch, double, elements);
        memcpy(block[k], at_operand(member[k], &step[k]->operand[0]), (size_t)elements * WIDTH);
    }
    double *zeros = ARENA_ARRAY(scratch, double, elements);
    for (int me = 0; me < n; me++) {
        const double *from[MAX_GROUP];
        Move own = *move;
        bool sums = move->kind == MOVE_ALL_REDUCE || move->kind == MOVE_REDUCE_SCATTER;
        for (int k = 0; k < n; k++) {
            from[k] = block[k];
            if (site_hits(machine, MUTATE_SKIP, step[0]) && move->kind != MOVE_OWN &&
                move->kind != MOVE_PAD)
                from[k] = sums && k != me ? zeros : block[me];
            if (site_hits(machine, MUTATE_SHORT, step[0])) {
                int last = move->atoms.n - 1;
                bool alike =
                    mesh_coordinate(mesh_of(machine), member[k]->coordinate,
                                    move->atoms.at[last]) ==
                    mesh_coordinate(mesh_of(machine), member[me]->coordinate, move->atoms.at[last]);
                if (move->atoms.n > 1 ? !alike : k == (sums ? n - 1 : 0))
                    from[k] = zeros;
            }
        }
        if (site_hits(machine, MUTATE_SKIP, step[0]) && move->kind == MOVE_ALL_REDUCE &&
            move->monoid == MONOID_MAX)
            for (int k = 0; k < n; k++)
                from[k] = block[me];
        int order_me = move->kind == MOVE_PERMUTE
                           ? list_index(mesh_of(machine), &move->order, member[me]->coordinate)
                           : me;
        result[me] = ARENA_ARRAY(scratch, double, block_elements(&after));
        if (move->kind == MOVE_OWN && site_hits(machine, MUTATE_OWN, step[0]))
            memcpy(result[me], block[me], (size_t)elements * WIDTH);
        else
            block_move(&shape, &own, n, me, order_me, from, result[me]);
        if (site_hits(machine, MUTATE_AVERAGE, step[0]))
            for (int64_t e = 0; e < block_elements(&after); e++)
                result[me][e] /= n;
    }
    for (int k = 0; k < n; k++)
        memcpy(at_operand(member[k], &step[k]->operand[1]), result[k],
               (size_t)block_elements(&after) * WIDTH);
    arena_free(scratch);
}

static void run_message(Machine *machine, Rank *from, Step *send, Rank *to, Step *recv)
{
    if (site_hits(machine, MUTATE_PEER, recv)) {
        const Mesh *mesh = mesh_of(machine);
        AtomSet used = place_used(&send->operand[0].copy->place);
        for (int c = 0; c < machine->per_stage; c++) { /* any coordinate that holds another block */
            bool differs = false;
            for (int a = 0; a < mesh->n; a++)
                differs |= (used >> a & 1) && mesh_coordinate(mesh, c, a) !=
                                                  mesh_coordinate(mesh, from->coordinate, a);
            if (differs) {
                from = rank_at(machine, from->stage, c);
                break;
            }
        }
    }
    double *target = at_operand(to, &recv->operand[0]);
    size_t bytes = (size_t)send->operand[0].bytes;
    const double *source = at_operand(from, &send->operand[0]);
    if (site_hits(machine, MUTATE_STALE, recv) && to->stale[recv->message])
        source = to->stale[recv->message];
    if (machine->site && machine->site->kind == MUTATE_STALE) {
        double *now = ARENA_ARRAY(machine->arena, double, bytes / WIDTH);
        memcpy(now, at_operand(from, &send->operand[0]), bytes);
        to->stale[recv->message] = now;
    }
    memmove(target, source, bytes);
}

/* ---- order
 * --------------------------------------------------------------------------------------------- */

static Step *head(const Rank *rank, Stream stream)
{
    return rank->head[stream] < rank->queue[stream].n
               ? rank->steps.at[rank->queue[stream].at[rank->head[stream]]]
               : NULL;
}

static bool waits_done(const Rank *rank, const Step *step)
{
    for (int w = 0; w < step->waits; w++)
        if (rank->head[step->wait[w].stream] <= step->wait[w].seq)
            return false;
    return true;
}

static bool is_comm(const Step *step)
{
    return step->kind == STEP_MOVE && step->stream != STREAM_COMPUTE;
}

/* Members of what a Step does together with other ranks; their number. */
static int partners(const Machine *machine, const Rank *rank, const Step *step, Rank **ret)
{
    int n = 0;
    if (step->kind == STEP_WORLD) {
        CHECK(machine->ranks <= MAX_GROUP);
        for (int r = 0; r < machine->ranks; r++)
            ret[n++] = &machine->rank[r];
    } else if (step->kind == STEP_TIED) {
        int low = step->stage < step->peer ? step->stage : step->peer,
            high = step->stage + step->peer - low;
        ret[n++] = rank_at(machine, low, rank->coordinate);
        ret[n++] = rank_at(machine, high, rank->coordinate);
    } else if (step->kind == STEP_SEND || step->kind == STEP_RECV) {
        int other = rank->coordinate;
        ret[n++] = rank_at(machine, step->kind == STEP_SEND ? step->stage : step->peer, other);
        ret[n++] = rank_at(machine, step->kind == STEP_SEND ? step->peer : step->stage, other);
    } else if (is_comm(step)) {
        int ranks[MAX_GROUP], count = mesh_group(mesh_of(machine), &step->move->atoms,
                                                 rank->coordinate, ranks, MAX_GROUP);
        for (int k = 0; k < count; k++)
            ret[n++] = rank_at(machine, rank->stage, ranks[k]);
    } else {
        ret[n++] = rank_at(machine, rank->stage, rank->coordinate);
    }
    return n;
}

static Stream partner_stream(const Step *step, const Rank *own, const Rank *other)
{
    if (own == other || (step->kind != STEP_SEND && step->kind != STEP_RECV))
        return step->stream;
    return step->kind == STEP_SEND ? (Stream)(step->stream + 1) : (Stream)(step->stream - 1);
}

static bool same_operation(const Step *a, const Step *b)
{
    bool message = a->kind == STEP_SEND || a->kind == STEP_RECV;
    if (message)
        return (b->kind == STEP_SEND || b->kind == STEP_RECV) && a->message == b->message &&
               a->micro == b->micro;
    return a->kind == b->kind && a->move == b->move && a->inst == b->inst && a->micro == b->micro &&
           a->round == b->round && a->link == b->link && a->elements == b->elements &&
           (a->kind == STEP_TIED || a->kind == STEP_WORLD || a->bucket == b->bucket);
}

/* All members stand before the same operation with their waits done. */
static bool group_ready(const Rank *rank, const Step *step, Rank **member, Step **theirs, int n)
{
    for (int k = 0; k < n; k++) {
        Stream stream = partner_stream(step, rank, member[k]);
        theirs[k] = head(member[k], stream);
        if (!theirs[k] || !waits_done(member[k], theirs[k]))
            return false;
        /* before another operation: it may belong to another group, whose turn comes first */
        if (theirs[k] != step && !same_operation(step, theirs[k]))
            return false;
    }
    return true;
}

/* The stream has no Step of this table entry left to run. */
static bool entry_over(const Rank *rank, Stream stream, const Step *step)
{
    const Step *next = head(rank, stream);
    return !next || next->round > step->round ||
           (next->round == step->round && next->entry > step->entry);
}

/* The stream has run a Step of a later entry. */
static bool begun_later(const Rank *rank, Stream stream, const Step *step)
{
    int done = rank->head[stream];
    if (done == 0)
        return false;
    const Step *latest = rank->steps.at[rank->queue[stream].at[done - 1]];
    return latest->round > step->round ||
           (latest->round == step->round && latest->entry > step->entry);
}

/* Behind the last Step of a compute row, on either stream: what it leaves in the scratch area must
 * not be read again. A later row that has begun already owns the area, and then the events alone
 * must do. */
static void poison_scratch(const Machine *machine, Rank *rank, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    bool row = stage->table.at[step->entry].kind == ENTRY_COMPUTE &&
               (step->stream == STREAM_COMPUTE || step->stream == STREAM_BLOCK);
    if (!row || !entry_over(rank, STREAM_COMPUTE, step) || !entry_over(rank, STREAM_BLOCK, step))
        return;
    if (begun_later(rank, STREAM_COMPUTE, step) || begun_later(rank, STREAM_BLOCK, step))
        return;
    for (int64_t i = 0; i < stage->scratch_bytes / WIDTH; i++)
        rank->arena[stage->scratch / WIDTH + i] = NAN;
}

static void perform(Machine *machine, Rank **member, Step **step, int n)
{
    static const Move sum = {
        .kind = MOVE_ALL_REDUCE, .from = NONE, .to = NONE, .monoid = MONOID_SUM};
    switch (step[0]->kind) {
    case STEP_LOAD:
        run_load(machine, member[0], step[0]);
        break;
    case STEP_KERNEL:
        if (step[0]->inst)
            run_kernel(machine, member[0], step[0]);
        else
            run_optimizer(machine, member[0], step[0]);
        break;
    case STEP_ACCUMULATE:
        run_accumulate(member[0], step[0]);
        break;
    case STEP_MOVE:
        if (is_comm(step[0])) {
            Move move = step[0]->bucket == NONE ? *step[0]->move : flat_move(step[0]->move);
            run_group(machine, &move, n, member, step);
        } else {
            /* a local move: its group is this rank alone, its index from the whole group */
            const Move *move = step[0]->move;
            int count = list_extent(mesh_of(machine), &move->atoms);
            int me = list_index(mesh_of(machine), &move->atoms, member[0]->coordinate);
            BlockShape shape = shape_of(step[0], &step[0]->operand[0]);
            const double *from[MAX_GROUP];
            for (int k = 0; k < count; k++)
                from[k] = at_operand(member[0], &step[0]->operand[0]);
            if (move->kind == MOVE_OWN && site_hits(machine, MUTATE_OWN, step[0]))
                me = 0;
            block_move(&shape, move, count, me, me, from,
                       at_operand(member[0], &step[0]->operand[1]));
        }
        break;
    case STEP_SEND:
    case STEP_RECV:
        run_message(machine, member[0], step[0], member[1], step[1]);
        break;
    case STEP_OWN_LOSS: {
        double loss = *at_operand(member[0], &step[0]->operand[0]);
        bool owner = step[0]->count > 0 || site_hits(machine, MUTATE_OWN, step[0]);
        *at_operand(member[0], &step[0]->operand[1]) = owner ? loss : 0;
        break;
    }
    case STEP_TIED:
    case STEP_WORLD:
        run_group(machine, &sum, n, member, step);
        if (step[0]->kind == STEP_WORLD) {
            const double *pair = at_operand(member[0], &step[0]->operand[1]);
            machine->loss[step[0]->round] = pair[0];
            machine->norm2[step[0]->round] = pair[1];
        }
        break;
    case STEP_COUNT:
        BUG("no such step");
    }
}

/* Tries the head of one stream of one rank. */
static bool try_head(Machine *machine, Rank *rank, Stream stream)
{
    Step *step = head(rank, stream);
    if (!step || !waits_done(rank, step))
        return false;
    Rank *member[MAX_GROUP];
    Step *theirs[MAX_GROUP];
    int n = partners(machine, rank, step, member);
    if (!group_ready(rank, step, member, theirs, n))
        return false;
    perform(machine, member, theirs, n);
    for (int k = 0; k < n; k++) {
        member[k]->head[theirs[k]->stream]++;
        poison_scratch(machine, member[k], theirs[k]);
    }
    return true;
}

static bool run_once(Machine *machine)
{
    int heads = machine->ranks * STREAM_COUNT;
    int start =
        machine->seed ? (int)(rng_u64(machine->seed, 1, machine->draws++) % (uint64_t)heads) : 0;
    for (int i = 0; i < heads && !machine->fault; i++) {
        int at = (start + i) % heads;
        if (try_head(machine, &machine->rank[at / STREAM_COUNT], (Stream)(at % STREAM_COUNT)))
            return true;
    }
    return false;
}

static void collect_steps(Machine *machine, int rounds)
{
    for (int r = 0; r < machine->ranks; r++) {
        Rank *rank = &machine->rank[r];
        rank->steps.n = 0;
        for (int s = 0; s < STREAM_COUNT; s++)
            rank->queue[s].n = rank->head[s] = 0;
        Arena *scratch = arena_new("walk");
        Walk *walk = walk_begin(scratch, machine->program, rank->stage, rank->coordinate, rounds);
        for (const Step *step; (step = walk_next(walk)) != NULL;) {
            size_t bytes = offsetof(Step, operand) + (size_t)step->operands * sizeof(Operand);
            Step *kept = arena_alloc(machine->arena, bytes);
            memcpy(kept, step, bytes);
            vec_push(machine->arena, &rank->queue[step->stream]) = rank->steps.n;
            vec_push(machine->arena, &rank->steps) = kept;
        }
        arena_free(scratch);
    }
}

bool machine_run(Machine *machine, const EvalBatch *batch, int rounds, double lr, uint64_t seed,
                 const Mutation *mutation, const char **ret_fault)
{
    if (machine->rounds != rounds) {
        collect_steps(machine, rounds);
        machine->rounds = rounds;
        machine->loss = ARENA_ARRAY(machine->arena, double, rounds);
        machine->norm2 = ARENA_ARRAY(machine->arena, double, rounds);
    }
    for (int r = 0; r < machine->ranks; r++) {
        memset(machine->rank[r].head, 0, sizeof machine->rank[r].head);
        memset(machine->rank[r].stale, 0, sizeof machine->rank[r].stale);
    }
    machine->batch = batch;
    machine->lr = lr;
    machine->seed = seed;
    machine->draws = 0;
    machine->fault = NULL;
    machine->site =
        mutation && mutation->kind != MUTATE_NONE ? &machine->sites.at[mutation->site] : NULL;
    while (run_once(machine))
        continue;
    for (int r = 0; r < machine->ranks; r++)
        for (int s = 0; s < STREAM_COUNT; s++) {
            Rank *rank = &machine->rank[r];
            if (!machine->fault && rank->head[s] < rank->queue[s].n) {
                Str text = str_new(machine->arena);
                str_putf(&text, "deadlock: stage %d rank %d never runs ", rank->stage,
                         rank->coordinate);
                step_put(&text, machine->program, head(rank, (Stream)s));
                machine->fault = text.at;
            }
        }
    *ret_fault = machine->fault;
    return machine->fault == NULL;
}

double machine_loss(const Machine *machine, int round)
{
    return machine->loss[round];
}

double machine_norm2(const Machine *machine, int round)
{
    return machine->norm2[round];
}

int64_t machine_touched(const Machine *machine, int stage)
{
    int64_t most = 0;
    for (int c = 0; c < machine->per_stage; c++) {
        const Rank *rank = rank_at(machine, stage, c);
        int64_t elements = machine->program->stage[stage].arena_bytes / WIDTH;
        while (elements > 0 && !rank->touched[elements - 1])
            elements--;
        most = elements * WIDTH > most ? elements * WIDTH : most;
    }
    return most;
}
