/* test_brute.c - the search equals brute force over its declared space, and the tree of cuts inside
 * each family. */
#include <stdlib.h>
#include <string.h>

#include "planner/assess.h"
#include "planner/search_in.h"
#include "tests/check.h"
#include "tests/planner/problems.h"

enum {
    PROBLEMS = 40,
    SPARSE_PROBLEMS = 8,
    FAR_PROBLEMS = 8,
    LONG_PROBLEMS = 12,
    APART_PROBLEMS = 20,
    WIDE_PROBLEMS = 16,
    WIDE_SEED = 1
};

/* ---- brute force ---- */

typedef struct Brute {
    int64_t best, plans, fitting;
    int64_t uneven;   /* families with several chunks, or W apart, whose layers do not divide */
    int64_t labelled; /* families whose blocks have a choice of labels */
    Family *family;
    int64_t *end;
    int first_link[MAX_STAGES + 1];
} Brute;

static bool plan_fits(Brute *brute)
{
    for (int s = 0; s < brute->family->order->stages; s++) {
        const StageCost *cost =
            family_stage(brute->family, s, brute->first_link[s], brute->first_link[s + 1]);
        if (stage_bytes(brute->family, cost, s) > family_budget(brute->family))
            return false;
    }
    return true;
}

static void every_cut(Brute *brute, int stage)
{
    int stages = brute->family->order->stages, links = brute->family->deck->net->chain.n;
    if (stage == stages) {
        brute->plans++;
        if (!plan_fits(brute))
            return;
        brute->fitting++;
        int64_t ns = family_segment(brute->family, brute->first_link, brute->end);
        brute->best = ns < brute->best ? ns : brute->best;
        return;
    }
    int begin = brute->first_link[stage];
    int low = stage == stages - 1 ? links : begin + 1, high = links - (stages - 1 - stage);
    for (int end = low; end <= high; end++) {
        brute->first_link[stage + 1] = end;
        every_cut(brute, stage + 1);
    }
}

/* The ways that the space has to cut a family of several chunks, or of W apart. */
static void few_cuts(Brute *brute, const Problem *problem, const Pins *pins)
{
    ChunkCut cut[MAX_CHUNK_CUTS];
    int cuts = chunk_cuts(problem, pins, cut),
        n = cuts * (family_even_tails(brute->family, false) + 1);
    brute->uneven += cuts > 1;
    for (int i = 0; i < n; i++) {
        int first_link[MAX_CHUNKS + 1];
        bool fits = true;
        chunk_links(problem, pins, &cut[i % cuts], first_link);
        family_even_tails(brute->family, i >= cuts);
        assert_int_equal(first_link[pins_chunks(pins)], problem->net->chain.n);
        brute->plans++;
        for (int s = 0; s < brute->family->order->stages; s++) {
            StageBytes bytes = family_bytes(brute->family, first_link, s);
            fits = fits && bytes.all <= family_budget(brute->family) &&
                   family_fits_far(brute->family, &bytes);
        }
        if (!fits)
            continue;
        brute->fitting++;
        int64_t ns = family_segment(brute->family, first_link, brute->end);
        brute->best = ns < brute->best ? ns : brute->best;
    }
}

static void every_plan(Brute *brute, const Problem *problem, const Pins *pins)
{
    if (pins_plain(pins))
        every_cut(brute, 0);
    else
        few_cuts(brute, problem, pins);
}

typedef struct Tally {
    int problems;
    int64_t dealt, heads; /* answers with the sequence in a zigzag; with exchanged heads */
    int64_t plans, fitting, nothing, simulated, labelled, chosen;
    int64_t uneven;        /* families with few cuts, but more than one */
    int64_t apart, shared; /* answers with W apart or several chunks; with shared experts */
    int64_t away;          /* with homes in another memory */
    int64_t mixed;         /* answers whose layers differ, */
    int64_t mixed_apart;   /* of these with W apart, several chunks, or steps that flow */
    int64_t split;         /* with experts that ranks of tp share, or have all */
    int64_t passing, braided, rounds, padded;
} Tally;

