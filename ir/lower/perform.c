/* perform.c - what one Step does to the bytes of its ranks: moves, messages, the optimizer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lower/blocks.h"
#include "ir/lower/layout.h"
#include "ir/lower/machine.h"
#include "ir/lower/state.h"
#include "ir/lower/turns.h"

bool step_is_comm(const Step *step)
{
    return step->kind == STEP_MOVE && step->stream != STREAM_COMPUTE;
}

/* Joins (o, l) pairs: o is the mean of values with the weights exp(l); l of nothing is -inf. */
static void merge_lse(int64_t rows, int64_t width, const double *const *in, double *const *out)
{
    for (int64_t r = 0; r < rows; r++) {
        double a = in[1][r], b = in[3][r], top = fmax(a, b);
        double wa = isinf(top) ? 0 : exp(a - top), wb = isinf(top) ? 0 : exp(b - top);
        double sum = wa + wb;
        for (int64_t x = 0; x < width; x++) {
            double both = wa * in[0][r * width + x] + wb * in[2][r * width + x];
            out[0][r * width + x] = sum > 0 ? both / sum : 0;
        }
        out[1][r] = sum > 0 ? top + log(sum) : top;
    }
}

/* What a rank sees nothing of it does not make: nobody may read it. */
static void skip_kernel(Rank *rank, const Step *step)
{
    for (int k = 0; k < step->inst->outs; k++) {
        const Operand *operand = &step->operand[step->inst->ins + k];
        double *out = operand_at(rank, operand);
        for (int64_t e = 0; e < operand->bytes / WIDTH; e++)
            out[e] = NAN;
    }
}

static void run_merge(Rank *rank, const Step *step)
{
    const Inst *inst = step->inst;
    if (inst_idle(step->body, inst, rank->coordinate)) {
        for (int k = 0; k < inst->outs; k++)
            memmove(operand_at(rank, &step->operand[inst->ins + k]),
                    operand_at(rank, &step->operand[k]), (size_t)step->operand[k].bytes);
        return;
    }
    const double *in[2 * MAX_OUT] = {0};
    double *out[MAX_OUT] = {0};
    for (int k = 0; k < inst->ins; k++)
        in[k] = operand_at(rank, &step->operand[k]);
    for (int k = 0; k < inst->outs; k++)
        out[k] = operand_at(rank, &step->operand[inst->ins + k]);
    if (inst->monoid == MONOID_LSE) {
        int64_t rows = step->body->copies.at[inst->out[1]].elements;
        merge_lse(rows, step->body->copies.at[inst->out[0]].elements / rows, in, out);
        return;
    }
    for (int k = 0; k < inst->outs; k++)
        for (int64_t e = 0; e < step->body->copies.at[inst->out[k]].elements; e++)
            out[k][e] = in[k][e] + in[inst->outs + k][e];
}

static void run_accumulate(const Machine *machine, Rank *rank, const Step *step)
{
    const double *from = operand_at(rank, &step->operand[0]);
    double *to = operand_at(rank, &step->operand[1]);
    if (site_hits(machine, MUTATE_FORGET, step))
        return;
    for (int64_t e = 0; e < step->operand[1].bytes / WIDTH; e++)
        to[e] = step->first ? from[e] : to[e] + from[e];
}

static void run_clear(Rank *rank, const Step *step)
{
    double *to = operand_at(rank, &step->operand[0]);
    for (int64_t e = 0; e < step->operand[0].bytes / WIDTH; e++)
        to[e] = 0;
}

