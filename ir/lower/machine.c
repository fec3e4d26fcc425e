/* machine.c - the memory of all ranks: arenas, parameters scattered and compared. */
#include "ir/lower/machine.h"
#include "ir/lower/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lower/home.h"

/* What is kept of kernels at most. */
static const int64_t RECALLED_BYTES = (int64_t)512 << 20;

const Mesh *machine_mesh(const Machine *machine)
{
    return &machine->program->plan->mesh;
}

Rank *machine_rank(const Machine *machine, int stage, int coordinate)
{
    return &machine->rank[stage * machine->per_stage + coordinate];
}

static void free_scratch(void *scratch)
{
    arena_free(scratch);
}

int64_t memory_elements(const StageProgram *stage, Memory memory)
{
    return (memory == MEMORY_HBM ? stage->arena_bytes : stage->far_bytes[memory]) / WIDTH;
}

double *rank_at(const Rank *rank, int64_t address)
{
    return rank->memory[address_memory(address)] + address_offset(address) / WIDTH;
}

Arena *machine_scratch(Machine *machine)
{
    arena_reset(machine->scratch);
    return machine->scratch;
}

double machine_relative(double got, double want)
{
    return fabs(got - want) / (fabs(want) > 1e-6 ? fabs(want) : 1e-6);
}

void machine_expect(Machine *machine, const double *norm, double tolerance)
{
    machine->expected_norm = norm;
    machine->tolerance = tolerance;
}

void machine_compare_norm(Machine *machine, int round)
{
    if (!machine->expected_norm)
        return;
    double got = sqrt(machine->norm2[round]), want = machine->expected_norm[round];
    machine->differs |= !(machine_relative(got, want) <= machine->tolerance);
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
        for (int m = 0; m < MEMORY_COUNT; m++) {
            int64_t elements = memory_elements(&program->stage[rank->stage], (Memory)m);
            rank->memory[m] = ARENA_ARRAY(arena, double, elements + 1);
            rank->touched[m] = ARENA_ARRAY(arena, unsigned char, elements + 1);
        }
        rank->stale = ARENA_ARRAY(arena, double *, 2 * program->chunks + 2);
    }
    machine->recall = recall_new(arena, RECALLED_BYTES);
    machine->scratch = arena_new("step");
    arena_defer(arena, free_scratch, machine->scratch);
    machine_find_sites(machine);
    return machine;
}

/* ---- parameters
 * ---------------------------------------------------------------------------------------- */

BlockMap machine_block(const Machine *machine, const Body *body, const Copy *copy, int coordinate)
{
    const Net *net = body->net;
    const Value *value = &body->graph->values.at[copy->value];
    BlockMap map = {.net = net, .axes = value->axes};
    coordinate = mesh_turned(machine_mesh(machine), &copy->ring, coordinate, -copy->turn);
    for (int a = 0; a < value->axes; a++) {
        map.dim[a] = value->dim[a];
        map.local[a] = copy->local[a];
        map.whole[a] = net->dims.at[value->dim[a]].extent;
        map.origin[a] =
            place_origin(machine_mesh(machine), net, value, &copy->place, a, coordinate);
    }
    return map;
}

int64_t block_index(const BlockMap *map, int64_t local)
{
    int64_t index = 0, scale = 1;
    for (int a = map->axes - 1; a >= 0; a--) {
        index +=
            dim_position(map->net, map->dim[a], map->origin[a] + local % map->local[a]) * scale;
        local /= map->local[a];
        scale *= map->whole[a];
    }
    return index;
}

/* Where element i of a member is in a rank's arena: its weights' home, or NULL where another rank
 * holds it. */
