/* test_check.c - the static proof: nothing is wrong with what we make, and whatever a rank does
 * otherwise is found: an event or a Step less, another address, another share. */
#include "ir/lower/check.h"

#include <string.h>

#include "ir/base/rng.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"

/* ---- what we make ---- */

static void check_good(Arena *arena, Program *program, int at)
{
    Diag *diag = diag_new(arena);
    CheckReport report;
    if (!program_check(arena, program, 2, diag, &report)) {
        diag_print(diag, stderr, false);
        fail_msg("case %d is called wrong", at);
    }
    int ranks = mesh_ranks(&program->plan->mesh), m = program->plan->micro_batches,
        p = program->stages;
    assert_int_equal(report.faults, 0);
    assert_int_equal(report.full, ranks);
    assert_int_equal(report.channels, 2 * (p - 1));
    assert_int_equal(report.messages, 2 * 2 * (p - 1) * m);
    int64_t elements = 0;
    for (int i = 0; i < program->net->params.n; i++) {
        const NetParam *param = &program->net->params.at[i];
        const Graph *graph = program->net->classes.at[param->class];
        elements +=
            value_elements(program->net, &graph->values.at[graph->params.at[param->param].value]);
    }
    assert_int_equal(report.elements, elements);
    assert_true(report.elements >= net_param_count(program->net));
}

static void test_good_programs(void **state)
{
    (void)state;
    program_each(check_good);
}

/* ---- events ---- */

typedef struct Drop {
    int64_t at, seen;
} Drop;

static bool drop_wait(void *context, Step *step)
{
    Drop *drop = context;
    for (int w = 0; w < step->waits; w++)
        if (drop->seen++ == drop->at) {
            memmove(&step->wait[w], &step->wait[w + 1],
                    (size_t)(step->waits - w - 1) * sizeof step->wait[0]);
            step->waits--;
            return true;
        }
    return true;
}

/* Events are the transitive reduction: enough, and not one too many. */
static void check_events(Arena *arena, Program *program, int at)
{
    (void)arena;
    int last = mesh_ranks(&program->plan->mesh) - 1;
    for (int s = 0; s < program->stages; s++)
        for (int coordinate = 0; coordinate <= last; coordinate += last ? last : 1) {
            CheckReport report, broken;
            assert_true(stage_holds(program, s, coordinate, NULL, &report));
            assert_true(report.events > 0);
            for (int64_t k = 0; k < report.events; k += coordinate ? 5 : 1) {
                Drop drop = {.at = k};
                CheckTap tap = {drop_wait, &drop};
                if (stage_holds(program, s, coordinate, &tap, &broken))
                    fail_msg("case %d, stage %d, rank %d: event %d of %d is not needed", at, s,
                             coordinate, (int)k, (int)report.events);
                assert_int_equal(broken.events, report.events - 1);
            }
        }
}

static void test_dropped_events(void **state)
{
    (void)state;
    program_each(check_events);
}

static bool wait_for_later(void *context, Step *step)
{
    Drop *drop = context;
    if (step->waits && drop->seen++ == drop->at)
        step->wait[0].seq += 100000;
    return true;
}

static void check_later(Arena *arena, Program *program, int at)
{
    (void)arena;
    (void)at;
    Drop drop = {.at = 3};
    CheckTap tap = {wait_for_later, &drop};
    CheckReport report;
    assert_false(stage_holds(program, 0, 0, &tap, &report));
}

static void test_waits_for_later_steps(void **state)
{
    (void)state;
    program_each(check_later);
}

/* ---- Steps ---- */

/* Leaves out one Step of one rank and numbers what follows anew, as if it had never been there. */
typedef struct Leave {
    int stage, coordinate;
    int64_t at, seen;
    bool gone;
    Stream stream;
    int64_t seq;
} Leave;

static bool leave_step(void *context, Step *step)
{
    Leave *leave = context;
    if (step->stage != leave->stage || step->coordinate != leave->coordinate)
        return true;
    if (leave->seen++ == leave->at) {
        leave->gone = true;
        leave->stream = step->stream;
        leave->seq = step->seq;
        return false;
    }
    if (!leave->gone)
        return true;
    if (step->stream == leave->stream)
        step->seq--;
    int kept = 0;
    for (int w = 0; w < step->waits; w++) {
        Wait wait = step->wait[w];
        if (wait.stream == leave->stream && wait.seq >= leave->seq)
            wait.seq--;
        if (wait.seq >= 0)
            step->wait[kept++] = wait;
    }
    step->waits = kept;
    return true;
}

static int64_t count_steps(const Program *program, int stage, int coordinate)
{
    Arena *arena = arena_new("walk");
    Walk *walk = walk_begin(arena, program, stage, coordinate, 2);
    int64_t n = 0;
    while (walk_next(walk))
        n++;
    arena_free(arena);
    return n;
}