static void run_optimizer(Machine *machine, Rank *rank, const Step *step)
{
    const Program *program = machine->program;
    const StageProgram *stage = &program->stage[rank->stage];
    if (step->node == &program->optimizer->nodes.at[program->sumsq]) {
        const double *gradient = operand_at(rank, &step->operand[0]);
        double sum = 0;
        int64_t count = step->count;
        if (site_hits(machine, MUTATE_OWN, step))
            count = stage->buckets.at[step->bucket].share_elements;
        for (int64_t e = 0; e < count; e++)
            sum += gradient[e] * gradient[e];
        double *norm2 = operand_at(rank, &step->operand[1]);
        *norm2 = step->first ? sum : *norm2 + sum;
        return;
    }
    set_scalars(machine, rank, step);
    const double *in[MAX_IN] = {0};
    double *out[MAX_OUT] = {0};
    int64_t extent[MAX_LETTERS] = {step->count}, origin[MAX_LETTERS] = {0};
    const Net *net = program->optimizer->net;
    if (step->node == &program->optimizer->nodes.at[program->clip]) {
        in[0] = operand_at(rank, &step->operand[0]);
        out[0] = operand_at(rank, &step->operand[1]);
        eval_node(net, program->optimizer, step->node, in, out, extent, origin, NULL);
        return;
    }
    Node node = *step->node;
    if (step->node == &program->optimizer->nodes.at[program->sign])
        node.attrs.sign = (Attr_sign){
            .rate = stage->groups.at[stage->buckets.at[step->bucket].group].rate, .linear = 1};
    else if (!step->decay)
        node.attrs.adamw.decay = 0;
    Arena *scratch = machine_scratch(machine);
    for (int k = 0; k < node.ins; k++)
        in[k] = operand_at(rank, &step->operand[k]);
    for (int k = 0; k < node.outs; k++)
        out[k] = ARENA_ARRAY(scratch, double, step->count);
    eval_node(net, program->optimizer, &node, in, out, extent, origin, NULL);
    for (int k = 0; k < node.outs; k++) {
        /* the weight, in place or into the slot of its next version */
        int to = step->operand[k].write ? k : step->operands - 1;
        memcpy(operand_at(rank, &step->operand[to]), out[k], (size_t)step->count * WIDTH);
    }
}