static int64_t brute_force(Arena *arena, const Problem *problem, const Pins *given, Search *search,
                           Tally *tally)
{
    Pins *space;
    int families = search_space(problem, given, arena, &space);
    Brute brute = {.best = INT64_MAX};
    for (int f = 0; f < families; f++) {
        Pins *pick;
        int picks = search_picks(search, arena, &space[f], &pick);
        for (int i = 0; i < picks; i++) {
            Arena *own = arena_new("family");
            brute.family = search_family(search, own, &pick[i]);
            if (brute.family) {
                brute.labelled += !pins_mix(&pick[i]) && picks > 1;
                brute.end = ARENA_ARRAY(own, int64_t, brute.family->order->n);
                every_plan(&brute, problem, &pick[i]);
            }
            arena_free(own);
        }
    }
    tally->labelled += brute.labelled;
    tally->plans += brute.plans;
    tally->fitting += brute.fitting;
    tally->uneven += brute.uneven;
    return brute.best;
}

/* What was found is a plan with this step and these bytes. */
static void check_is_a_plan(const Problem *problem, const Found *found)
{
    Problem own = *problem;
    own.arena = arena_new("plan");
    Net *net;
    Plan *plan = plan_make(&own, &found->pins, NULL, &net);
    if (!plan)
        fail_msg("%s: %s", pins_text(own.arena, &found->pins), diag_item(own.diag, 0)->text);
    const Assessment *it = assess_plan(own.arena, plan, net, 0);
    assert_int_equal(it->segment_ns, found->step_ns);
    assert_true(it->peak_bytes <= found->bytes);
    arena_free(own.arena);
}

static void check_pins_equal_brute_force(Arena *arena, Problem *problem, const Pins *given,
                                         Tally *tally)
{
    Search *search = search_new(problem);
    SearchLimits limits = {0};
    SearchResult result;
    search_run(search, given, &limits, &result);
    int64_t best = brute_force(arena, problem, given, search, tally);
    assert_true(result.complete);
    assert_int_equal(result.found, best < INT64_MAX);
    if (result.found)
        assert_int_equal(result.best.step_ns, best);
    else
        assert_true(result.tightest.known);
    tally->problems++;
    tally->mixed += result.found && result.best.pins.ranges > 0;
    tally->mixed_apart +=
        result.found && result.best.pins.ranges > 0 && !pins_plain(&result.best.pins);
    if (result.found)
        check_is_a_plan(problem, &result.best);
    tally->nothing += !result.found;
    tally->simulated += result.stats.plans;
    tally->chosen += result.found && result.best.pins.block != NONE;
    tally->apart += result.found && !pins_plain(&result.best.pins);
    for (int k = 0, away = 0; k < KEPT_COUNT && result.found && !away; k++)
        tally->away += away = result.best.pins.home[k] > MEMORY_HBM;
    tally->dealt += result.found && result.best.pins.order == ORDER_ZIGZAG;
    tally->heads +=
        result.found && (result.best.pins.cp_heads > 1 ||
                         (result.best.pins.cp > 1 && result.best.pins.cp_by == CROSS_HEADS));
    tally->shared += result.found && result.best.pins.ep > 1;
    tally->split += result.found && result.best.pins.etp < result.best.pins.tp;
    tally->passing += result.found && result.best.pins.tp_by == CROSS_RING;
    tally->braided += result.found && result.best.pins.braid > 0;
    tally->rounds += result.found && result.best.pins.rounds > 1;
    tally->padded += result.found && result.best.pins.exchange == EXCHANGE_PADDED;
    assert_int_equal(result.stats.considered, result.stats.cut_memory + result.stats.cut_bound +
                                                  result.stats.simulated + result.stats.open);
    search_free(search);
    problem_free(problem);
}

static void check_equals_brute_force(Arena *arena, Problem *problem, Tally *tally)
{
    Pins none = pins_none();
    check_pins_equal_brute_force(arena, problem, &none, tally);
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    Dice rng = {2024, 0};
    Tally tally = {0};
    for (int i = 0; i < PROBLEMS; i++) {
        Arena *arena = arena_new("brute");
        Problem *problem = problem_random(arena, &rng, 6);
        problem->refine = i % 2;
        check_equals_brute_force(arena, problem, &tally);
        arena_free(arena);
    }
    print_message("# %lld plans, %lld fit; %lld of %d problems have none; %lld simulated\n"
                  "# %lld families had a choice of labels, %lld answers chose one; %lld have "
                  "several chunks, or W apart; %lld such families do not divide; %lld mix\n",
                  (long long)tally.plans, (long long)tally.fitting, (long long)tally.nothing,
                  PROBLEMS, (long long)tally.simulated, (long long)tally.labelled,
                  (long long)tally.chosen, (long long)tally.apart, (long long)tally.uneven,
                  (long long)tally.mixed);
    /* the problems must be worth something: memory matters, and most have an answer */
    assert_true(tally.plans > 50000);
    assert_true(tally.fitting > tally.plans / 10 && tally.fitting < tally.plans);
    assert_true(tally.nothing > 0 && tally.nothing < PROBLEMS / 2);
    assert_true(tally.simulated < tally.plans / 15);
    assert_true(tally.labelled > PROBLEMS && tally.chosen > 0 && tally.apart > 0 &&
                tally.uneven > PROBLEMS && tally.mixed > PROBLEMS / 10);
}

