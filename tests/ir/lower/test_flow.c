/* test_flow.c - steps that flow into each other: rows of a turn, versions of weights, and the
 * numeric proof against an oracle that reads stale weights. */
#include <math.h>
#include <string.h>

#include "ir/eval.h"
#include "ir/lower/execute.h"
#include "ir/lower/layout.h"
#include "ir/lower/prove.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

static Schedule *made(Arena *arena, ScheduleKind kind, int p, int m)
{
    Schedule *schedule = schedule_make(arena, diag_new(arena), kind, p, 1, m);
    assert_non_null(schedule);
    return schedule;
}

static char *unrolled(Arena *arena, ScheduleKind kind, int p, int m, int steps)
{
    Str text = str_new(arena);
    schedule_put_csv(&text, schedule_unroll(arena, made(arena, kind, p, m), steps));
    return text.at;
}

/* By hand, from the papers' figures: 1F1B without a flush between steps. */
static void test_rows(void **state)
{
    (void)state;
    Arena *arena = arena_new("rows");
    assert_string_equal(unrolled(arena, SCHEDULE_PIPEDREAM, 3, 1, 4),
                        "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
                        "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n"
                        "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
    assert_string_equal(unrolled(arena, SCHEDULE_2BW, 2, 3, 2),
                        "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0F4,0B3,0F5,0B4,0B5\n"
                        "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5\n");
    arena_free(arena);
}

/* Stage r of p keeps p - r versions, or every stage two. */
static void test_delays(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int s = 0; s < p; s++) {
            Arena *arena = arena_new("delay");
            assert_int_equal(made(arena, SCHEDULE_PIPEDREAM, p, 1)->delay[s], p - 1 - s);
            assert_int_equal(made(arena, SCHEDULE_2BW, p, p + 1)->delay[s], 1);
            arena_free(arena);
        }
}

/* Without hops no stage ever waits; with them, a round trip over p stages comes once in p forwards
 * of the first stage: its F, B and hops there and back share it. */
static void test_period(void **state)
{
    (void)state;
    enum { P = 4, M = 8 };
    Arena *arena = arena_new("period");
    assert_int_equal(
        schedule_steady(arena, made(arena, SCHEDULE_PIPEDREAM, P, 1), NULL, NULL, NULL), 3);
    assert_int_equal(schedule_steady(arena, made(arena, SCHEDULE_2BW, P, M), NULL, NULL, NULL),
                     3 * M);
    int64_t forward[P] = {10, 10, 10, 10}, backward[P] = {20, 20, 50, 20}, end[P] = {0, 0, 5, 0};
    RowTimes times = {.hop = 0, .time = {forward, backward, NULL, NULL}};
    const Schedule *one = made(arena, SCHEDULE_PIPEDREAM, P, 1);
    assert_int_equal(schedule_steady(arena, one, &times, end, NULL), 65);
    backward[2] = 20;
    times.hop = 100; /* 4 x (10 + 20) + 6 x 100 in 4 turns */
    assert_int_equal(schedule_steady(arena, one, &times, NULL, NULL), 180);
    arena_free(arena);
}

/* A long run of the same rows takes as long per step. */
static void test_period_of_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        Arena *arena = arena_new("run");
        int p = 2 + i % 4, m = i % 2 ? 1 : p + i % 3;
        int64_t time[2][8];
        for (int c = 0; c < p; c++) {
            time[0][c] = 7 + (i * 5 + c * 3) % 11;
            time[1][c] = 13 + (i * 7 + c * 5) % 17;
        }
        RowTimes times = {.hop = i, .time = {time[0], time[1], NULL, NULL}};
        const Schedule *turn = made(arena, m == 1 ? SCHEDULE_PIPEDREAM : SCHEDULE_2BW, p, m);
        int64_t period = schedule_steady(arena, turn, &times, NULL, NULL);
        int64_t a = schedule_simulate(arena, schedule_unroll(arena, turn, 60), &times, NULL);
        int64_t b = schedule_simulate(arena, schedule_unroll(arena, turn, 120), &times, NULL);
        if (labs((long)((b - a) / 60 - period)) > 1) /* a period is whole ns */
            fail_msg("p %d m %d: period %ld, runs %ld", p, m, (long)period, (long)((b - a) / 60));
        arena_free(arena);
    }
}