static void run_load(Machine *machine, Rank *rank, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    const EvalBatch *batch = step_batch(machine, step);
    Net net = *machine->program->net;
    if (site_hits(machine, MUTATE_RUN, step))
        net.runs = 0;
    for (int k = 0; k < step->operands; k++) {
        const Copy *copy = step->operand[k].copy;
        for (int i = 0; i < stage->links; i++) {
            const Body *body = stage->link[i].body;
            if (copy < body->copies.at || copy >= body->copies.at + body->copies.n)
                continue;
            BlockMap map = machine_block(machine, body, copy, rank->coordinate);
            map.net = &net;
            double *to = operand_at(rank, &step->operand[k]);
            for (int64_t e = 0; e < copy->elements; e++)
                to[e] = batch->data[body->graph->values.at[copy->value].out][block_index(&map, e)];
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

/* The block that a sum can least be without: `own` and rows without tokens leave zeros in others.
 */
static int loudest(double *const *block, int n, int64_t elements)
{
    int loud = 0;
    double most = 0;
    for (int k = 0; k < n; k++) {
        double size = 0;
        for (int64_t e = 0; e < elements; e++)
            size += fabs(block[k][e]);
        if (size > most) {
            most = size;
            loud = k;
        }
    }
    return loud;
}

bool step_is_routed(const Step *step)
{
    const Body *body = step->body;
    return step->bucket == NONE && step->kind == STEP_MOVE && step->inst &&
           move_is_routed(body->net, &body->graph->values.at[step->operand[0].copy->value],
                          step->move);
}

/* Rows that go by whom they name: what `me` has behind the move, from the blocks of all. */
static double *routed_result(Machine *machine, const Move *move, int n, int me, Rank *rank,
                             const Step *step, const double *const *from)
{
    const Body *body = step->body;
    const Copy *in = step->operand[0].copy, *out = step->operand[step->inst->ins].copy,
               *by = step->operand[step->inst->ins - 1].copy;
    const Value *value = &body->graph->values.at[in->value];
    int axis = value_routed_axis(body->net, value);
    const Dim *dim = &body->net->dims.at[value->dim[axis]];
    Route route = {.choice = operand_at(rank, &step->operand[step->inst->ins - 1]),
                   .rows = by->elements,
                   .named = body->net->dims.at[dim->among].extent / n,
                   .n = n,
                   .runs = route_runs(body->mesh, move, by->local, axis + 1)};
    bool back = move->from == axis;
    int64_t room = back ? in->local[axis] : out->local[axis];
    int64_t width = out->elements / (back ? by->elements / n : room);
    double *to = ARENA_ARRAY(machine->scratch, double, out->elements), blank = 0;
    if (body->net->exchange == EXCHANGE_PADDED) { /* padding is anything */
        route.message = room / n;
        route.turn = site_hits(machine, MUTATE_MEMBER, step);
        blank = NAN;
    }
    if (value->number == NUM_INDEX)
        blank = site_hits(machine, MUTATE_BEYOND, step) ? (double)(me * route.named) : -1;
    bool fits =
        back ? route_back(&route, me, from, width, room, to)
             : route_send(&route, me, from, move->kind == MOVE_SLICE, width, room, blank, to);
    if (!fits && !machine->fault)
        machine->fault = arena_printf(machine->arena, "no room for the rows of %s", in->name);
    return to;
}

/* One move of a whole group: all blocks are read before any result is written, so it may run in
 * place. */
static void run_group(Machine *machine, const Move *move, int n, Rank **member, Step **step)
{
    Arena *scratch = machine_scratch(machine);
    BlockShape shape = shape_of(step[0], &step[0]->operand[0]);
    int64_t elements = block_elements(&shape);
    bool routed = step_is_routed(step[0]);
    BlockShape after = block_after(&shape, move, n);
    int64_t made =
        routed ? step[0]->operand[step[0]->inst->ins].copy->elements : block_elements(&after);
    double *block[MAX_GROUP], *result[MAX_GROUP];
    for (int k = 0; k < n; k++) {
        block[k] = ARENA_ARRAY(scratch, double, elements);
        Operand operand = step[k]->operand[0];
        if (site_hits(machine, MUTATE_VERSION, step[k]))
            operand.address =
                next_version(&machine->program->stage[member[k]->stage], step[k], operand.address);
        memcpy(block[k], operand_at(member[k], &operand), (size_t)elements * WIDTH);
    }
    double *zeros = ARENA_ARRAY(scratch, double, elements);
    for (int64_t e = 0; machine->poisons && e < elements; e++)
        zeros[e] = NAN;
    for (int me = 0; me < n; me++) {
        const double *from[MAX_GROUP];
        Move own = *move;
        bool sums = move->kind == MOVE_ALL_REDUCE || move->kind == MOVE_REDUCE_SCATTER;
        for (int k = 0; k < n; k++) {
            from[k] = block[k];
            if (site_hits(machine, MUTATE_SKIP, step[0]) && move->kind != MOVE_OWN &&
                move->kind != MOVE_PAD)
                from[k] = k != me && (sums || machine->poisons) ? zeros : block[me];
            if (site_hits(machine, MUTATE_SHORT, step[0])) {
                int last = move->atoms.n - 1;
                bool alike = mesh_coordinate(machine_mesh(machine), member[k]->coordinate,
                                             move->atoms.at[last]) ==
                             mesh_coordinate(machine_mesh(machine), member[me]->coordinate,
                                             move->atoms.at[last]);
                bool lost =
                    move->atoms.n > 1 ? !alike : k == (sums ? loudest(block, n, elements) : 0);
                if (lost || move->kind == MOVE_ROTATE) /* each block has one taker: all are lost */
                    from[k] = zeros;
            }
        }
        if (site_hits(machine, MUTATE_SKIP, step[0]) && move->kind == MOVE_ALL_REDUCE &&
            move->monoid == MONOID_MAX)
            for (int k = 0; k < n; k++)
                from[k] = block[me];
        int order_me = move->kind == MOVE_PERMUTE
                           ? list_index(machine_mesh(machine), &move->order, member[me]->coordinate)
                           : me;
        if (site_hits(machine, MUTATE_TURN, step[0]))
            own.by = -own.by;
        result[me] = routed ? routed_result(machine, move, n, me, member[me], step[me], from)
                            : ARENA_ARRAY(scratch, double, made);
        if (routed)
            continue;
        if (move->kind == MOVE_OWN && site_hits(machine, MUTATE_OWN, step[0]))
            memcpy(result[me], block[me], (size_t)elements * WIDTH);
        else
            block_move(&shape, &own, n, me, order_me, from, result[me]);
        if (site_hits(machine, MUTATE_AVERAGE, step[0]))
            for (int64_t e = 0; e < block_elements(&after); e++)
                result[me][e] /= n;
    }
    for (int k = 0; k < n; k++)
        memcpy(operand_at(member[k], &step[k]->operand[step[k]->operands - 1]), result[k],
               (size_t)made * WIDTH);
}

static void run_message(Machine *machine, Rank *from, Step *send, Rank *to, Step *recv)
{
    if (site_hits(machine, MUTATE_PEER, recv)) {
        const Mesh *mesh = machine_mesh(machine);
        AtomSet used = place_used(&send->operand[0].copy->place);
        for (int c = 0; c < machine->per_stage; c++) { /* any coordinate that holds another block */
            bool differs = false;
            for (int a = 0; a < mesh->n; a++)
                differs |= (used >> a & 1) && mesh_coordinate(mesh, c, a) !=
                                                  mesh_coordinate(mesh, from->coordinate, a);
            if (differs) {
                from = machine_rank(machine, from->stage, c);
                break;
            }
        }
    }
    double *target = operand_at(to, &recv->operand[0]);
    size_t bytes = (size_t)send->operand[0].bytes;
    const double *source = operand_at(from, &send->operand[0]);
    double **stale = &to->stale[2 * recv->boundary + (int)recv->message];
    if (site_hits(machine, MUTATE_STALE, recv) && *stale)
        source = *stale;
    if (machine->site && machine->site->kind == MUTATE_STALE) {
        double *now = ARENA_ARRAY(machine->arena, double, bytes / WIDTH);
        memcpy(now, operand_at(from, &send->operand[0]), bytes);
        *stale = now;
    }
    memmove(target, source, bytes);
}

void machine_perform(Machine *machine, Rank **member, Step **step, int n)
{
    static const Move sum = {
        .kind = MOVE_ALL_REDUCE, .from = NONE, .to = NONE, .monoid = MONOID_SUM};
    switch (step[0]->kind) {
    case STEP_LOAD:
        run_load(machine, member[0], step[0]);
        break;
    case STEP_KERNEL:
        if (step[0]->inst && inst_idle(step[0]->body, step[0]->inst, member[0]->coordinate))
            skip_kernel(member[0], step[0]);
        else if (step[0]->inst)
            machine_kernel(machine, member[0], step[0]);
        else
            run_optimizer(machine, member[0], step[0]);
        break;
    case STEP_MERGE:
        run_merge(member[0], step[0]);
        break;
    case STEP_ACCUMULATE:
        run_accumulate(machine, member[0], step[0]);
        break;
    case STEP_MOVE:
        if (step_is_comm(step[0])) {
            Move move = step[0]->inst ? *step[0]->move : flat_move(step[0]->move);
            run_group(machine, &move, n, member, step);
        } else {
            /* a local move: its group is this rank alone, its index from the whole group */
            const Move *move = step[0]->move;
            int count = list_extent(machine_mesh(machine), &move->atoms);
            int me = list_index(machine_mesh(machine), &move->atoms, member[0]->coordinate);
            BlockShape shape = shape_of(step[0], &step[0]->operand[0]);
            const double *from[MAX_GROUP];
            for (int k = 0; k < count; k++)
                from[k] = operand_at(member[0], &step[0]->operand[0]);
            if (step_is_routed(step[0])) {
                const Operand *out = &step[0]->operand[step[0]->operands - 1];
                (void)machine_scratch(machine);
                const double *made =
                    routed_result(machine, move, count, me, member[0], step[0], from);
                memcpy(operand_at(member[0], out), made, (size_t)out->bytes);
                break;
            }
            if (move->kind == MOVE_OWN && site_hits(machine, MUTATE_OWN, step[0]))
                me = 0;
            block_move(&shape, move, count, me, me, from,
                       operand_at(member[0], &step[0]->operand[1]));
        }
        break;
    case STEP_CLEAR:
        run_clear(member[0], step[0]);
        break;
    case STEP_SEND:
    case STEP_RECV:
        run_message(machine, member[0], step[0], member[1], step[1]);
        break;
    case STEP_OWN_LOSS: {
        double loss = *operand_at(member[0], &step[0]->operand[0]);
        bool owner = step[0]->count > 0 || site_hits(machine, MUTATE_OWN, step[0]);
        *operand_at(member[0], &step[0]->operand[1]) = owner ? loss : 0;
        break;
    }
    case STEP_TIED:
    case STEP_WORLD:
        run_group(machine, &sum, n, member, step);
        if (step[0]->kind == STEP_WORLD)
            machine_world(machine, step[0], operand_at(member[0], &step[0]->operand[1]));
        break;
    case STEP_COPY:
        machine_copy(machine, member[0], step[0]);
        break;
    case STEP_COUNT:
        BUG("no such step");
    }
}
