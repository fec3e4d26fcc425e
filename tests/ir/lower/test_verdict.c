/* test_verdict.c - the static proof against execution: tables with messages in other places are run
 * on all ranks. What is called right ends and gives the same numbers in every order that the events
 * allow. */
#include <math.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/lower/execute.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

enum { ROUNDS = 2 };

typedef struct Setting {
    Arena *arena;
    Program *program;
    double **param;
    EvalBatch *batch;
    double loss[ROUNDS], norm2[ROUNDS];
} Setting;

static bool is_message(const Entry *entry)
{
    return entry->kind == ENTRY_SEND || entry->kind == ENTRY_RECV;
}

/* Runs the program as it stands; false on a fault. */
static bool run(const Setting *setting, uint64_t seed, double *ret_loss, double *ret_norm2)
{
    Arena *arena = arena_new("run");
    Machine *machine = machine_new(arena, setting->program);
    machine_set_params(machine, (const double *const *)setting->param);
    const char *fault = NULL;
    bool good = machine_run(machine, setting->batch, ROUNDS, 0.1, seed, NULL, &fault);
    for (int r = 0; r < ROUNDS; r++) {
        ret_loss[r] = machine_loss(machine, r, 0);
        ret_norm2[r] = machine_norm2(machine, r);
    }
    arena_free(arena);
    return good;
}

static void set_up(Setting *setting, Arena *arena, const PlanCase *what)
{
    *setting = (Setting){.arena = arena, .program = program_of(arena, what)};
    const Program *program = setting->program;
    setting->param = net_random_params(arena, program->net, 3);
    setting->batch =
        net_random_batches(arena, program->net, ROUNDS * program->plan->micro_batches, 5);
    assert_true(run(setting, 0, setting->loss, setting->norm2));
}

/* Takes a random message of a random stage to another place, up to `reach` entries away. */
static void displace(Program *program, uint64_t seed, uint64_t draw, int reach)
{
    StageProgram *stage = &program->stage[rng_u64(seed, draw, 0) % (uint64_t)program->stages];
    int n = stage->table.n, from = (int)(rng_u64(seed, draw, 1) % (uint64_t)n);
    while (!is_message(&stage->table.at[from]))
        from = (from + 1) % n;
    int to = from + (int)(rng_u64(seed, draw, 2) % (uint64_t)(2 * reach + 1)) - reach;
    to = to < 0 ? 0 : to >= n ? n - 1 : to;
    Entry entry = stage->table.at[from];
    for (int i = from; i != to; i += to > from ? 1 : -1)
        stage->table.at[i] = stage->table.at[i + (to > from ? 1 : -1)];
    stage->table.at[to] = entry;
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* ret_counts: called right, called wrong, called wrong and seen to go wrong. */
static void compare(const PlanCase *what, int reach, int *ret_counts)
{
    Arena *arena = arena_new("verdicts");
    Setting setting;
    set_up(&setting, arena, what);
    Program *program = setting.program;
    Entry **saved = ARENA_ARRAY(arena, Entry *, program->stages);
    for (int s = 0; s < program->stages; s++) {
        saved[s] = ARENA_ARRAY(arena, Entry, program->stage[s].table.n);
        memcpy(saved[s], program->stage[s].table.at,
               (size_t)program->stage[s].table.n * sizeof **saved);
    }
    for (uint64_t trial = 0; trial < 60; trial++) {
        for (uint64_t k = 0; k <= trial % 3; k++)
            displace(program, 17 + trial, k, reach);
        CheckReport report;
        bool right = program_holds(program, NULL, &report), shows = false;
        for (uint64_t seed = 0; seed < 3; seed++) {
            double loss[ROUNDS], norm2[ROUNDS];
            bool equal = run(&setting, seed, loss, norm2);
            for (int r = 0; r < ROUNDS; r++)
                equal = equal && same(loss[r], setting.loss[r]) && same(norm2[r], setting.norm2[r]);
            if (right && !equal)
                fail_msg("trial %d is called right, and stops or gives another loss in order %d",
                         (int)trial, (int)seed);
            shows |= !equal;
        }
        ret_counts[0] += right;
        ret_counts[1] += !right;
        ret_counts[2] += shows;
        for (int s = 0; s < program->stages; s++)
            memcpy(program->stage[s].table.at, saved[s],
                   (size_t)program->stage[s].table.n * sizeof **saved);
    }
    arena_free(arena);
}

static void test_verdicts(void **state)
{
    (void)state;
    static const PlanCase what[] = {
        {tiny_llama, NULL, 2, 4, 4, "pp=2,mbs=1", "fp64", 0},
        {tiny_llama, NULL, 2, 4, 4, "pp=2,mbs=1,schedule=gpipe", "fp64", 0},
        {tiny_gpt2, NULL, 4, 6, 4, "pp=2,dp=2,mbs=1,zero=1", "fp64", 0},
    };
    int counts[3] = {0};
    for (size_t i = 0; i < sizeof what / sizeof *what; i++)
        for (int reach = 1; reach <= 9; reach += 4)
            compare(&what[i], reach, counts);
    print_message("%d called right and equal, %d called wrong, of which %d show\n", counts[0],
                  counts[1], counts[2]);
    assert_true(counts[0] > 50 && counts[2] > 50); /* both occur, or nothing was compared */
}

int main(void)
{
    const struct CMUnitTest group[] = {cmocka_unit_test(test_verdicts)};
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