static const PlanCase flows[] = {
    {tiny_llama, NULL, 2, 1, 6, "pp=2,mbs=1,schedule=pipedream", NULL, 0},
    {tiny_llama, NULL, 4, 1, 6, "pp=4,mbs=1,schedule=pipedream", NULL, 0},
    {tiny_llama, NULL, 2, 4, 6, "pp=2,mbs=2,schedule=2bw", NULL, 0},
    {tiny_llama, NULL, 4, 4, 6, "pp=4,mbs=1,schedule=2bw", NULL, 0},
    {tiny_llama, NULL, 4, 7, 6, "pp=4,mbs=1,schedule=2bw,recompute=full", NULL, 0},
    {tiny_llama, NULL, 12, 2, 8, "tp=2,sp=1,dp=2,pp=3,zero=1,mbs=1,schedule=pipedream", "bf16", 0},
    {tiny_llama, NULL, 8, 8, 8, "tp=2,dp=2,pp=2,zero=1,mbs=1,schedule=2bw", NULL, 0},
    {tiny_llama, NULL, 4, 4, 8, "dp=2,pp=2,zero=2,mbs=1,schedule=2bw", NULL, 0},
    {tiny_llama, NULL, 6, 2, 8, "dp=2,pp=3,zero=3,mbs=1,schedule=pipedream", NULL, 0},
    {tiny_llama, NULL, 4, 4, 8,
     "dp=2,pp=2,zero=3,mbs=1,schedule=2bw,weight_home=dram,optimizer_home=dram", "bf16", 2000},
    {tiny_llama, NULL, 3, 1, 8,
     "pp=3,mbs=1,schedule=pipedream,weight_home=dram,activation_home=dram", "fp32 muon", 2000},
    {tiny_llama, NULL, 1, 2, 6, "pp=1,mbs=1,schedule=2bw", NULL, 0},
};

/* Both proofs; a version that is off by one is among the mutations, and is caught. */
static void test_proofs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof flows / sizeof *flows; i++) {
        Arena *arena = arena_new("proof");
        Net *net;
        Plan *plan = plan_of(arena, &flows[i], &net);
        const Program *program = program_build(arena, plan, net, NULL, NULL);
        assert_true(program->flows && plan->job.clip == 0);
        CheckReport check;
        Diag *diag = diag_new(arena);
        bool sound = program_check(arena, program, program_rounds(program), diag, &check);
        diag_print(diag, stderr, false);
        assert_true(sound);
        ProveOptions options = prove_default();
        options.mutations = i % 3 != 0; /* most of them, for time */
        ProveReport report;
        bool good = prove_numeric(arena, diag, plan, net, &options, &report);
        int versions = 0;
        for (int k = 0; k < report.mutations.n; k++) {
            const MutationReport *row = &report.mutations.at[k];
            versions += strncmp(row->name, "version ", 8) == 0;
            if (!row->good)
                fail_msg("%s: %s, error %g", flows[i].pins, row->name, row->error);
        }
        if (!good)
            fail_msg("%s: %s, error %g %s", flows[i].pins, report.fault ? report.fault : "unequal",
                     report.max_error, report.worst);
        assert_true(!options.mutations || versions > 0);
        arena_free(arena);
    }
}

/* ---- against steps by hand ---- */

enum { STEPS = 7 };

/* Steps w(t+1) = step(w(t), gradient of batch t at w(t - delay)) of each parameter's own delay. */
static void run_delayed(Arena *arena, const Plan *plan, const Net *net, const int *delay,
                        double *const *first, const EvalBatch *batch, double **ret,
                        double *ret_loss)
{
    int n = net->params.n;
    double ***after = ARENA_ARRAY(arena, double **, STEPS + 1);
    double *state[3][64];
    assert_true(n <= 64);
    for (int t = 0; t <= STEPS; t++)
        after[t] = ARENA_ARRAY(arena, double *, n);
    for (int p = 0; p < n; p++) {
        int64_t count = eval_param_elements(net, p);
        for (int k = 0; k < 3; k++)
            state[k][p] = ARENA_ARRAY(arena, double, count);
        for (int t = 0; t <= STEPS; t++)
            after[t][p] = ARENA_ARRAY(arena, double, count);
        memcpy(after[0][p], first[p], (size_t)count * sizeof(double));
    }
    const Job *job = &plan->job;
    EvalAdam adam = {job->beta1, job->beta2, job->eps, job->decay, job->clip, job->muon, true};
    for (int t = 0; t < STEPS; t++) {
        const double *read[64];
        for (int p = 0; p < n; p++) {
            int stage = 0, link = net->params.at[p].link[0];
            while (link >= plan->first_link[stage + 1])
                stage++;
            read[p] = after[t > delay[stage] ? t - delay[stage] : 0][p];
        }
        ret_loss[t] =
            eval_net(net, read, &batch[t * plan->micro_batches], plan->micro_batches, state[2]);
        for (int p = 0; p < n; p++)
            memcpy(after[t + 1][p], after[t][p],
                   (size_t)eval_param_elements(net, p) * sizeof(double));
        eval_step(net, &adam, 0.1, t + 1, after[t + 1], state[0], state[1],
                  (const double *const *)state[2]);
    }
    memcpy(ret, after[STEPS], (size_t)n * sizeof *ret);
}

