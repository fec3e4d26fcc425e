/* check_cells.c - cuts the memory of a trace into cells, and says what each is for. */
#include "ir/lower/check_cells.h"

#include <stdlib.h>
#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/home.h"
#include "ir/lower/state.h"

enum { EMPTY = INT32_MIN };

/* Slot of an address: its own, or an empty one. */
static int find_slot(const CellRun *run, int64_t address)
{
    uint64_t hash = (uint64_t)address * UINT64_C(0x9e3779b97f4a7c15);
    int slot = (int)(hash >> 32 & (uint64_t)(run->slots - 1));
    while (run->at[slot] != EMPTY && run->key[slot] != address)
        slot = (slot + 1) & (run->slots - 1);
    return slot;
}

static void make_table(CellRun *run, int slots)
{
    run->slots = slots;
    run->key = ARENA_ARRAY(run->arena, int64_t, slots);
    run->at = ARENA_ARRAY(run->arena, int32_t, slots);
    for (int i = 0; i < slots; i++)
        run->at[i] = EMPTY;
}

typedef struct Bounds {
    VEC(int64_t) list;
} Bounds;

static void put_bound(CellRun *run, Bounds *bounds, int64_t address)
{
    int slot = find_slot(run, address);
    if (run->at[slot] != EMPTY)
        return;
    run->key[slot] = address;
    run->at[slot] = 0;
    vec_push(run->arena, &bounds->list) = address;
    if (bounds->list.n * 2 < run->slots)
        return;
    make_table(run, run->slots * 2);
    for (int i = 0; i < bounds->list.n; i++) {
        slot = find_slot(run, bounds->list.at[i]);
        run->key[slot] = bounds->list.at[i];
        run->at[slot] = 0;
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Bytes of this rank's homes, without what aligns them. */
static int64_t weight_bytes(const Trace *trace, const Group *group)
{
    return group->weight_elements * dtype_bytes(trace->program->recipe->weight);
}

static int64_t home_gradients(const Trace *trace, const Group *group)
{
    return group->elements / list_extent(&trace->program->plan->mesh, &group->gradient_share) *
           dtype_bytes(trace->program->recipe->gradient);
}

/* The ends of what a rank's home of weights holds of whole matrices: padding is never written. */
static void put_matrix_bounds(CellRun *run, Bounds *bounds, int g)
{
    const Trace *trace = run->trace;
    const StageProgram *stage = trace->stage;
    const Group *group = &stage->groups.at[g];
    const AtomList *list = &group->weight_share;
    int width = dtype_bytes(trace->program->recipe->weight),
        ranks = list_extent(&trace->program->plan->mesh, list);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        int64_t base = weight_base(trace->program, group, bucket, trace->coordinate),
                begin = bucket_block_begin(trace->program, bucket, list, trace->coordinate);
        for (int k = 0; bucket->group == g && k < group->members.n; k++) {
            int64_t end[2] = {group->members.at[k].offset,
                              group->members.at[k].offset + group->members.at[k].elements};
            for (int i = 0; i < 2; i++)
                if (end[i] >= begin && end[i] <= begin + bucket->elements / ranks)
                    put_bound(run, bounds, base + end[i] * width);
        }
    }
}

/* The first bound that is not below an address; they are sorted. */
static int bound_at(const Bounds *bounds, int n, int64_t address)
{
    int low = 0, high = n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (bounds->list.at[mid] < address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* What hops carry from one memory to another is cut there as it is here. */
static void mirror_bounds(CellRun *run, Bounds *bounds, Memory here, Memory there)
{
    const Trace *trace = run->trace;
    int n = bounds->list.n;
    for (int s = 0; s < trace->steps.n; s++) {
        const TraceStep *step = &trace->steps.at[s];
        bool hops = step_spills(step) || step_sums(trace, step);
        for (int k = 0; hops && k + 1 < step->operands; k += 2) {
            const Operand *from = &trace->operands.at[step->operand + k], *to = from + 1;
            if (address_memory(from->address) != here || address_memory(to->address) != there)
                continue;
            int i = bound_at(bounds, n, from->address);
            for (; i < n && bounds->list.at[i] < from->address + from->bytes; i++)
                put_bound(run, bounds, bounds->list.at[i] - from->address + to->address);
        }
    }
    qsort(bounds->list.at, (size_t)bounds->list.n, sizeof bounds->list.at[0], by_value);
}

static void cut_cells(CellRun *run)
{
    const Trace *trace = run->trace;
    const Recipe *recipe = trace->program->recipe;
    Bounds bounds = {0};
    make_table(run, 1 << 12);
    for (int i = 0; i < run->regions->n; i++) {
        put_bound(run, &bounds, run->regions->at[i].begin);
        put_bound(run, &bounds, run->regions->at[i].end);
    }
    for (int g = 0; g < trace->stage->groups.n; g++) {
        const Group *group = &trace->stage->groups.at[g];
        bool near = !group->far_gradients; /* those that hops carry are cut as they are there */
        for (int k = 0; k < group->members.n && near && !group->buffered; k++) {
            int64_t begin = group->members.at[k].offset,
                    end = begin + group->members.at[k].elements;
            put_bound(run, &bounds, group->gradient + begin * dtype_bytes(recipe->gradient));
            put_bound(run, &bounds, group->gradient + end * dtype_bytes(recipe->gradient));
        }
        if (group->matrix != NONE)
            put_matrix_bounds(run, &bounds, g);
        for (int version = 0; version <= trace->stage->delay; version++)
            put_bound(run, &bounds,
                      group->weight + slot_of_version(trace->stage, version) +
                          weight_bytes(trace, group));
        if (group->buffered && near)
            put_bound(run, &bounds, group->gradient + home_gradients(trace, group));
        put_bound(run, &bounds,
                  group->moment1 + group->state_elements * dtype_bytes(recipe->master));
        if (group->moment2 != NONE)
            put_bound(run, &bounds,
                      group->moment2 + group->state_elements * dtype_bytes(recipe->master));
        if (group->master != NONE)
            put_bound(run, &bounds,
                      group->master + group->state_elements * dtype_bytes(recipe->master));
    }
    for (int i = 0; i < trace->operands.n; i++) {
        put_bound(run, &bounds, trace->operands.at[i].address);
        put_bound(run, &bounds, trace->operands.at[i].address + trace->operands.at[i].bytes);
    }
    qsort(bounds.list.at, (size_t)bounds.list.n, sizeof bounds.list.at[0], by_value);
    const Memory *memory = trace->program->plan->memory;
    int home = (int)num_larger(memory[KEPT_SAVED], memory[KEPT_GRADIENTS]);
    for (int m = MEMORY_HBM; m < home; m++)
        mirror_bounds(run, &bounds, (Memory)m, (Memory)(m + 1));
    for (int m = home; m > MEMORY_HBM; m--)
        mirror_bounds(run, &bounds, (Memory)m, (Memory)(m - 1));
    run->begin = bounds.list.at;
    run->cells = bounds.list.n - 1;
    for (int i = 0; i <= run->cells; i++)
        run->at[find_slot(run, run->begin[i])] = i;
}

CellSpan cell_span(const CellRun *run, const Operand *operand)
{
    return (CellSpan){run->at[find_slot(run, operand->address)],
                      run->at[find_slot(run, operand->address + operand->bytes)]};
}

int cell_of(const CellRun *run, int64_t address)
{
    int low = 0, high = run->cells - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (run->begin[mid] <= address)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* The member of a group that holds the cell, or NULL between members. */
static const GroupMember *member_of(const Trace *trace, const Group *group, int64_t begin)
{
    int64_t element = (begin - group->gradient) / dtype_bytes(trace->program->recipe->gradient);
    for (int k = 0; k < group->members.n; k++) {
        const GroupMember *member = &group->members.at[k];
        if (element >= member->offset && element < member->offset + member->elements)
            return member;
    }
    return NULL;
}

/* Of a group of whole matrices: does element `at` of a home that is cut over a list belong to one?
 */
static bool in_matrix(const Trace *trace, int g, const AtomList *list, int64_t at)
{
    const StageProgram *stage = trace->stage;
    const Group *group = &stage->groups.at[g];
    int ranks = list_extent(&trace->program->plan->mesh, list);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        int64_t begin = bucket->begin / ranks;
        if (bucket->group != g || at < begin || at >= begin + bucket->elements / ranks)
            continue;
        int64_t element =
            bucket_block_begin(trace->program, bucket, list, trace->coordinate) + at - begin;
        for (int k = 0; k < group->members.n; k++)
            if (element >= group->members.at[k].offset &&
                element < group->members.at[k].offset + group->members.at[k].elements)
                return true;
    }
    return false;
}

/* The cell of a weight, or of state, is stepped once a round. */
static bool is_trained(const Trace *trace, const Region *region, int64_t begin)
{
    const Recipe *recipe = trace->program->recipe;
    const Group *group = &trace->stage->groups.at[region->index];
    bool state = region->kind != REGION_WEIGHT;
    int64_t at = (begin - region->begin) / dtype_bytes(state ? recipe->master : recipe->weight);
    if (state && address_memory(region->begin) != MEMORY_HBM)
        return at < group->state_elements; /* what is carried home is all of it; */
    if (!state && address_memory(begin) == MEMORY_NVME)
        return true; /* and has the grains of a file */
    if (group->matrix != NONE)
        return in_matrix(trace, region->index, state ? &group->share : &group->weight_share, at);
    return state ? at < group->share_elements : begin < region->begin + weight_bytes(trace, group);
}

static void fill_cell(CellRun *run, Cell *cell, int64_t begin)
{
    const Trace *trace = run->trace;
    const StageProgram *stage = trace->stage;
    int micros = trace->whole ? trace->program->plan->micro_batches : 1;
    const Region *region = cell->region;
    const Group *group = region->kind >= REGION_WEIGHT && region->kind <= REGION_MASTER
                             ? &stage->groups.at[region->index]
                             : NULL;
    if (region->kind == REGION_WEIGHT)
        cell->trained = is_trained(trace, region, begin);
    bool moment = region->kind == REGION_MOMENT1 || region->kind == REGION_MOMENT2;
    if (region->kind >= REGION_MOMENT1 && region->kind <= REGION_MASTER &&
        !(moment && group->rate > 0)) /* what moves by signs leaves its moments zero */
        cell->trained = is_trained(trace, region, begin);
    if (region->kind == REGION_GRADIENT && group->far_gradients) {
        cell->expected = sums_expected_home(trace, region, begin);
    } else if (region->kind == REGION_GRADIENT && group->buffered) {
        cell->expected = begin < region->begin + home_gradients(trace, group) ? micros : 0;
    } else if (region->kind == REGION_GRADIENT) {
        const GroupMember *member = member_of(trace, group, begin);
        cell->expected = member ? micros * member_uses(trace->program, stage, group, member) : 0;
    }
    int64_t number =
        (begin - stage->scalars - 64 * SCALAR_LOSS) / dtype_bytes(trace->program->recipe->gradient);
    if (region->kind == REGION_SCALARS && number >= 0)
        for (int i = 0; i < stage->links; i++)
            cell->expected += number < stage->link[i].body->losses ? micros : 0;
}

CellRun *cell_run_new(Check *check, const Trace *trace, const RegionList *regions)
{
    Arena *arena = check->cells;
    arena_reset(arena);
    CellRun *run = ARENA_NEW(arena, CellRun);
    *run = (CellRun){.check = check, .trace = trace, .regions = regions, .arena = arena};
    memset(run->now, -1, sizeof run->now);
    cut_cells(run);
    run->cell = ARENA_ARRAY(arena, Cell, run->cells + 1);
    run->clock = ARENA_ARRAY(arena, Clock, trace->steps.n + 1);
    for (int i = 0; i < run->cells; i++) {
        Cell *cell = &run->cell[i];
        cell->writer = cell->round = -1;
        memset(cell->reader, -1, sizeof cell->reader);
        cell->region = region_find(regions, run->begin[i], run->begin[i + 1] - run->begin[i]);
        if (cell->region)
            fill_cell(run, cell, run->begin[i]);
    }
    return run;
}