static double *home_weight(const Machine *machine, Rank *rank, const GroupMember *member,
                           const Bucket *bucket, int version, int64_t i)
{
    const Program *program = machine->program;
    const Group *group = &program->stage[rank->stage].groups.at[bucket->group];
    int64_t at = member->offset + i,
            begin = bucket_block_begin(program, bucket, &group->weight_share, rank->coordinate),
            count = bucket->elements / list_extent(machine_mesh(machine), &group->weight_share);
    if (at < begin || at >= begin + count)
        return NULL;
    int64_t base = weight_base(program, group, bucket, rank->coordinate) +
                   version_offset(&program->stage[rank->stage], version);
    return rank_at(rank, base + at * WIDTH);
}

typedef void VisitWeight(void *context, const GroupMember *member, double *at, int64_t index);

/* Every weight of a version that a rank holds at its home, of one parameter or of all (NONE), with
 * its index in the whole parameter. */
static void each_weight(const Machine *machine, Rank *rank, int net_param, int version,
                        VisitWeight *visit, void *context)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    for (int g = 0; g < stage->groups.n; g++)
        for (int k = 0; k < stage->groups.at[g].members.n; k++) {
            const GroupMember *member = &stage->groups.at[g].members.at[k];
            if (net_param != NONE && member->net_param != net_param)
                continue;
            const StageLink *link = &stage->link[member->link];
            const Body *body = link->body;
            BlockMap map = machine_block(
                machine, body, &body->copies.at[body->param_copy[member->param]], rank->coordinate);
            const Bucket *bucket = &stage->buckets.at[link->bucket[member->param]];
            for (int64_t i = 0; i < member->elements; i++) {
                double *at = home_weight(machine, rank, member, bucket, version, i);
                if (at)
                    visit(context, member, at, block_index(&map, i));
            }
        }
}

static void set_weight(void *context, const GroupMember *member, double *at, int64_t index)
{
    const double *const *param = context;
    *at = param[member->net_param][index];
}

static void clear(Rank *rank, int64_t address, int64_t bytes)
{
    memset(rank_at(rank, address), 0, (size_t)bytes);
}

void machine_set_params(Machine *machine, const double *const *param)
{
    const Mesh *mesh = machine_mesh(machine);
    for (int r = 0; r < machine->ranks; r++) {
        Rank *rank = &machine->rank[r];
        const StageProgram *stage = &machine->program->stage[rank->stage];
        for (int m = 0; m < MEMORY_COUNT; m++) {
            int64_t elements = memory_elements(stage, (Memory)m);
            for (int64_t i = 0; i < elements; i++)
                rank->memory[m][i] = NAN;
            memset(rank->touched[m], 0, (size_t)elements);
        }
        clear(rank, stage->scalars, 64 * SCALAR_COUNT);
        *rank_at(rank, stage->scalars + 64 * SCALAR_COEF) = 1;
        for (int g = 0; g < stage->groups.n; g++) {
            const Group *group = &stage->groups.at[g];
            /* padding between members is zero from the start, and stays so */
            clear(rank, group->weight, group->weight_elements * WIDTH);
            if (!group->far_gradients) /* there all is written before it is read */
                clear(rank, group->gradient,
                      home_bytes(group, list_extent(mesh, &group->gradient_share), WIDTH));
            clear(rank, group->moment1, group->state_elements * WIDTH);
            if (group->moment2 != NONE)
                clear(rank, group->moment2, group->state_elements * WIDTH);
        }
        clear(rank, stage->buffers, stage->buffers_bytes);
        each_weight(machine, rank, NONE, 0, set_weight, (void *)param);
        for (int m = 0; m < MEMORY_COUNT; m++) {
            int64_t elements = memory_elements(stage, (Memory)m);
            if (!rank->first[m])
                rank->first[m] = ARENA_ARRAY(machine->arena, double, elements + 1);
            memcpy(rank->first[m], rank->memory[m], (size_t)elements * WIDTH);
        }
    }
}

