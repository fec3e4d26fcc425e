/* test_search.c - labels, answers, and that no bound is above what it bounds. */
#include <stdlib.h>
#include <string.h>

#include "planner/search_in.h"
#include "tests/check.h"
#include "tests/planner/problems.h"

/* ---- labels ---- */

/* What a rank sends for one layer, in parts of the boundary's bytes that each other rank lacks.
 */
static int64_t layer_units(const Deck *deck, const Card **ret_card)
{
    const Card *card = *ret_card = &deck->card[deck->net->chain.at[1].class];
    int64_t unit =
        card->in_bytes / deck->variant->key.spread.tp * (deck->variant->key.spread.tp - 1);
    assert_int_equal((card->forward.wire_bytes + card->backward.wire_bytes) % unit, 0);
    return (card->forward.wire_bytes + card->backward.wire_bytes) / unit;
}

/* Work of the streams, as the solver adds it up: what is gathered may run under something else.
 */
static int64_t card_work(const Card *card)
{
    int64_t ns = card->forward.compute_ns + card->backward.compute_ns;
    for (int level = 0; level < MAX_LEVELS; level++)
        ns += card->forward.block_ns[level] + card->backward.block_ns[level];
    return ns;
}

/* Without sequence parallelism a layer sums four times, eight units, where it keeps gathered
 * copies for backward; keeping shards it gathers three of them again. Every label is worth
 * something. */
static void test_labels_are_a_pareto_set(void **state)
{
    (void)state;
    Arena *arena = arena_new("labels");
    Problem *problem = problem_example(arena, "llama-3-8b", "dgx-h100", 64, 64, 4096, "bf16");
    Search *search = search_new(problem);
    Pins pins = pins_given(problem, "tp=4,sp=0,recompute=none,mbs=1");
    int labels = search_labels(search, &pins);
    assert_true(labels > 1 && labels <= MAX_LABELS);
    const Card *card, *before = NULL;
    for (pins.block = 0; pins.block < labels; pins.block++) {
        const Deck *deck = search_family(search, arena, &pins)->deck;
        int64_t units = layer_units(deck, &card);
        assert_true(pins.block > 0 || units == 8);
        assert_true(pins.block < labels - 1 || units == 11);
        if (before) {
            assert_true(card_work(card) > card_work(before));
            assert_true(card->forward.ns + card->backward.ns >=
                        before->forward.ns + before->backward.ns);
            assert_true(card->saved_bytes[SAVED_I] < before->saved_bytes[SAVED_I]);
        }
        before = card;
    }
    search_free(search);
    problem_free(problem);
    arena_free(arena);
}

static Found best_of(const Problem *problem, const Pins *pins)
{
    Search *search = search_new(problem);
    SearchLimits limits = {0};
    SearchResult result;
    search_run(search, pins, &limits, &result);
    assert_true(result.found && result.complete);
    search_free(search);
    return result.best;
}

/* Plenty of memory takes gathered copies, a byte too little shards; a pin takes what it says.
 */
static void test_search_chooses_a_label(void **state)
{
    (void)state;
    Arena *arena = arena_new("choice");
    Problem *problem = problem_example(arena, "llama-3-8b", "dgx-h100", 8, 64, 4096, "bf16");
    Device *device = &problem->cluster->device;
    Pins pins = pins_none();
    assert_true(pins_parse(problem->arena, problem->diag, "tp=8,sp=0,recompute=none,mbs=4", &pins));
    Found fast = best_of(problem, &pins);
    assert_int_equal(fast.pins.block, 0);
    pins.block = 1;
    Found small = best_of(problem, &pins);
    assert_int_equal(small.pins.block, 1);
    assert_true(small.bytes < fast.bytes && small.step_ns > fast.step_ns);
    pins.block = NONE;
    device->memory_bytes = device->margin_bytes + fast.bytes - 1;
    Found tight = best_of(problem, &pins);
    assert_int_equal(tight.pins.block, 1);
    assert_int_equal(tight.step_ns, small.step_ns);
    problem_free(problem);
    arena_free(arena);
}

/* A sequence of 128 Ki tokens is shared by ranks that see equally much of it, without a pin:
 * dealt out or by heads. In a row it takes longer, and so it does whole. */
static void test_long_sequences_are_shared(void **state)
{
    (void)state;
    static const char *const texts[] = {"order=identity,cp_by=gather", "cp=1"};
    Arena *arena = arena_new("shared");
    Problem *problem = problem_example(arena, "llama-3-8b", "dgx-h100", 16, 8, 131072, "bf16");
    Pins pins = pins_none();
    Found best = best_of(problem, &pins);
    assert_true(best.pins.cp > 1);
    assert_true(best.pins.order == ORDER_ZIGZAG || best.pins.cp_by == CROSS_HEADS);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pins = pins_none();
        assert_true(pins_parse(problem->arena, problem->diag, texts[i], &pins));
        assert_true(best_of(problem, &pins).step_ns > best.step_ns * 11 / 10);
    }
    problem_free(problem);
    arena_free(arena);
}

