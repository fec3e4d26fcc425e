/* test_layout.c - addresses of a stage: no gaps, rings as short as the schedule allows, and a peak
 * that is really reached. */
#include "ir/lower/layout.h"

#include <string.h>

#include "ir/lower/execute.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

static int64_t up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* A slot of one kind of saved values: block by block, with what the chain hands on where it is
 * kept.
 */
static void check_saved_slot(const StageProgram *stage, const Chunk *chunk, int kind)
{
    int64_t saved = 0;
    for (int i = chunk->begin; i < chunk->end; i++) {
        const Body *body = stage->link[i].body;
        bool in = body->saves_in && i > chunk->begin && kind == (int)body->saves_in_late;
        bool grad = body->saves_grad_in && i + 1 < chunk->end && kind == SAVED_IW;
        assert_int_equal(stage->link[i].saved_offset[kind], saved);
        saved += body->saved_bytes[kind];
        saved += in ? up(body->copies.at[body->in].bytes) : 0;
        saved += grad ? up(body->copies.at[body->grad_in].bytes) : 0;
    }
    assert_int_equal(chunk->ring[RING_SAVED + kind].stride, saved);
}

/* The peak is the sum of its parts, each from its own formula: there is no gap. */
static void check_peak(Arena *arena, const Program *program, int at)
{
    (void)arena;
    const Recipe *recipe = program->recipe;
    for (int s = 0; s < program->stages; s++) {
        const StageProgram *stage = &program->stage[s];
        int64_t state = 0, weights = 0, gradients = 0, rings = 0;
        for (int g = 0; g < stage->groups.n; g++) {
            const Group *group = &stage->groups.at[g];
            weights += (stage->delay + 1) * up(group->elements * dtype_bytes(recipe->weight));
            gradients += up(group->elements * dtype_bytes(recipe->gradient));
            state += (recipe->has_master ? 3 : 2) *
                     up(group->share_elements * dtype_bytes(recipe->master));
        }
        for (int c = 0; c < stage->chunks; c++)
            for (int k = 0; k < RING_COUNT; k++)
                rings += stage->chunk[c].ring[k].stride * stage->chunk[c].ring[k].n;
        rings += 4 * stage->pass_bytes + stage->scratch_bytes;
        assert_int_equal(stage->group_bytes[0], weights);
        assert_int_equal(stage->group_bytes[1], gradients);
        assert_int_equal(stage->group_bytes[2], state);
        assert_int_equal(stage->group_bytes[3], rings);
        int64_t scalars = 64 * SCALAR_COUNT + PAIR_BYTES * (program->flows ? stage->lag + 2 : 1);
        if (stage->arena_bytes != scalars + weights + gradients + state + rings)
            fail_msg("case %d, stage %d: the layout has gaps", at, s);
        for (int c = 0; c < stage->chunks; c++)
            for (int kind = 0; kind < SAVED_KINDS; kind++)
                check_saved_slot(stage, &stage->chunk[c], kind);
    }
}

static void test_peak_is_the_sum(void **state)
{
    (void)state;
    for (int i = 0; plan_case(i); i++) {
        Arena *arena = arena_new("case");
        check_peak(arena, program_of(arena, plan_case(i)), i);
        arena_free(arena);
    }
}

/* 1F1B keeps p - s micro-batches, GPipe all; so long as rows are even, rings hold just that. */
static void test_ring_sizes(void **state)
{
    (void)state;
    for (int p = 1; p <= 5; p++)
        for (int m = 1; m <= 7; m++)
            for (int kind = 0; kind <= SCHEDULE_1F1B; kind++) {
                Arena *arena = arena_new("case");
                PlanCase what = {
                    model_with_layers(arena, plan_cases[0].model, 5), NULL, p, m, 4, NULL, NULL, 0};
                what.pins = arena_printf(arena, "pp=%d,mbs=1,schedule=%s", p, schedule_text[kind]);
                const Program *program = program_of(arena, &what);
                for (int s = 0; s < p; s++) {
                    const StageProgram *stage = &program->stage[s];
                    int live = kind == SCHEDULE_GPIPE ? m : smaller(p - s, m);
                    assert_int_equal(stage->chunk[0].ring[RING_SAVED].n, live);
                    if (stage->chunk[0].ring[RING_DATA].stride)
                        assert_int_equal(stage->chunk[0].ring[RING_DATA].n, live);
                    assert_int_equal(stage->chunk[0].ring[RING_IN].n > 0, s > 0);
                    assert_int_equal(stage->chunk[0].ring[RING_OUT].n > 0, s < p - 1);
                    assert_true(stage->chunk[0].ring[RING_OUT].n <= 2 &&
                                stage->chunk[0].ring[RING_GRAD_OUT].n <= 2);
                    if (s > 0 && stage->link[0].body->saves_in)
                        assert_true(stage->chunk[0].ring[RING_IN].n >= live);
                }
                arena_free(arena);
            }
}

static void check_slots(const Program *program, int s, const Chunk *chunk, RingKind kind)
{
    const Ring *ring = &chunk->ring[kind];
    int m = program->plan->micro_batches * (program->flows ? 10 : 1);
    for (int a = 0; a < m && ring->n; a++)
        for (int b = a + 1; b < m; b++) {
            int first[2], last[2];
            if (ring_slot(ring, a, false) != ring_slot(ring, b, false))
                continue;
            assert_true(
                ring_life(program, &program->stage[s], chunk, kind, a, &first[0], &last[0]));
            assert_true(
                ring_life(program, &program->stage[s], chunk, kind, b, &first[1], &last[1]));
            assert_true(last[0] < first[1] || last[1] < first[0]);
        }
}