static bool is_tied(const Net *net)
{
    bool tied = false;
    for (int p = 0; p < net->params.n; p++)
        tied = tied || net->params.at[p].uses > 1;
    return tied;
}

/* Schedules with W apart, with several chunks on a stage, and of steps that flow, whose stages mix
 * layers too. */
static void test_equals_brute_force_of_mixes_apart(void **state)
{
    (void)state;
    static const char *const schedule[] = {"zbh1", "interleaved", "zbv", "2bw", "pipedream"};
    Dice rng = {31, 0};
    Tally tally = {0};
    for (int i = 0; i < APART_PROBLEMS; i++) {
        Arena *arena = arena_new("apart");
        Problem *problem = problem_random(arena, &rng, 8);
        Pins given = pins_none();
        given.pp = 2;
        given.schedule = schedule[i % 5];
        if (i % 5 > 2 && is_tied(problem->net)) /* which each stage would step by itself */
            given.schedule = schedule[i % 3];
        check_pins_equal_brute_force(arena, problem, &given, &tally);
        arena_free(arena);
    }
    print_message("# %lld plans, %lld fit; %lld of %d answers mix\n", (long long)tally.plans,
                  (long long)tally.fitting, (long long)tally.mixed_apart, APART_PROBLEMS);
    assert_true(tally.mixed_apart > 0);
}

/* Models with experts, which ranks may share: with and without them the best plan is the best. */
static void test_equals_brute_force_with_experts(void **state)
{
    (void)state;
    Dice rng = {77, 0};
    Tally tally = {0};
    for (int i = 0; i < SPARSE_PROBLEMS; i++) {
        Arena *arena = arena_new("sparse");
        check_equals_brute_force(arena, problem_sparse(arena, &rng, 3), &tally);
        arena_free(arena);
    }
    assert_true(tally.shared > 0 && tally.shared < SPARSE_PROBLEMS);
    assert_true(tally.fitting < tally.plans);
    print_message("# %lld plans, %lld fit; %lld of %d answers share experts\n",
                  (long long)tally.plans, (long long)tally.fitting, (long long)tally.shared,
                  SPARSE_PROBLEMS);
}

/* A wide space, with pins and machines that make something of each of its choices; and rounds,
 * where there is to be room for all rows that can come. */
static void test_equals_brute_force_in_a_wide_space(void **state)
{
    (void)state;
    Dice rng = {WIDE_SEED, 0};
    Tally tally = {0};
    for (int i = 0; i < WIDE_PROBLEMS; i++) {
        Arena *arena = arena_new("wide");
        Problem *problem = problem_sparse(arena, &rng, 3);
        Device *device = &problem->cluster->device;
        LinkLevel *inner = &problem->cluster->level[0];
        Pins given = pins_none();
        problem->wide = true;
        if (i % 4 == 0) {
            given.tp = 2;
            given.sp = 1;
        } else if (i % 4 == 1) { /* nothing to start, little to wait for, and much to send */
            given.tp = 2;
            given.etp = 2;
            given.sp = 1;
            device->launch_ns = inner->latency_ns = inner->half_bytes = 0;
            device->small_gemm_flops = 0;
            inner->bytes_per_s /= 8;
        } else if (i % 4 == 2) {
            given.pp = 2;
            given.tp = problem->ranks > 2 ? 2 : 1;
            device->memory_bytes *= 4;
            inner->bytes_per_s /= 8;
        } else {
            given.room = 0;
            given.tp = given.cp = 1;
            given.ep = 2;
            given.recompute = 0; /* nor mixes of it */
            device->memory_bytes /= 3;
            device->host_wait_ns = i % 8 == 7 ? INT64_C(1) << 30 : 0;
        }
        check_pins_equal_brute_force(arena, problem, &given, &tally);
        arena_free(arena);
    }
    print_message("# %lld plans, %lld fit; of %d answers %lld have etp below tp, %lld rings on tp, "
                  "%lld two rows in one, %lld rounds, %lld padded messages\n",
                  (long long)tally.plans, (long long)tally.fitting, WIDE_PROBLEMS,
                  (long long)tally.split, (long long)tally.passing, (long long)tally.braided,
                  (long long)tally.rounds, (long long)tally.padded);
    assert_true(tally.split > 0 && tally.passing > 0 && tally.braided > 0 && tally.rounds > 0 &&
                tally.padded > 0);
}

