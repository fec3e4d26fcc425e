/* state.c - homes, slots and hops of the optimizer's state. */
#include "ir/lower/state.h"

#include "ir/base/num.h"

const char *const field_text[FIELD_COUNT] = {"first moments", "second moments", "masters"};

int64_t group_field(const Group *group, StateField field)
{
    return field == FIELD_MOMENT1   ? group->moment1
           : field == FIELD_MOMENT2 ? group->moment2
                                    : group->master;
}

bool group_steps(const Group *group, StateField field)
{
    return group_field(group, field) != NONE && (group->rate == 0 || field == FIELD_MASTER);
}

int state_fields(const Program *program)
{
    return FIELD_COUNT - !program->recipe->has_master;
}

static int width_of(const Program *program)
{
    return dtype_bytes(program->recipe->master);
}

int64_t state_field_bytes(Memory home, int64_t elements, int width)
{
    /* what lives in a file is read and written in its grains, on all of its way */
    int64_t grain = home == MEMORY_NVME ? FILE_GRAIN : 1;
    return (elements * width + grain - 1) / grain * grain;
}

Memory state_home(const StageProgram *stage, int b)
{
    return stage->groups.at[stage->buckets.at[b].group].state_home;
}

int64_t state_bytes(const Program *program, const StageProgram *stage, int b)
{
    return state_field_bytes(state_home(stage, b), stage->buckets.at[b].share_elements,
                             width_of(program));
}

int state_slots(Memory memory, int buckets)
{
    int most = 3 + 2 * (int)memory; /* under way in, at the update, under way out; one of slack */
    return buckets < most ? buckets : most;
}

int64_t state_address(const Program *program, const StageProgram *stage, int b, StateField field,
                      Memory memory)
{
    const Bucket *bucket = &stage->buckets.at[b];
    const HopWay *way = &stage->state_way;
    if (memory == state_home(stage, b))
        return group_field(&stage->groups.at[bucket->group], field) +
               bucket->share_begin * width_of(program);
    int slot = way->turn[memory][b] % state_slots(memory, way->n[memory]);
    return stage->state_slot[memory] +
           ((int64_t)slot * state_fields(program) + field) * stage->state_slot_bytes[memory];
}

/* ---- layout ---- */

/* Buckets stand from the end of a group to its begin; shares of files begin at a grain. */
static void align_shares(const Program *program, StageProgram *stage, int g)
{
    Group *group = &stage->groups.at[g];
    group->state_elements = group->share_elements;
    if (group->state_home != MEMORY_NVME)
        return;
    group->state_elements = 0;
    for (int b = stage->buckets.n - 1; b >= 0; b--) {
        if (stage->buckets.at[b].group != g)
            continue;
        stage->buckets.at[b].share_begin = group->state_elements;
        group->state_elements += state_bytes(program, stage, b) / width_of(program);
    }
}

/* Slots of a memory for what passes through it, from `at` on; where they end. */
static int64_t place_slots(const Program *program, StageProgram *stage, Memory memory, int64_t at)
{
    const HopWay *way = &stage->state_way;
    int64_t *bytes = &stage->state_slot_bytes[memory];
    for (int i = 0; i < way->n[memory]; i++)
        *bytes = num_larger(*bytes, num_align64(state_bytes(program, stage, way->at[memory][i])));
    stage->state_slot[memory] = memory_address(memory, at);
    return at + state_slots(memory, way->n[memory]) * state_fields(program) * *bytes;
}

