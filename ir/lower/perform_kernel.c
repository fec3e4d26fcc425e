/* perform_kernel.c - what a kernel does: its nodes on a rank's blocks, or what they gave before. */
#include <string.h>

#include "ir/lower/layout.h"
#include "ir/lower/machine.h"
#include "ir/lower/recall.h"
#include "ir/lower/state.h"
#include "ir/lower/turns.h"

static int64_t next_slot(const Machine *machine, const Rank *rank, const Step *step, int copy,
                         int64_t address)
{
    int64_t offset;
    const Ring *ring = copy_ring(machine->program, &machine->program->stage[rank->stage],
                                 step->link, copy, &offset);
    int slot = ring_slot(ring, micro_number(machine->program, step->round, step->micro),
                         body_list_with(step->body, step->inst) > 0);
    return address + ring->stride * ((slot + 1) % ring->n - slot);
}

int64_t next_version(const StageProgram *stage, const Step *step, int64_t address)
{
    int version = stage_version(stage, step->round);
    return address + version_offset(stage, version + 1) - version_offset(stage, version);
}

/* The array of one copy of a kernel: an operand of the Step, or a fused value in scratch memory. */
static double *copy_block(const Machine *machine, Rank *rank, const Step *step, int copy,
                          Arena *scratch, double **fused)
{
    const Inst *inst = step->inst;
    for (int k = 0; k < inst->outs; k++)
        if (inst->out[k] == copy)
            return operand_at(rank, &step->operand[inst->ins + k]);
    for (int k = 0; k < inst->ins; k++)
        if (inst->in[k] == copy) {
            Operand operand = step->operand[k];
            if (site_hits(machine, MUTATE_SLOT, step) && machine->site->operand == k)
                operand.address = next_slot(machine, rank, step, copy, operand.address);
            if (site_hits(machine, MUTATE_VERSION, step) && machine->site->operand == k)
                operand.address =
                    next_version(&machine->program->stage[rank->stage], step, operand.address);
            return operand_at(rank, &operand);
        }
    CHECK(step->body->copies.at[copy].home == HOME_FUSED);
    if (!fused[copy])
        fused[copy] = ARENA_ARRAY(scratch, double, step->body->copies.at[copy].elements);
    return fused[copy];
}

/* Narrows a local block to what one turn of a ring sees of it; the axis, or NONE where it sees all
 * of it. */
static int turn_block(const Machine *machine, const Step *step, int i, const int8_t *letters,
                      int coordinate, BlockMap *map)
{
    const Mesh *mesh = machine_mesh(machine);
    const NodeChoice *choice = &step->body->plan->choice[step->inst->node[i]];
    AtomList ring = node_ring(mesh, choice);
    int axis = ring_block_axis(&ring, choice, letters, map->axes);
    if (axis == NONE)
        return NONE;
    int rank = mesh_turned(mesh, &ring, coordinate, -step->inst->turn);
    map->local[axis] /= list_extent(mesh, &ring);
    map->origin[axis] += map->local[axis] * list_index(mesh, &ring, rank);
    return axis;
}

/* The block of one turn, dense, of a copy's memory; or, `back`, into it. */
static void move_block(const Machine *machine, const Step *step, int i, const int8_t *letters,
                       int copy, int coordinate, bool back, double *memory, double *dense)
{
    BlockMap all = machine_block(machine, step->body, &step->body->copies.at[copy], coordinate),
             part = all;
    int axis = turn_block(machine, step, i, letters, coordinate, &part);
    int64_t outer = 1, inner = 1;
    for (int a = 0; a < all.axes; a++)
        *(a < axis ? &outer : &inner) *= all.local[a];
    int64_t row = inner / all.local[axis] * part.local[axis],
            at = inner / all.local[axis] * (part.origin[axis] - all.origin[axis]);
    for (int64_t o = 0; o < outer; o++)
        memcpy(back ? memory + o * inner + at : dense + o * row,
               back ? dense + o * row : memory + o * inner + at, (size_t)row * sizeof *dense);
}