/* The search may keep things in another memory: what would not fit, or not so fast, does then. */
static void test_equals_brute_force_with_offload(void **state)
{
    (void)state;
    Dice rng = {5, 0};
    Tally tally = {0}, near = {0};
    for (int i = 0; i < FAR_PROBLEMS; i++)
        for (int far = 0; far < 2; far++) {
            Dice same = rng;
            Arena *arena = arena_new("far");
            Problem *problem = problem_random(arena, far ? &rng : &same, 6);
            for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++)
                problem->cluster->store[m] =
                    (Store){.bytes = INT64_C(1) << 40,
                            .read_bytes_per_s = INT64_C(40) << (32 - 2 * m),
                            .write_bytes_per_s = INT64_C(40) << (32 - 2 * m),
                            .latency_ns = 2000};
            problem->offload = !far ? MEMORY_HBM : i % 2 ? MEMORY_NVME : MEMORY_DRAM;
            check_equals_brute_force(arena, problem, far ? &tally : &near);
            arena_free(arena);
        }
    assert_true(tally.away > 0 && near.away == 0);
    assert_true(tally.nothing < near.nothing);
    print_message("# %lld plans, %lld fit; %lld of %d answers keep something in another memory; "
                  "%lld have none, %lld without\n",
                  (long long)tally.plans, (long long)tally.fitting, (long long)tally.away,
                  FAR_PROBLEMS, (long long)tally.nothing, (long long)near.nothing);
}

/* Sequences that are long enough to be cut: in a zigzag, by heads, both. */
static void test_equals_brute_force_of_long_sequences(void **state)
{
    (void)state;
    Dice rng = {5, 0};
    Tally tally = {0};
    for (int i = 0; i < LONG_PROBLEMS; i++) {
        Arena *arena = arena_new("long");
        check_equals_brute_force(arena, problem_long(arena, &rng, 2), &tally);
        arena_free(arena);
    }
    print_message("# %lld plans, %lld fit; of %d answers %lld are dealt out, %lld exchange heads\n",
                  (long long)tally.plans, (long long)tally.fitting, LONG_PROBLEMS,
                  (long long)tally.dealt, (long long)tally.heads);
    assert_true(tally.dealt > 0 && tally.heads > 0 &&
                tally.dealt + tally.heads < 2 * LONG_PROBLEMS);
}

/* Inside one family nothing is left to other families: the tree of cuts must find the best
 * itself.
 */
static void check_cuts(Arena *arena, Search *search, const Pins *pins, int64_t *ret_cuts,
                       int64_t *ret_late, int64_t *ret_far)
{
    Family *family = pins_plain(pins) ? search_family(search, arena, pins) : NULL;
    if (!family)
        return;
    Brute brute = {.best = INT64_MAX, .family = family};
    brute.end = ARENA_ARRAY(arena, int64_t, family->order->n);
    every_cut(&brute, 0);
    Deadline never = {0};
    CutStats stats = {0}, first = {0};
    CutTable *table = cuts_table(arena, family, NULL, INT64_MAX);
    Cuts at_once = cuts_first(table, INT64_MAX, &first);
    Cuts cuts = cuts_search(cuts_table(arena, family, NULL, INT64_MAX), INT64_MAX, &never, &stats);
    assert_int_equal(cuts.step_ns, brute.best);
    *ret_cuts += brute.plans;
    *ret_far += family_updates_far(family);
    *ret_late += at_once.step_ns != brute.best;
}

