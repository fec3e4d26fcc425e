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

int64_t state_bytes(const Program *program, const Bucket *bucket)
{
    return state_field_bytes(program->plan->memory[KEPT_STATE], bucket->share_elements,
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
    const Group *group = &stage->groups.at[bucket->group];
    if (memory == program->plan->memory[KEPT_STATE])
        return group_field(group, field) + bucket->share_begin * width_of(program);
    int slot = b % state_slots(memory, stage->buckets.n);
    return stage->state_slot[memory] +
           ((int64_t)slot * state_fields(program) + field) * stage->state_slot_bytes;
}

bool state_travels(const Program *program, const StageProgram *stage, int b)
{
    const Group *group = &stage->groups.at[stage->buckets.at[b].group];
    bool any = false;
    for (int f = 0; f < FIELD_COUNT; f++)
        any = any || group_steps(group, (StateField)f);
    return any && program->plan->memory[KEPT_STATE] != MEMORY_HBM;
}

/* ---- layout ---- */

/* Buckets stand from the end of a group to its begin; shares of files begin at a grain. */
static void align_shares(const Program *program, StageProgram *stage, int g)
{
    Group *group = &stage->groups.at[g];
    group->state_elements = group->share_elements;
    if (program->plan->memory[KEPT_STATE] != MEMORY_NVME)
        return;
    group->state_elements = 0;
    for (int b = stage->buckets.n - 1; b >= 0; b--) {
        Bucket *bucket = &stage->buckets.at[b];
        if (bucket->group != g)
            continue;
        bucket->share_begin = group->state_elements;
        group->state_elements += state_bytes(program, bucket) / width_of(program);
    }
}

int64_t state_layout(const Program *program, StageProgram *stage, int64_t at)
{
    Memory home = program->plan->memory[KEPT_STATE];
    int64_t *end = home == MEMORY_HBM ? &at : &stage->far_bytes[home];
    for (int g = 0; g < stage->groups.n; g++) {
        Group *group = &stage->groups.at[g];
        align_shares(program, stage, g);
        int64_t bytes = num_align64(group->state_elements * width_of(program));
        group->moment1 = memory_address(home, *end);
        *end += bytes;
        group->moment2 = group->matrix == NONE ? memory_address(home, *end) : NONE;
        *end += group->matrix == NONE ? bytes : 0; /* a matrix has one moment */
        if (program->recipe->has_master) {
            group->master = memory_address(home, *end);
            *end += bytes;
        }
    }
    for (int b = 0; b < stage->buckets.n; b++)
        stage->state_slot_bytes = num_larger(
            stage->state_slot_bytes, num_align64(state_bytes(program, &stage->buckets.at[b])));
    for (int m = MEMORY_HBM; m < (int)home; m++) {
        int64_t *near = m == MEMORY_HBM ? &at : &stage->far_bytes[m];
        stage->state_slot[m] = memory_address((Memory)m, *near);
        *near += state_slots((Memory)m, stage->buckets.n) * state_fields(program) *
                 stage->state_slot_bytes;
    }
    return at;
}

/* ---- hops ---- */

int hops_around(Memory home, int buckets, int at, bool in, Hop *ret)
{
    int n = 0;
    for (int k = 0; k < (int)home; k++) {
        int near = in ? (int)home - 1 - k : k; /* of what comes in, the farthest first */
        int from = in ? at == NONE ? 0 : at + 1 + near : at - near;
        int to = in ? at == NONE ? near : from : at == buckets - 1 ? at : from;
        for (int b = from < 0 ? 0 : from; b <= to && b < buckets; b++) {
            CHECK(n < MAX_HOPS);
            ret[n++] = (Hop){b, (Memory)near, in};
        }
    }
    return n;
}

int state_hops(const Program *program, const StageProgram *stage, int at, bool in, Hop *ret)
{
    int n = hops_around(program->plan->memory[KEPT_STATE], stage->buckets.n, at, in, ret), kept = 0;
    for (int i = 0; i < n; i++)
        if (state_travels(program, stage, ret[i].bucket))
            ret[kept++] = ret[i];
    return kept;
}
