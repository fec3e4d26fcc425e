/* steady.c - what one optimizer step of a program takes: the only one, or one of the steady state
 * where steps flow into each other, as the difference of two runs. */
#include "planner/simulate.h"

typedef struct Difference {
    int steps;
} Difference;

static int64_t each(const Difference *by, int64_t a, int64_t b)
{
    return (b - a) / by->steps;
}

static void each_of(const Difference *by, const int64_t *a, int64_t *b, int n)
{
    for (int i = 0; i < n; i++)
        b[i] = each(by, a[i], b[i]);
}

/* The longer run's figures become those of one of its steps that the shorter has not. */
static void take_difference(const Difference *by, const StepTimes *a, StepTimes *b)
{
    b->step_ns = each(by, a->step_ns, b->step_ns);
    b->steps = each(by, a->steps, b->steps);
    for (int s = 0; s < b->stages; s++) {
        const StageTimes *x = &a->stage[s];
        StageTimes *y = &b->stage[s];
        each_of(by, x->spent_ns, y->spent_ns, SPENT_COUNT);
        each_of(by, x->busy_ns, y->busy_ns, STREAM_COUNT);
        each_of(by, x->level_ns, y->level_ns, MAX_LEVELS);
        each_of(by, x->level_bytes, y->level_bytes, MAX_LEVELS);
        y->flops = each(by, x->flops, y->flops);
        /* the account of a stage is the whole step: what it does not say is waiting */
        int64_t spent = 0;
        for (int k = 0; k < SPENT_COUNT; k++)
            spent += y->spent_ns[k];
        y->spent_ns[SPENT_BUBBLE] += b->step_ns - spent;
    }
    /* one order of steps meets its kinds of traffic in one order */
    CHECK(a->traffic.n == b->traffic.n);
    for (int i = 0; i < b->traffic.n; i++) {
        const Traffic *x = &a->traffic.at[i];
        Traffic *y = &b->traffic.at[i];
        each_of(by, x->count, y->count, b->stages);
        each_of(by, x->bytes, y->bytes, b->stages);
        each_of(by, x->ns, y->ns, b->stages);
        each_of(by, x->exposed_ns, y->exposed_ns, b->stages);
    }
}

/* Some stage has more to do a step than the last to end takes for one: the others have not met it
 * yet. */
static bool falls_behind(const StepTimes *times)
{
    bool behind = false;
    for (int s = 0; s < times->stages; s++)
        behind |= times->stage[s].spent_ns[SPENT_BUBBLE] < -SPENT_COUNT; /* rounded one by one */
    return behind;
}

StepTimes *simulate_program(Arena *arena, const Program *program, TraceEvents *trace)
{
    if (!program->flows)
        return simulate_rounds(arena, program, 1, trace);
    /* after as many micro-batches as there are in a step for each stage, and as many such steps,
     * every stage has met its slowest neighbour, but for one that is little slower: it takes long
     * to fall as far behind as it may */
    enum { DOUBLED = 4 };
    Difference by = {4};
    int micros = program->plan->micro_batches, stages = program->stages;
    int begin = (2 * stages + 2) * (micros < stages ? stages / micros : 1);
    StepTimes *times = NULL;
    Arena *scratch = arena_new("steady");
    for (int i = 0; i <= DOUBLED && (!times || falls_behind(times)); i++) {
        const StepTimes *before = simulate_rounds(scratch, program, begin << i, NULL);
        times = simulate_rounds(arena, program, (begin << i) + by.steps, NULL);
        take_difference(&by, before, times);
    }
    if (trace)
        simulate_rounds(arena, program, begin + by.steps, trace);
    arena_free(scratch);
    return times;
}