/* ---- bounds ---- */

/* Random ends, every stage with a link. */
static void random_cuts(Dice *rng, int links, int stages, int *ret)
{
    ret[0] = 0;
    for (int s = 0; s < stages; s++) {
        int most = links - (stages - 1 - s) - ret[s];
        ret[s + 1] = s == stages - 1 ? links : ret[s] + 1 + (int)dice(rng, 0, most - 1);
    }
}

/* Rows that are as long as their work end before those of the plan; what it keeps fits where
 * the plan does. */
static void check_rows(Arena *arena, const Problem *problem, const Work *work, const Pins *pins,
                       Family *family, const int *first_link, int64_t ns)
{
    const Order *order = family->order;
    int64_t *end = ARENA_ARRAY(arena, int64_t, order->n), bytes = 0;
    OrderTimes times;
    const Pins fast = pins_of_tail(pins);
    work_rows(work, problem, &fast, first_link, &times);
    order_simulate(order, &times, end);
    for (int i = 0; i < order->n; i++)
        assert_true(end[i] <= ns);
    for (int s = 0; s < order->stages; s++) {
        int64_t own = family_bytes(family, first_link, s).all;
        bytes = own > bytes ? own : bytes;
    }
    assert_true(rows_fit(work, problem, pins, order, first_link, bytes));
    assert_true(rows_fit(work, problem, pins, order, NULL, bytes));
}

static void check_bounds(Arena *arena, Dice *rng, const Problem *problem, Search *search,
                         const Work *work, const Pins *pins)
{
    Family *family = search_family(search, arena, pins);
    if (!family)
        return;
    int first_link[MAX_CHUNKS + 1];
    int64_t *end = ARENA_ARRAY(arena, int64_t, family->order->n);
    if (pins_chunks(pins) > problem->net->chain.n)
        return;
    random_cuts(rng, problem->net->chain.n, pins_chunks(pins), first_link);
    int64_t ns = family_segment(family, first_link, end);
    check_rows(arena, problem, work, pins, family, first_link, ns);
    if (!pins_plain(pins))
        return;
    const Pins fast = pins_of_tail(pins);
    assert_true(pipeline_bound(work_ns(work, problem, &fast), pins->pp, family->order->micros) <=
                ns);
    CutTable *fixed = cuts_table(arena, family, first_link, INT64_MAX);
    if (cuts_bound(fixed) < INT64_MAX)
        assert_true(cuts_bound(fixed) <= ns);
    int64_t least = INT64_MAX;
    bool fits = true;
    for (int s = 0; s < pins->pp; s++) {
        const StageCost *cost = family_stage(family, s, first_link[s], first_link[s + 1]);
        int64_t bytes = stage_bytes(family, cost, s);
        least = bytes < least ? bytes : least;
        fits &= bytes <= family_budget(family);
    }
    for (int solved = SOLVED_NONE; fits && pins_mix(pins) && solved <= SOLVED_BOTH; solved++)
        assert_true(mix_rows(search, family->order, pins, family_budget(family), (Solved)solved) <=
                    ns);
    if (fits) {
        assert_true(memory_bound(work, problem, pins) <= family_budget(family));
        assert_true(cuts_bound(cuts_table(arena, family, NULL, INT64_MAX)) <= ns);
    }
}

static void test_no_bound_is_above(void **state)
{
    (void)state;
    Dice rng = {7, 0};
    for (int i = 0; i < 40; i++) {
        Arena *arena = arena_new("bounds");
        Problem *problem = i < 26   ? problem_random(arena, &rng, 6)
                           : i < 34 ? problem_sparse(arena, &rng, 4)
                                    : problem_long(arena, &rng, 3);
        Search *search = search_new(problem);
        Work work = work_of(arena, problem);
        Pins none = pins_none(), *space;
        int families = search_space(problem, &none, arena, &space);
        for (int k = 0; k < 60; k++)
            check_bounds(arena, &rng, problem, search, &work, &space[dice(&rng, 0, families - 1)]);
        search_free(search);
        problem_free(problem);
        arena_free(arena);
    }
}

/* ---- what must hold of any answer ---- */

static int64_t best_with_memory(Arena *arena, Problem *problem, int64_t bytes)
{
    Cluster *cluster = ARENA_NEW(arena, Cluster);
    *cluster = *problem->cluster;
    cluster->device.memory_bytes = bytes;
    Problem own = *problem;
    own.cluster = cluster;
    Search *search = search_new(&own);
    Pins none = pins_none();
    SearchLimits limits = {0};
    SearchResult result;
    search_run(search, &none, &limits, &result);
    search_free(search);
    return result.found ? result.best.step_ns : INT64_MAX;
}