/* How far a run of the program is from steps with these delays. */
static double distance(Arena *arena, const PlanCase *what, const int *delay)
{
    Net *net;
    PlanCase fp64 = *what;
    fp64.recipe = "fp64";
    Plan *plan = plan_of(arena, &fp64, &net);
    plan->job.eps = 1; /* else small gradients are judged by their rounding */
    const Program *program = program_build(arena, plan, net, NULL, NULL);
    double **first = net_random_params(arena, net, 3), *want[64], loss[STEPS];
    const EvalBatch *batch = net_random_batches(arena, net, STEPS * plan->micro_batches, 5);
    run_delayed(arena, plan, net, delay, first, batch, want, loss);
    Machine *machine = machine_new(arena, program);
    machine_set_params(machine, (const double *const *)first);
    const char *fault;
    if (!machine_run(machine, batch, STEPS, 0.1, 9, NULL, &fault))
        fail_msg("%s", fault);
    double worst = 0;
    for (int t = 0; t < STEPS; t++)
        worst = fmax(worst, machine_relative(machine_loss(machine, t, 0), loss[t]));
    for (int p = 0; p < net->params.n; p++)
        worst = fmax(worst, machine_param_error(machine, p, want[p]));
    return worst;
}

/* The delays of the papers, and no others. */
static void test_by_hand(void **state)
{
    (void)state;
    static const struct {
        PlanCase what;
        int right[3], wrong[3];
    } cases[] = {
        {{tiny_llama, NULL, 3, 1, 6, "pp=3,mbs=1,schedule=pipedream", NULL, 0},
         {2, 1, 0},
         {1, 1, 0}},
        {{tiny_llama, NULL, 3, 4, 6, "pp=3,mbs=1,schedule=2bw", NULL, 0}, {1, 1, 1}, {1, 1, 0}},
        {{tiny_llama, NULL, 3, 4, 6, "pp=3,mbs=1,schedule=1f1b", NULL, 0}, {0, 0, 0}, {1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("hand");
        assert_true(distance(arena, &cases[i].what, cases[i].right) < 1e-10);
        assert_true(distance(arena, &cases[i].what, cases[i].wrong) > 1e-6);
        arena_free(arena);
    }
}

/* Weights in as many slots as there are versions, one behind the other; nothing else is kept twice.
 */
static void test_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new("memory");
    PlanCase what = {tiny_llama, NULL, 4, 1, 6, "pp=4,mbs=1,schedule=pipedream", NULL, 0};
    const Program *flowing = program_of(arena, &what);
    what.pins = "pp=4,mbs=1,schedule=1f1b";
    const Program *plain = program_of(arena, &what);
    for (int s = 0; s < 4; s++) {
        const StageProgram *own = &flowing->stage[s];
        assert_int_equal(own->versions.n, 4 - s);
        assert_int_equal(own->group_bytes[0], (4 - s) * plain->stage[s].group_bytes[0]);
        assert_int_equal(own->group_bytes[1], plain->stage[s].group_bytes[1]);
        assert_int_equal(own->group_bytes[2], plain->stage[s].group_bytes[2]);
        /* as many activations as forwards are ahead of their backwards, and the one at work */
        const Chunk *chunk = &own->chunk[0];
        if (chunk->ring[RING_SAVED].stride)
            assert_int_equal(chunk->ring[RING_SAVED].n, 4 - s);
    }
    arena_free(arena);
}

static void assert_refused(Arena *arena, const PlanCase *what, const char *words)
{
    PlanRefusal refusal;
    Net *net;
    assert_null(plan_try(arena, what, &net, &refusal));
    Str text = str_new(arena);
    for (int i = 0; i < diag_count(refusal.diag); i++)
        str_putf(&text, "%s\n", diag_item(refusal.diag, i)->text);
    if (!strstr(text.at ? text.at : "", words))
        fail_msg("%s: refused with\n%s", what->pins, text.at);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        PlanCase what;
        const char *words;
    } cases[] = {
        {{tiny_llama, NULL, 2, 4, 6, "pp=2,mbs=1,schedule=pipedream", NULL, 0},
         "updates the weights with every micro-batch; 4 are one step here"},
        {{tiny_llama, NULL, 4, 3, 6, "pp=4,mbs=1,schedule=2bw", NULL, 0},
         "needs at least 4 micro-batches; there are 3"},
        {{tiny_gpt2, NULL, 2, 4, 8, "pp=2,mbs=1,schedule=2bw", NULL, 0},
         "is used on stages 0 and 1, which schedule 2bw updates each by itself"},
        {{tiny_llama, NULL, 2, 4, 6, "pp=2,mbs=1,schedule=2bw", "fp16", 0},
         "recipe fp16 skips steps that overflow anywhere"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("refused");
        assert_refused(arena, &cases[i].what, cases[i].words);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),   cmocka_unit_test(test_delays),
        cmocka_unit_test(test_period), cmocka_unit_test(test_period_of_runs),
        cmocka_unit_test(test_proofs), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