static bool sees_block(const Machine *machine, const Step *step, int i, const int8_t *letters,
                       int copy)
{
    const NodeChoice *choice = &step->body->plan->choice[step->inst->node[i]];
    AtomList ring = node_ring(machine_mesh(machine), choice);
    int axes = step->body->graph->values.at[step->body->copies.at[copy].value].axes;
    return ring_block_axis(&ring, choice, letters, axes) != NONE;
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
        BlockMap map = machine_block(machine, body, &body->copies.at[id], coordinate);
        turn_block(machine, step, i, letters, coordinate, &map);
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

static bool accumulates(const Step *step, const Copy *copy, int k)
{
    return (copy->home == HOME_ACC && !step->first) || (step->inst->adds >> k & 1);
}

const EvalBatch *step_batch(const Machine *machine, const Step *step)
{
    return &machine->batch[step->round * machine->program->plan->micro_batches + step->micro];
}

void set_scalars(const Machine *machine, Rank *rank, const Step *step)
{
    double *cell = rank_at(rank, machine->program->stage[rank->stage].scalars);
    enum { CELL = 64 / WIDTH };
    cell[CELL * SCALAR_LR] = machine->lr;
    cell[CELL * SCALAR_STEP] = step->round + 1;
    cell[CELL * SCALAR_STEP + 1] = machine->program->plan->job.decay;
}

static EvalDraw step_draw(const Machine *machine, const Rank *rank, const Step *step)
{
    if (step->link == NONE)
        return (EvalDraw){0, 0, 0, false};
    const EvalBatch *batch = step_batch(machine, step);
    const StageLink *link = &machine->program->stage[rank->stage].link[step->link];
    return (EvalDraw){batch->seed, link->link, batch->sample, step->evaluates};
}

static void evaluate(Machine *machine, Rank *rank, const Step *step, const EvalDraw *draw)
{
    const Body *body = step->body;
    Arena *scratch = machine_scratch(machine);
    double **fused = ARENA_ARRAY(scratch, double *, body->copies.n);
    for (int i = 0; i < step->inst->nodes; i++) {
        const Node *node = &body->graph->nodes.at[step->inst->node[i]];
        const double *in[MAX_IN] = {0};
        double *out[MAX_OUT] = {0}, *target[MAX_OUT] = {0};
        int64_t extent[MAX_LETTERS] = {0}, origin[MAX_LETTERS] = {0};
        fill_letters(machine, step, i, rank->coordinate, extent, origin);
        for (int k = 0; k < node->ins; k++) {
            int copy = step->inst->bind_in[i][k];
            double *memory = copy_block(machine, rank, step, copy, scratch, fused);
            in[k] = memory;
            if (!sees_block(machine, step, i, node->sig.in[k], copy))
                continue;
            double *dense = ARENA_ARRAY(scratch, double, body->copies.at[copy].elements);
            move_block(machine, step, i, node->sig.in[k], copy, rank->coordinate, false, memory,
                       dense);
            in[k] = dense;
        }
        for (int k = 0; k < node->outs; k++) {
            const Copy *copy = &body->copies.at[step->inst->bind_out[i][k]];
            target[k] = copy_block(machine, rank, step, step->inst->bind_out[i][k], scratch, fused);
            out[k] = ARENA_ARRAY(scratch, double, copy->elements);
        }
        Net net = *body->net;
        if (site_hits(machine, MUTATE_RUN, step) && machine->site->node == step->inst->node[i])
            net.runs = 0;
        eval_node(&net, body->graph, node, in, out, extent, origin, draw);
        for (int k = 0; k < node->outs; k++) {
            int id = step->inst->bind_out[i][k];
            const Copy *copy = &body->copies.at[id];
            if (sees_block(machine, step, i, node->sig.out[k], id)) {
                move_block(machine, step, i, node->sig.out[k], id, rank->coordinate, true,
                           target[k], out[k]);
                continue;
            }
            bool adds = accumulates(step, copy, k);
            for (int64_t e = 0; e < copy->elements; e++)
                target[k][e] = adds ? target[k][e] + out[k][e] : out[k][e];
        }
    }
}

/* What a kernel of a run that nothing broke read, and what was in its results behind it. */
struct Known {
    EvalDraw draw;
    const double *read[2 * MAX_OPERANDS]; /* by operand of the Step; NULL: it did not matter */
    const double *made[MAX_OPERANDS];     /* by output */
};

/* A result may keep some of what was there before. */
static bool keeps_some(const Machine *machine, const Step *step, int out)
{
    const Inst *inst = step->inst;
    for (int i = 0; i < inst->nodes; i++) {
        const Node *node = &step->body->graph->nodes.at[inst->node[i]];
        for (int k = 0; k < node->outs; k++)
            if (inst->bind_out[i][k] == inst->out[out] &&
                (accumulates(step, &step->body->copies.at[inst->out[out]], k) ||
                 sees_block(machine, step, i, node->sig.out[k], inst->out[out])))
                return true;
    }
    return false;
}

static const double *keep(const Machine *machine, Rank *rank, const Operand *operand)
{
    return recall_keep(machine->recall, operand_at(rank, operand), operand->bytes / WIDTH);
}

/* Before it runs; NULL where there is no room. */
static Known *note_reads(const Machine *machine, Rank *rank, const Step *step, const EvalDraw *draw)
{
    Known *known = ARENA_NEW(machine->arena, Known);
    known->draw = *draw;
    for (int k = 0; k < step->inst->ins + step->inst->outs; k++) {
        if (k >= step->inst->ins && !keeps_some(machine, step, k - step->inst->ins))
            continue;
        known->read[k] = keep(machine, rank, &step->operand[k]);
        if (!known->read[k])
            return NULL;
    }
    return known;
}

/* Behind it; false where there is no room. */
static bool note_results(const Machine *machine, Rank *rank, const Step *step, Known *known)
{
    bool room = true;
    for (int k = 0; k < step->inst->outs && room; k++) {
        known->made[k] = keep(machine, rank, &step->operand[step->inst->ins + k]);
        room = known->made[k] != NULL;
    }
    return room;
}

static bool reads_again(Rank *rank, const Step *step, const EvalDraw *draw, const Known *known)
{
    bool equal = draw->seed == known->draw.seed && draw->layer == known->draw.layer &&
                 draw->sample == known->draw.sample && draw->off == known->draw.off;
    for (int k = 0; k < step->inst->ins + step->inst->outs && equal; k++)
        equal = !known->read[k] || memcmp(operand_at(rank, &step->operand[k]), known->read[k],
                                          (size_t)step->operand[k].bytes) == 0;
    return equal;
}

void machine_kernel(Machine *machine, Rank *rank, const Step *step)
{
    const EvalDraw draw = step_draw(machine, rank, step);
    if (step->link == NONE)
        set_scalars(machine, rank, step);
    bool broken = machine->site && machine->site->inst == step->inst;
    int index = rank->queue[step->stream].at[rank->head[step->stream]];
    Known **known = &rank->known[index], *noted = NULL;
    if (*known && !broken && reads_again(rank, step, &draw, *known)) {
        for (int k = 0; k < step->inst->outs; k++) {
            const Operand *operand = &step->operand[step->inst->ins + k];
            memcpy(operand_at(rank, operand), (*known)->made[k], (size_t)operand->bytes);
        }
        return;
    }
    if (!*known && !machine->site)
        noted = note_reads(machine, rank, step, &draw);
    evaluate(machine, rank, step, &draw);
    if (noted && note_results(machine, rank, step, noted))
        *known = noted;
}