int64_t state_layout(const Program *program, StageProgram *stage, int64_t at)
{
    Memory *home = ARENA_ARRAY(program->arena, Memory, stage->buckets.n + 1);
    for (int b = 0; b < stage->buckets.n; b++)
        home[b] = state_home(stage, b);
    stage->state_way = way_new(program->arena, home, stage->buckets.n);
    for (int g = 0; g < stage->groups.n; g++) {
        Group *group = &stage->groups.at[g];
        Memory memory = group->state_home;
        int64_t *end = memory == MEMORY_HBM ? &at : &stage->far_bytes[memory];
        align_shares(program, stage, g);
        int64_t bytes = num_align64(group->state_elements * width_of(program));
        group->moment1 = memory_address(memory, *end);
        *end += bytes;
        group->moment2 = group->matrix == NONE ? memory_address(memory, *end) : NONE;
        *end += group->matrix == NONE ? bytes : 0; /* a matrix has one moment */
        if (program->recipe->has_master) {
            group->master = memory_address(memory, *end);
            *end += bytes;
        }
    }
    at = place_slots(program, stage, MEMORY_HBM, at);
    for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++) { /* files are read to grains of memory */
        int64_t *end = &stage->far_bytes[m];
        if (stage->state_way.n[m] > 0)
            *end = place_slots(program, stage, (Memory)m,
                               (*end + FILE_GRAIN - 1) / FILE_GRAIN * FILE_GRAIN);
    }
    return at;
}

/* ---- hops ---- */

/* Through one memory, around the `at`-th of n that pass it. */
static int hops_through(Memory near, int n, int at, bool in, Hop *ret)
{
    int from = in ? at == NONE ? 0 : at + 1 + (int)near : at - (int)near;
    int to = in ? at == NONE ? (int)near : from : at == n - 1 ? at : from;
    int hops = 0;
    for (int b = from < 0 ? 0 : from; b <= to && b < n; b++)
        ret[hops++] = (Hop){b, near, in};
    CHECK(hops <= MAX_HOPS / MEMORY_COUNT);
    return hops;
}

/* Of what comes in, the farthest memory first. */
static Memory memory_in_turn(int memories, int k, bool in)
{
    return (Memory)(in ? memories - 1 - k : k);
}

int hops_around(Memory home, int buckets, int at, bool in, Hop *ret)
{
    int n = 0;
    for (int k = 0; k < (int)home; k++)
        n += hops_through(memory_in_turn((int)home, k, in), buckets, at, in, ret + n);
    return n;
}

HopWay way_new(Arena *arena, const Memory *home, int n)
{
    HopWay way = {.n = {0}};
    for (int m = 0; m < MEMORY_COUNT; m++) {
        way.at[m] = ARENA_ARRAY(arena, int, n + 1);
        way.turn[m] = ARENA_ARRAY(arena, int, n + 1);
        for (int i = 0; i < n; i++) {
            way.turn[m][i] = (int)home[i] > m ? way.n[m] : NONE;
            if ((int)home[i] > m)
                way.at[m][way.n[m]++] = i;
        }
    }
    return way;
}

int way_hops(const HopWay *way, int at, bool in, Hop *ret)
{
    int n = 0;
    for (int k = 0; k < MEMORY_COUNT; k++) {
        Memory near = memory_in_turn(MEMORY_COUNT, k, in);
        int turn = at == NONE ? NONE : way->turn[near][at];
        int hops =
            at != NONE && turn == NONE ? 0 : hops_through(near, way->n[near], turn, in, ret + n);
        for (int i = n; i < n + hops; i++)
            ret[i].bucket = way->at[near][ret[i].bucket];
        n += hops;
    }
    return n;
}

/* An update reads and writes some field of the bucket's state. */
static bool is_stepped(const StageProgram *stage, int b)
{
    const Group *group = &stage->groups.at[stage->buckets.at[b].group];
    bool any = false;
    for (int f = 0; f < FIELD_COUNT; f++)
        any = any || group_steps(group, (StateField)f);
    return any;
}

int state_hops(const StageProgram *stage, int at, bool in, Hop *ret)
{
    int n = way_hops(&stage->state_way, at, in, ret), kept = 0;
    for (int i = 0; i < n; i++)
        if (is_stepped(stage, ret[i].bucket))
            ret[kept++] = ret[i];
    return kept;
}