void machine_restart(Machine *machine)
{
    for (int r = 0; r < machine->ranks; r++) {
        Rank *rank = &machine->rank[r];
        for (int m = 0; m < MEMORY_COUNT; m++) {
            size_t elements =
                (size_t)memory_elements(&machine->program->stage[rank->stage], (Memory)m);
            memcpy(rank->memory[m], rank->first[m], elements * WIDTH);
            memset(rank->touched[m], 0, elements);
        }
    }
}

typedef struct ParamError {
    const double *want;
    double scale, worst;
} ParamError;

static void compare_weight(void *context, const GroupMember *member, double *at, int64_t index)
{
    ParamError *error = context;
    (void)member;
    double off = fabs(*at - error->want[index]) / error->scale;
    error->worst = isnan(off) ? INFINITY : off > error->worst ? off : error->worst;
}

double machine_param_error(const Machine *machine, int net_param, const double *want)
{
    ParamError error = {want, 1e-30, 0};
    int64_t elements = eval_param_elements(machine->program->net, net_param);
    for (int64_t i = 0; i < elements; i++)
        error.scale = fabs(want[i]) > error.scale ? fabs(want[i]) : error.scale;
    for (int r = 0; r < machine->ranks; r++)
        each_weight(machine, &machine->rank[r], net_param, machine->rounds, compare_weight, &error);
    return error.worst;
}

typedef struct Gathered {
    double *whole;
    bool *seen, equal;
} Gathered;

static void gather_weight(void *context, const GroupMember *member, double *at, int64_t index)
{
    Gathered *all = context;
    (void)member;
    all->equal = all->equal && (!all->seen[index] || memcmp(&all->whole[index], at, WIDTH) == 0);
    all->seen[index] = true;
    all->whole[index] = *at;
}

bool machine_param(const Machine *machine, int net_param, double *ret)
{
    int64_t elements = eval_param_elements(machine->program->net, net_param);
    Arena *scratch = arena_new("gathered");
    Gathered all = {ret, ARENA_ARRAY(scratch, bool, elements), true};
    for (int64_t i = 0; i < elements; i++)
        ret[i] = NAN;
    for (int r = 0; r < machine->ranks; r++)
        each_weight(machine, &machine->rank[r], net_param, machine->rounds, gather_weight, &all);
    arena_free(scratch);
    return all.equal;
}

Machine *machine_new_evaluating(Arena *arena, const Program *program)
{
    Machine *machine = machine_new(arena, program);
    machine->evaluates = true;
    return machine;
}

void machine_world(Machine *machine, const Step *step, const double *sums)
{
    int losses = net_losses(machine->program->net);
    for (int k = 0; step->evaluates && k < losses; k++)
        machine->evaluated[step->round * losses + k] = sums[k];
    if (step->evaluates)
        return;
    for (int k = 0; k < losses; k++)
        machine->loss[step->round * losses + k] = sums[loss_in_pair(k)];
    machine->norm2[step->round] = sums[1];
    machine_compare_norm(machine, step->round);
}

bool machine_flows(const Machine *machine)
{
    return machine->program->flows;
}

double machine_evaluated(const Machine *machine, int round, int number)
{
    return machine->evaluated[round * net_losses(machine->program->net) + number];
}

double machine_loss(const Machine *machine, int round, int number)
{
    return machine->loss[round * net_losses(machine->program->net) + number];
}

double machine_norm2(const Machine *machine, int round)
{
    return machine->norm2[round];
}

int64_t machine_laid_out(const Machine *machine, int stage, Memory memory)
{
    return memory_elements(&machine->program->stage[stage], memory) * WIDTH;
}

int64_t machine_touched(const Machine *machine, int stage, Memory memory)
{
    int64_t most = 0;
    for (int c = 0; c < machine->per_stage; c++) {
        const Rank *rank = machine_rank(machine, stage, c);
        int64_t elements = memory_elements(&machine->program->stage[stage], memory);
        while (elements > 0 && !rank->touched[memory][elements - 1])
            elements--;
        most = elements * WIDTH > most ? elements * WIDTH : most;
    }
    return most;
}