/* Whatever a rank leaves out, somebody misses it. */
static void check_left_out(Arena *arena, Program *program, int at)
{
    (void)arena;
    int last = mesh_ranks(&program->plan->mesh) - 1;
    for (int s = 0; s < program->stages; s++)
        for (int coordinate = 0; coordinate <= last; coordinate += last ? last : 1) {
            int64_t n = count_steps(program, s, coordinate);
            for (int64_t k = 0; k < n; k += n / 40 + 1) {
                Leave leave = {.stage = s, .coordinate = coordinate, .at = k};
                CheckTap tap = {leave_step, &leave};
                CheckReport report;
                if (program_holds(program, &tap, &report))
                    fail_msg("case %d, stage %d, rank %d: Step %d of %d may be left out", at, s,
                             coordinate, (int)k, (int)n);
            }
        }
}

static void test_left_out_steps(void **state)
{
    (void)state;
    program_each(check_left_out);
}

/* Shifts one operand of one Step by a grain. */
typedef struct Shift {
    int64_t at, seen;
    int64_t by;
} Shift;

static bool shift_operand(void *context, Step *step)
{
    Shift *shift = context;
    if (step->coordinate != 0 || step->stage != 0)
        return true;
    for (int k = 0; k < step->operands; k++)
        if (step->operand[k].bytes > 0 && shift->seen++ == shift->at)
            step->operand[k].address += shift->by;
    return true;
}

static void check_shifted(Arena *arena, Program *program, int at)
{
    (void)arena;
    for (int64_t k = 0;; k += 19) {
        Shift shift = {.at = k, .by = k % 2 ? 64 : -64};
        CheckTap tap = {shift_operand, &shift};
        CheckReport report;
        bool good = program_holds(program, &tap, &report);
        if (shift.seen <= k)
            break;
        if (good)
            fail_msg("case %d: operand %d may be shifted by %d bytes", at, (int)k, (int)shift.by);
    }
}

static void test_shifted_operands(void **state)
{
    (void)state;
    program_each(check_shifted);
}

/* ---- what one rank does otherwise ---- */

typedef enum {
    LIE_OWN_MORE,
    LIE_OWN_LESS,
    LIE_DECAY,
    LIE_ELEMENTS,
    LIE_MOVE,
    LIE_LOSS,
    LIE_FIRST,
    LIE_COUNT
} Lie;

typedef struct Liar {
    Lie lie;
    const Program *program;
    int coordinate;
    Move other;
    bool told;
} Liar;

static bool tell_lie(void *context, Step *step)
{
    Liar *liar = context;
    const Program *program = liar->program;
    const StageProgram *stage = &program->stage[step->stage];
    if (step->coordinate != liar->coordinate || liar->told)
        return true;
    bool sumsq = step->node == &program->optimizer->nodes.at[program->sumsq];
    bool adamw = step->node == &program->optimizer->nodes.at[program->adamw];
    bool collective = step->kind == STEP_MOVE && step->move->kind <= MOVE_PERMUTE;
    int width = dtype_bytes(program->recipe->gradient);
    switch (liar->lie) {
    case LIE_OWN_MORE:
        if (sumsq && step->count == 0) {
            step->count = stage->buckets.at[step->bucket].share_elements;
            step->operand[0].bytes = step->count * width;
            liar->told = true;
        }
        break;
    case LIE_OWN_LESS:
        if (sumsq && step->count > 0) {
            step->count = step->operand[0].bytes = 0;
            liar->told = true;
        }
        break;
    case LIE_DECAY:
        if (adamw) {
            step->decay = !step->decay;
            liar->told = true;
        }
        break;
    case LIE_ELEMENTS:
        if (collective && step->bucket != NONE) {
            step->elements++;
            liar->told = true;
        }
        break;
    case LIE_MOVE:
        if (collective) {
            liar->other = *step->move;
            liar->other.kind =
                liar->other.kind == MOVE_ALL_REDUCE ? MOVE_ALL_GATHER : MOVE_ALL_REDUCE;
            step->move = &liar->other;
            liar->told = true;
        }
        break;
    case LIE_LOSS:
        if (step->kind == STEP_OWN_LOSS) {
            step->count = !step->count;
            liar->told = true;
        }
        break;
    case LIE_FIRST: /* adds where it should write, or the other way round */
        for (int k = 0; k < step->operands && step->inst && !liar->told; k++)
            if (step->operand[k].write && step->operand[k].copy->home == HOME_ACC) {
                step->operand[k].read = !step->operand[k].read;
                liar->told = true;
            }
        break;
    case LIE_COUNT:
        break;
    }
    return true;
}