/* The first and last uses of a slot never cross those of the next micro-batch in it. */
static void test_lives_in_slots(void **state)
{
    (void)state;
    for (int i = 0; plan_case(i); i++) {
        Arena *arena = arena_new("case");
        const Program *program = program_of(arena, plan_case(i));
        for (int s = 0; s < program->stages; s++)
            for (int c = 0; c < program->stage[s].chunks; c++)
                for (int k = 0; k < RING_COUNT; k++)
                    check_slots(program, s, &program->stage[s].chunk[c], (RingKind)k);
        arena_free(arena);
    }
}

/* What lives in memories behind the device's. Blocks of saved values that stay in every row have a
 * place there that nobody touches: these have none at the end. */
static const PlanCase far_cases[] = {
    {tiny_llama, NULL, 2, 8, 6, "dp=2,zero=1,mbs=1,optimizer_home=nvme", NULL, 20000},
    {tiny_llama, NULL, 2, 8, 6,
     "dp=2,zero=3,mbs=1,weight_home=dram,gradient_home=nvme,"
     "activation_home=dram,optimizer_home=nvme",
     NULL, 20000},
    {tiny_gpt2, NULL, 4, 8, 8, "tp=2,pp=2,mbs=1,schedule=zbh1,activation_home=nvme", NULL, 0},
    {tiny_llama, NULL, 2, 8, 6, "pp=2,mbs=1,schedule=2bw,optimizer_home=dram", "bf16", 0},
    {tiny_llama, NULL, 2, 8, 8, "dp=2,zero=3,mbs=1,0:gradient_home=dram,1:weight_home=dram", NULL,
     0},
};
enum { FAR_CASES = sizeof far_cases / sizeof *far_cases };

/* Run in fp64 on all ranks: the highest byte that any Step touches is the layout's peak, on every
 * stage, in every memory. */
static void test_peak_is_reached(void **state)
{
    (void)state;
    int plain = 0;
    while (plan_case(plain))
        plain++;
    int64_t far_bytes[MEMORY_COUNT] = {0};
    for (int i = 0; i < plain + FAR_CASES; i++) {
        Arena *arena = arena_new("case");
        PlanCase what = i < plain ? *plan_case(i) : far_cases[i - plain];
        what.recipe = "fp64";
        const Program *program = program_of(arena, &what);
        int m = program->plan->micro_batches;
        Machine *machine = machine_new(arena, program);
        machine_set_params(machine,
                           (const double *const *)net_random_params(arena, program->net, 3));
        const char *fault = NULL;
        int rounds = program_rounds(program);
        if (!machine_run(machine, net_random_batches(arena, program->net, rounds * m, 5), rounds,
                         0.1, 0, NULL, &fault))
            fail_msg("case %d: %s", i, fault);
        for (int s = 0; s < program->stages; s++)
            for (int memory = 0; memory < MEMORY_COUNT; memory++) {
                int64_t touched = machine_touched(machine, s, (Memory)memory);
                int64_t laid_out = machine_laid_out(machine, s, (Memory)memory);
                if (up(touched) != laid_out)
                    fail_msg("case %d, stage %d: %lld bytes touched in %s, %lld laid out", i, s,
                             (long long)touched, memory_text[memory], (long long)laid_out);
                far_bytes[memory] += i < plain ? 0 : laid_out;
            }
        arena_free(arena);
    }
    assert_true(far_bytes[MEMORY_DRAM] > 0 && far_bytes[MEMORY_NVME] > 0);
}

/* Tied uses of one stage share storage; on two stages each has its own and names the other. */
static void test_tied_storage(void **state)
{
    (void)state;
    Arena *arena = arena_new("case");
    for (int i = 0; plan_case(i); i++) {
        const Program *program = program_of(arena, plan_case(i));
        for (int n = 0; n < program->net->params.n; n++) {
            const NetParam *param = &program->net->params.at[n];
            if (param->uses != 2)
                continue;
            int64_t weight[2];
            int home[2];
            for (int use = 0; use < 2; use++)
                for (int s = 0; s < program->stages; s++) {
                    const StageProgram *stage = &program->stage[s];
                    int at = stage_find_link(stage, param->link[use]);
                    if (at != NONE) {
                        weight[use] = stage->link[at].weight[param->use_param[use]];
                        home[use] = s;
                    }
                }
            if (home[0] == home[1])
                assert_int_equal(weight[0], weight[1]);
            for (int use = 0; use < 2; use++) {
                int found = 0;
                const StageProgram *stage = &program->stage[home[use]];
                for (int g = 0; g < stage->groups.n; g++)
                    for (int k = 0; k < stage->groups.at[g].members.n; k++)
                        if (stage->groups.at[g].members.at[k].net_param == n) {
                            found++;
                            assert_int_equal(stage->groups.at[g].tied_stage,
                                             home[0] == home[1] ? NONE : home[1 - use]);
                        }
                assert_int_equal(found, 1);
            }
        }
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_peak_is_the_sum), cmocka_unit_test(test_ring_sizes),
        cmocka_unit_test(test_lives_in_slots),  cmocka_unit_test(test_peak_is_reached),
        cmocka_unit_test(test_tied_storage),
    };
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