static void test_cuts_of_a_family_equal_brute_force(void **state)
{
    (void)state;
    Dice rng = {11, 0};
    int64_t cuts = 0, late = 0, far = 0;
    for (int i = 0; i < 25; i++) {
        Arena *arena = arena_new("cuts");
        Problem *problem = problem_random(arena, &rng, 11);
        Search *search = search_new(problem);
        Pins deep = pins_none(), *space;
        if (i % 3 == 2) { /* rows wait for weights, updates for state */
            for (int m = MEMORY_DRAM; m <= MEMORY_NVME; m++)
                problem->cluster->store[m] = (Store){.bytes = INT64_C(1) << 42,
                                                     .read_bytes_per_s = INT64_C(8) << 30,
                                                     .write_bytes_per_s = INT64_C(4) << 30,
                                                     .latency_ns = 2000};
            deep.zero = 3;
            deep.home[KEPT_WEIGHTS] = MEMORY_DRAM;
            deep.home[KEPT_GRADIENTS] = i % 2 ? MEMORY_DRAM : MEMORY_HBM;
            deep.home[KEPT_STATE] = MEMORY_NVME;
        }
        for (deep.pp = 2; deep.pp <= problem->ranks; deep.pp *= 2) {
            int families = search_space(problem, &deep, arena, &space);
            for (int k = 0; k < 30 && families > 0; k++)
                check_cuts(arena, search, &space[dice(&rng, 0, families - 1)], &cuts, &late, &far);
        }
        search_free(search);
        problem_free(problem);
        arena_free(arena);
    }
    /* the first plans are not always the best: the tree has work */
    assert_true(cuts > 20000);
    assert_true(late > 20 && far > 100);
    print_message("# %lld cuts; the tree was needed %lld times; %lld families have far homes\n",
                  (long long)cuts, (long long)late, (long long)far);
}

/* Where a step has few micro-batches, how it ends is much of it, and many cuts are nearly
 * equal: the tree must not look at them all. There are 2.6 million cuts of 32 layers into 8
 * stages. */
static void test_few_micro_batches_are_few_plans(void **state)
{
    (void)state;
    int left = 0;
    for (int tied = 0; tied < 2; tied++)
        for (int micros = 1; micros <= 16; micros *= 2) {
            Arena *arena = arena_new("deep");
            Problem *problem = problem_deep(arena, 32, tied, micros);
            Search *search = search_new(problem);
            Pins pins = pins_given(problem, "pp=8,mbs=1"), *space;
            Family *family = search_family(search, arena, &pins);
            int families = search_space(problem, &pins, arena, &space);
            assert_true(family && families > 0);
            Deadline never = {0};
            CutStats stats = {0};
            Cuts cuts =
                cuts_search(cuts_table(arena, family, NULL, INT64_MAX), INT64_MAX, &never, &stats);
            assert_true(cuts.step_ns < INT64_MAX);
            assert_true(stats.simulated < 500);
            /* a tree that is left early has a plan and says what may be below it */
            Deadline early = {.nodes = 8};
            CutStats cut = {0};
            Cuts some =
                cuts_search(cuts_table(arena, family, NULL, INT64_MAX), INT64_MAX, &early, &cut);
            assert_true(some.step_ns >= cuts.step_ns && some.step_ns < INT64_MAX);
            assert_true(cut.complete == !cut.left && cut.bound <= cuts.step_ns);
            left += cut.left;
            early = (Deadline){.plans = 3};
            cut = (CutStats){0};
            some = cuts_search(cuts_table(arena, family, NULL, INT64_MAX), INT64_MAX, &early, &cut);
            assert_true(cut.simulated <= 4 && cut.bound <= cuts.step_ns);
            search_free(search);
            problem_free(problem);
            arena_free(arena);
        }
    assert_true(left > 0);
}

/* Word `wide`: the wide space alone, which takes half as long as all others. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_equals_brute_force_of_mixes_apart),
        cmocka_unit_test(test_equals_brute_force_with_experts),
        cmocka_unit_test(test_equals_brute_force_with_offload),
        cmocka_unit_test(test_equals_brute_force_of_long_sequences),
        cmocka_unit_test(test_cuts_of_a_family_equal_brute_force),
        cmocka_unit_test(test_few_micro_batches_are_few_plans),
    };
    const struct CMUnitTest wide[] = {cmocka_unit_test(test_equals_brute_force_in_a_wide_space)};
    if (argc > 1 && strcmp(argv[1], "wide") == 0)
        return cmocka_run_group_tests(wide, NULL, NULL) != 0;
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
