/* test_pairs.c - collectives under compute: inside a body, and in rows that are two in one. */
#include <string.h>

#include "ir/base/num.h"
#include "tests/check.h"
#include "tests/planner/made.h"

static int64_t exposed_in_blocks(const StepTimes *times)
{
    int64_t ns = 0;
    for (int i = 0; i < times->traffic.n; i++)
        ns += times->traffic.at[i].stream == STREAM_BLOCK ? times->traffic.at[i].exposed_ns[0] : 0;
    return ns;
}

/* Rows that are two in one. DESIGN asks for 3 %; what is measured is less than most_off. */
static const double most_off = 0.025;
static const Case paired[] = {
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16",
     "tp=2,pp=4,schedule=dualpipev,recompute=full,braid=1"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "tp=2,sp=1,dp=2,pp=2,braid=1,zero=2"},
    {"llama-10m", "host", 4, 16, 128, "fp32", "dp=2,pp=2,schedule=dualpipev,braid=1"},
    {"deepseek-moe-16b", "dgx-h100", 16, 64, 1024, "bf16",
     "dp=8,ep=8,pp=2,schedule=dualpipev,mbs=1,braid=1"},
    {"deepseek-moe-16b", "dgx-h100", 16, 64, 1024, "bf16", "dp=8,ep=8,pp=2,mbs=1,braid=1"},
    /* weights that come for uses of both, saved values that leave and return at once */
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "tp=2,sp=1,dp=2,pp=2,mbs=1,braid=1,zero=3"},
    {"llama-3-8b", "dgx-h100", 16, 64, 2048, "bf16",
     "dp=8,pp=2,mbs=1,schedule=dualpipev,braid=1,zero=3,recompute=full"},
    {"llama-3-8b", "dgx-h100", 16, 64, 2048, "bf16",
     "dp=8,pp=2,mbs=1,braid=1,weight_home=dram,zero=3"},
    {"llama-3-8b", "dgx-h100", 16, 64, 2048, "bf16",
     "dp=8,pp=2,mbs=1,braid=1,activation_home=dram"},
    {"llama-3-8b", "dgx-h100", 16, 64, 2048, "bf16",
     "dp=8,pp=2,mbs=1,schedule=dualpipev,braid=1,activation_home=dram"},
    {"llama-3-8b", "dgx-h100", 16, 64, 2048, "bf16",
     "dp=8,pp=2,mbs=1,schedule=dualpipev,braid=1,activation_home=dram,4-7:activation_home=hbm"},
};

static void test_pairs_agree(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t i = 0; i < sizeof paired / sizeof *paired; i++) {
        Made made = make(&paired[i]);
        int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
        const int *first = made.plan->first_link;
        int64_t segment = family_segment(made.family, first, end);
        StepTimes *steps = simulate_program(made.arena, made.program, NULL);
        if (off(segment, steps->step_ns) > most_off)
            fail_msg("%s %s: segments %lld ns, Steps %lld ns", paired[i].model, paired[i].pins,
                     (long long)segment, (long long)steps->step_ns);
        worst = off(segment, steps->step_ns) > worst ? off(segment, steps->step_ns) : worst;
        StepTimes *account = account_plan(made.arena, made.family, first);
        assert_int_equal(account->step_ns, segment);
        for (int s = 0; s < made.plan->stages; s++) {
            assert_true(family_bytes(made.family, first, s).all >=
                        made.program->stage[s].arena_bytes);
            assert_int_equal(spent_sum(&steps->stage[s]), steps->step_ns);
            assert_int_equal(spent_sum(&account->stage[s]), segment);
        }
        /* what exchanges rows waits less than with rows in order */
        Plan apart = *made.plan;
        apart.braid = false;
        const StepTimes *before = simulate_program(
            made.arena, program_build(made.arena, &apart, made.net, NULL, NULL), NULL);
        if (strstr(paired[i].pins, "ep=8"))
            assert_true(exposed_in_blocks(steps) < exposed_in_blocks(before) * 3 / 4);
        done(&made);
    }
    print_message("# %d plans, at most %.2f %% apart\n", (int)(sizeof paired / sizeof *paired),
                  100 * worst);
}

/* Of the exchanges of rows, how long they take and how much of it kernels of the same layer and
 * micro-batch run beside them; `named` is in the kernel's name. Rows take as long to come back as
 * to go, for they are the same. */
typedef struct Beside {
    int64_t each_ns, exchanges_ns, kernels_ns;
} Beside;

static Beside beside_exchanges(const TraceEvents *trace, bool backward, const char *named)
{
    Beside sum = {0};
    for (int k = 0; k < trace->n; k++) {
        const TraceEvent *move = &trace->at[k];
        if (!str_eq(move->name, "all_to_all") || move->backward != backward)
            continue;
        assert_int_equal(move->ns, sum.each_ns ? sum.each_ns : move->ns);
        sum.each_ns = move->ns;
        sum.exchanges_ns += move->ns;
        for (int i = 0; i < trace->n; i++) {
            const TraceEvent *kernel = &trace->at[i];
            if (kernel->stream != STREAM_COMPUTE || kernel->link != move->link ||
                kernel->micro != move->micro || kernel->backward != backward ||
                !strstr(kernel->name, named))
                continue;
            int64_t begin = num_larger(kernel->start, move->start),
                    end = -num_larger(-kernel->start - kernel->ns, -move->start - move->ns);
            sum.kernels_ns += num_larger(end - begin, 0);
        }
    }
    return sum;
}

/* What does not need the rows that experts exchange runs meanwhile: against the same bodies in the
 * order of their nodes a step waits less, and cards know it. */
static void test_exchanges_run_under_shared_experts(void **state)
{
    (void)state;
    const Case at = {"deepseek-moe-16b", "dgx-h100", 8, 8, 1024, "bf16", "dp=8,ep=8,mbs=1"};
    Made made = make(&at);
    TraceEvents trace = {0};
    const StepTimes *times = simulate_program(made.arena, made.program, &trace);
    MovePrice plain = link_price(made.plan->cluster, recipe_by_name(at.recipe));
    plain.cluster = NULL;
    const StepTimes *before = simulate_program(
        made.arena, program_build(made.arena, made.plan, made.net, &plain, NULL), NULL);
    assert_true(exposed_in_blocks(times) < exposed_in_blocks(before) * 3 / 4);
    assert_true(times->step_ns < before->step_ns);
    /* forward has little else than them; backward has gradients of weights, too, and enough that
     * an exchange is never waited for */
    Beside shared = beside_exchanges(&trace, false, "shared"),
           all = beside_exchanges(&trace, true, "");
    assert_int_equal(shared.each_ns, all.each_ns);
    assert_true(shared.kernels_ns > shared.exchanges_ns * 3 / 4);
    assert_true(all.exchanges_ns > 0 && all.kernels_ns > all.exchanges_ns * 99 / 100);
    int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
    int64_t segment = family_segment(made.family, made.plan->first_link, end);
    print_message("# exposed %.1f ms of %.1f ms, in the order of nodes %.1f ms of %.1f ms\n",
                  (double)exposed_in_blocks(times) / 1e6, (double)times->step_ns / 1e6,
                  (double)exposed_in_blocks(before) / 1e6, (double)before->step_ns / 1e6);
    assert_true(off(segment, times->step_ns) < 0.015);
    done(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_agree),
        cmocka_unit_test(test_exchanges_run_under_shared_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