static void test_more_memory_is_never_slower(void **state)
{
    (void)state;
    Dice rng = {99, 0};
    for (int i = 0; i < 8; i++) {
        Arena *arena = arena_new("memory");
        Problem *problem = problem_random(arena, &rng, 6);
        int64_t before = INT64_MAX;
        for (int64_t kib = 600; kib <= 9600; kib *= 2) {
            int64_t now = best_with_memory(arena, problem, kib << 10);
            assert_true(now <= before);
            before = now;
        }
        assert_true(before < INT64_MAX);
        problem_free(problem);
        arena_free(arena);
    }
}

/* Pins narrow: the best plan under them is no faster, and does what they say. */
static void test_pins_narrow(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tp=2",       "pp=2",           "dp=2,zero=0", "recompute=full", "schedule=gpipe,pp=2",
        "mbs=1,sp=0", "pp=2,layers=3+5"};
    Arena *arena = arena_new("pins");
    Problem *problem = problem_example(arena, "llama-10m", "host", 4, 8, 128, "fp32");
    Search *search = search_new(problem);
    Pins none = pins_none();
    SearchLimits limits = {0};
    SearchResult whole, part;
    search_run(search, &none, &limits, &whole);
    assert_true(whole.found && whole.complete);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Pins pins = pins_none();
        assert_true(pins_parse(problem->arena, problem->diag, texts[i], &pins));
        search_run(search, &pins, &limits, &part);
        assert_true(part.found && part.complete);
        assert_true(part.best.step_ns >= whole.best.step_ns);
        assert_true(pins.tp < 0 || part.best.pins.tp == pins.tp);
        assert_true(pins.pp < 0 || part.best.pins.pp == pins.pp);
        assert_true(pins.zero < 0 || part.best.pins.zero == pins.zero);
        assert_true(pins.recompute < 0 || part.best.pins.recompute == pins.recompute);
        assert_true(pins.micro_batch <= 0 || part.best.pins.micro_batch == pins.micro_batch);
        for (int c = 0; c < pins.cuts; c++)
            assert_int_equal(part.best.pins.cut[c], pins.cut[c]);
        if (pins.schedule)
            assert_string_equal(part.best.pins.schedule, pins.schedule);
    }
    search_free(search);
    problem_free(problem);
    arena_free(arena);
}

/* The best plan of every search can be made, and is what it was found as. */
static void test_answers_can_be_made(void **state)
{
    (void)state;
    Dice rng = {5, 0};
    for (int i = 0; i < 20; i++) {
        Arena *arena = arena_new("made");
        Problem *problem = problem_random(arena, &rng, 6);
        Search *search = search_new(problem);
        Pins none = pins_none();
        SearchLimits limits = {0};
        SearchResult result;
        search_run(search, &none, &limits, &result);
        if (result.found) {
            Net *net;
            Plan *plan = plan_make(problem, &result.best.pins,
                                   search_variant(search, &result.best.pins), &net);
            assert_non_null(plan);
            Pins again = pins_of_plan(plan, net);
            if (result.best.pins.ranges == 0)
                assert_string_equal(pins_text(arena, &again), pins_text(arena, &result.best.pins));
            Net *other_net; /* layers that differ may be said in another way */
            Plan *other = plan_make(problem, &again, NULL, &other_net);
            assert_non_null(other);
            assert_string_equal(plan_text(arena, other, other_net), plan_text(arena, plan, net));
        }
        search_free(search);
        problem_free(problem);
        arena_free(arena);
    }
}

/* A search cut short says what is left; a complete one has no gap. */
static void test_time_limit_leaves_a_gap(void **state)
{
    (void)state;
    Arena *arena = arena_new("limit");
    Problem *problem = problem_example(arena, "llama-3-8b", "dgx-h100", 64, 256, 8192, "bf16");
    Search *search = search_new(problem);
    Pins none = pins_none();
    SearchLimits limits = {.time_ns = 1};
    SearchResult result;
    search_run(search, &none, &limits, &result);
    assert_false(result.complete);
    assert_false(result.found);
    assert_true(result.bound_ns > 0 && result.bound_ns < INT64_MAX);
    int64_t bound = result.bound_ns;
    limits.time_ns = 0;
    search_run(search, &none, &limits, &result);
    assert_true(result.complete && result.found);
    assert_int_equal(result.bound_ns, result.best.step_ns);
    assert_true(bound <= result.best.step_ns);
    search_free(search);
    problem_free(problem);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_are_a_pareto_set),
        cmocka_unit_test(test_search_chooses_a_label),
        cmocka_unit_test(test_long_sequences_are_shared),
        cmocka_unit_test(test_no_bound_is_above),
        cmocka_unit_test(test_more_memory_is_never_slower),
        cmocka_unit_test(test_pins_narrow),
        cmocka_unit_test(test_answers_can_be_made),
        cmocka_unit_test(test_time_limit_leaves_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