static void check_lies(Arena *arena, Program *program, int at)
{
    (void)arena;
    int ranks = mesh_ranks(&program->plan->mesh);
    for (int lie = 0; lie < LIE_COUNT; lie++)
        for (int coordinate = 0; coordinate < ranks; coordinate++) {
            Liar liar = {.lie = (Lie)lie, .program = program, .coordinate = coordinate};
            CheckTap tap = {tell_lie, &liar};
            CheckReport report;
            bool good = program_holds(program, &tap, &report);
            if (liar.told == good)
                fail_msg("case %d: rank %d lies in way %d, and it is called %s", at, coordinate,
                         lie, good ? "right" : "wrong");
        }
}

static void test_one_rank_lies(void **state)
{
    (void)state;
    program_each(check_lies);
}

/* A program too large to walk every rank in full: the others are walked on one micro-batch, and
 * their lies are found there. */
static void test_large_program(void **state)
{
    (void)state;
    Arena *arena = arena_new("large");
    PlanCase what = {model_with_layers(arena, plan_cases[0].model, 8),
                     NULL,
                     4,
                     128,
                     4,
                     "tp=2,dp=2,pp=1,sp=1,zero=1,mbs=1",
                     NULL,
                     0};
    Program *program = program_of(arena, &what);
    CheckReport report;
    assert_true(program_holds(program, NULL, &report));
    assert_int_equal(report.full, 1);
    assert_int_equal(report.coordinates, 4);
    check_lies(arena, program, NONE);
    arena_free(arena);
}

/* ---- many programs ---- */

static int draw(uint64_t seed, uint64_t index, int n)
{
    return (int)(rng_u64(99, seed, index) % (uint64_t)n);
}

/* Whatever the pins, the layers, the batch and the buckets: it holds, and a few of its events
 * dropped are missed. */
static void test_random_programs(void **state)
{
    (void)state;
    static const char *const recipe[] = {"fp32", "bf16", "fp64"};
    for (uint64_t i = 0; i < 60; i++) {
        Arena *arena = arena_new("random");
        int pp = 1 + draw(i, 0, 3), dp = 1 + draw(i, 1, 3), tp = 1 << draw(i, 2, 2),
            mbs = 1 + draw(i, 3, 2);
        int layers = pp + draw(i, 4, 3), m = 1 + draw(i, 5, 6);
        PlanCase what = {model_with_layers(arena, plan_cases[draw(i, 6, 2) ? 0 : 5].model, layers),
                         NULL,
                         pp * dp * tp,
                         mbs * dp * m,
                         4 + 4 * draw(i, 7, 2),
                         NULL,
                         recipe[draw(i, 8, 3)],
                         0};
        what.pins =
            arena_printf(arena, "tp=%d,dp=%d,pp=%d,sp=%d,zero=%d,recompute=%s,mbs=%d,schedule=%s",
                         tp, dp, pp, tp > 1 && draw(i, 9, 2), draw(i, 10, 2),
                         draw(i, 11, 2) ? "full" : "none", mbs, draw(i, 12, 2) ? "gpipe" : "1f1b");
        what.bucket_bytes = draw(i, 13, 2) ? 200 + draw(i, 14, 3000) : 0;
        Program *program = program_of(arena, &what);
        CheckReport report, broken;
        if (!program_holds(program, NULL, &report))
            fail_msg("%d layers, %d micro-batches, %s, %s: called wrong", layers, m, what.pins,
                     what.recipe);
        for (int s = 0; s < pp; s++) {
            assert_true(stage_holds(program, s, 0, NULL, &report));
            for (int64_t k = 0; k < report.events; k += report.events / 4 + 1) {
                Drop drop = {.at = k};
                CheckTap tap = {drop_wait, &drop};
                assert_false(stage_holds(program, s, 0, &tap, &broken));
            }
        }
        arena_free(arena);
    }
}

/* A full-size plan: 126 layers on 16 stages, 64 micro-batches, more than a million Steps; each of
 * its 405,853,388,800 parameters has one owner, and what holds for 64 micro-batches holds for more.
 */
static void test_full_size(void **state)
{
    (void)state;
    Arena *arena = arena_new("full");
    PlanCase what = {"examples/models/llama-3.1-405b.json", "dgx-h100", 256, 128, 8192,
                     "tp=8,pp=16,dp=2,sp=1,zero=1,mbs=1",   "bf16",     0};
    CheckReport report;
    assert_true(program_holds(program_of(arena, &what), NULL, &report));
    assert_true(report.steps > 1000000);
    assert_true(report.elements == INT64_C(405853388800));
    assert_int_equal(report.padding, 0);
    assert_int_equal(report.messages, 2 * 2 * 15 * 64);
    assert_true(report.period > 0 && report.periodic_from < 64);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_good_programs),
        cmocka_unit_test(test_dropped_events),
        cmocka_unit_test(test_waits_for_later_steps),
        cmocka_unit_test(test_left_out_steps),
        cmocka_unit_test(test_shifted_operands),
        cmocka_unit_test(test_one_rank_lies),
        cmocka_unit_test(test_large_program),
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_full_size),
    };
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
