/* machine.c - the memory of all ranks: arenas, parameters scattered and compared. */
#include "ir/lower/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
        int64_t elements = program->stage[rank->stage].arena_bytes / WIDTH;
        rank->arena = ARENA_ARRAY(arena, double, elements);
        rank->touched = ARENA_ARRAY(arena, unsigned char, elements);
        rank->stale = ARENA_ARRAY(arena, double *, 2 * program->chunks + 2);
    }
    machine->scratch = arena_new("step");
    arena_defer(arena, free_scratch, machine->scratch);
    machine_find_sites(machine);
    return machine;
}

/* ---- parameters
 * ---------------------------------------------------------------------------------------- */

BlockMap machine_block(const Machine *machine, const Body *body, const Copy *copy, int coordinate)
{
    const Net *net = machine->program->net;
    const Value *value = &body->graph->values.at[copy->value];
    BlockMap map = {.axes = value->axes};
    coordinate = mesh_turned(machine_mesh(machine), &copy->ring, coordinate, -copy->turn);
    for (int a = 0; a < value->axes; a++) {
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
    *ret_map = machine_block(machine, body, &body->copies.at[body->param_copy[member->param]],
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
                    block[i] = param[group->members.at[k].net_param][block_index(&map, i)];
            }
        }
    }
}

/* Runs over what all ranks hold of one parameter. */
typedef struct Held {
    const Machine *machine;
    int net_param, rank, group, member; /* of the next one */
    BlockMap map;                       /* of this one */
    const double *block;
    int64_t elements;
} Held;

static bool held_next(Held *held)
{
    const Machine *machine = held->machine;
    for (; held->rank < machine->ranks; held->rank++, held->group = 0) {
        Rank *rank = &machine->rank[held->rank];
        const StageProgram *stage = &machine->program->stage[rank->stage];
        for (; held->group < stage->groups.n; held->group++, held->member = 0)
            while (held->member < stage->groups.at[held->group].members.n) {
                const Group *group = &stage->groups.at[held->group];
                const GroupMember *member = &group->members.at[held->member++];
                if (member->net_param != held->net_param)
                    continue;
                held->block = member_block(machine, rank, group, member, &held->map);
                held->elements = member->elements;
                return true;
            }
    }
    return false;
}

double machine_param_error(const Machine *machine, int net_param, const double *want)
{
    double worst = 0, scale = 1e-30;
    int64_t elements = eval_param_elements(machine->program->net, net_param);
    for (int64_t i = 0; i < elements; i++)
        scale = fabs(want[i]) > scale ? fabs(want[i]) : scale;
    for (Held held = {.machine = machine, .net_param = net_param}; held_next(&held);)
        for (int64_t i = 0; i < held.elements; i++) {
            double error = fabs(held.block[i] - want[block_index(&held.map, i)]) / scale;
            worst = isnan(error) ? INFINITY : error > worst ? error : worst;
        }
    return worst;
}

bool machine_param(const Machine *machine, int net_param, double *ret)
{
    int64_t elements = eval_param_elements(machine->program->net, net_param);
    Arena *scratch = arena_new("gathered");
    bool *seen = ARENA_ARRAY(scratch, bool, elements), equal = true;
    for (int64_t i = 0; i < elements; i++)
        ret[i] = NAN;
    for (Held held = {.machine = machine, .net_param = net_param}; held_next(&held);)
        for (int64_t i = 0; i < held.elements; i++) {
            int64_t at = block_index(&held.map, i);
            equal = equal && (!seen[at] || memcmp(&ret[at], &held.block[i], WIDTH) == 0);
            seen[at] = true;
            ret[at] = held.block[i];
        }
    arena_free(scratch);
    return equal;
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
        const Rank *rank = machine_rank(machine, stage, c);
        int64_t elements = machine->program->stage[stage].arena_bytes / WIDTH;
        while (elements > 0 && !rank->touched[elements - 1])
            elements--;
        most = elements * WIDTH > most ? elements * WIDTH : most;
    }
    return most;
}
