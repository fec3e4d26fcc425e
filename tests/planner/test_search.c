/* test_search.c - the search equals brute force over its declared space, and no bound is above what
 * it bounds. */
#include <stdlib.h>
#include <string.h>

#include "planner/search_in.h"
#include "tests/check.h"
#include "tests/planner/problems.h"

enum { PROBLEMS = 50, SPARSE_PROBLEMS = 8, FAR_PROBLEMS = 8, LONG_PROBLEMS = 12 };

/* ---- brute force ---- */

typedef struct Brute {
    int64_t best, plans, fitting;
    int64_t labelled; /* families whose blocks have a choice of labels */
    Family *family;
    int64_t *end;
    int first_link[MAX_STAGES + 1];
} Brute;

static bool plan_fits(Brute *brute)
{
    for (int s = 0; s < brute->family->order->stages; s++) {
        const StageCost *cost =
            family_stage(brute->family, brute->first_link[s], brute->first_link[s + 1]);
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

/* The one way that the space has to cut a family of several chunks, or of W apart. */
static void even_cuts(Brute *brute, const Problem *problem, const Pins *pins)
{
    int chunks = brute->family->order->chunks, first_link[MAX_CHUNKS + 1];
    search_links(problem, pins, first_link);
    for (int c = 0; c < chunks; c++)
        if (first_link[c + 1] <= first_link[c])
            return;
    brute->plans++;
    for (int s = 0; s < brute->family->order->stages; s++)
        if (family_bytes(brute->family, first_link, s).all > family_budget(brute->family))
            return;
    brute->fitting++;
    int64_t ns = family_segment(brute->family, first_link, brute->end);
    brute->best = ns < brute->best ? ns : brute->best;
}

static void every_plan(Brute *brute, const Problem *problem, const Pins *pins)
{
    if (pins_plain(pins))
        every_cut(brute, 0);
    else
        even_cuts(brute, problem, pins);
}

static int64_t brute_force(Arena *arena, const Problem *problem, Search *search, int64_t *ret_plans,
                           int64_t *ret_fitting, int64_t *ret_labelled)
{
    Pins none = pins_none(), *space;
    int families = search_space(problem, &none, arena, &space);
    Brute brute = {.best = INT64_MAX};
    for (int f = 0; f < families; f++)
        for (int i = 0, labels = search_labels(search, &space[f]); i < labels; i++) {
            Pins pins = space[f];
            pins.block = labels > 1 ? i : NONE;
            brute.family = search_family(search, arena, &pins);
            if (!brute.family)
                continue;
            brute.labelled += labels > 1;
            brute.end = ARENA_ARRAY(arena, int64_t, brute.family->order->n);
            every_plan(&brute, problem, &pins);
        }
    *ret_labelled += brute.labelled;
    *ret_plans += brute.plans;
    *ret_fitting += brute.fitting;
    return brute.best;
}

typedef struct Tally {
    int problems;
    int64_t dealt, heads; /* answers with the sequence in a zigzag; with exchanged heads */
    int64_t plans, fitting, nothing, simulated, labelled, chosen;
    int64_t apart, shared; /* answers with W apart or several chunks; with shared experts */
    int64_t away;          /* with homes in another memory */
} Tally;

static void check_equals_brute_force(Arena *arena, Problem *problem, Tally *tally)
{
    Search *search = search_new(problem);
    Pins none = pins_none();
    SearchLimits limits = {0};
    SearchResult result;
    search_run(search, &none, &limits, &result);
    int64_t best =
        brute_force(arena, problem, search, &tally->plans, &tally->fitting, &tally->labelled);
    assert_true(result.complete);
    assert_int_equal(result.found, best < INT64_MAX);
    if (result.found)
        assert_int_equal(result.best.step_ns, best);
    else
        assert_true(result.tightest.known);
    tally->problems++;
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
    assert_int_equal(result.stats.considered, result.stats.cut_memory + result.stats.cut_bound +
                                                  result.stats.simulated + result.stats.open);
    search_free(search);
    problem_free(problem);
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    Dice rng = {2024, 0};
    Tally tally = {0};
    for (int i = 0; i < PROBLEMS; i++) {
        Arena *arena = arena_new("brute");
        check_equals_brute_force(arena, problem_random(arena, &rng, 6), &tally);
        arena_free(arena);
    }
    /* the problems must be worth something: memory matters, and most have an answer */
    assert_true(tally.plans > 50000);
    assert_true(tally.fitting > tally.plans / 10 && tally.fitting < tally.plans);
    assert_true(tally.nothing > 0 && tally.nothing < PROBLEMS / 2);
    assert_true(tally.simulated < tally.plans / 20);
    assert_true(tally.labelled > PROBLEMS && tally.chosen > 0 && tally.apart > 0);
    print_message("# %lld plans, %lld fit; %lld of %d problems have none; %lld simulated\n"
                  "# %lld families had a choice of labels, %lld answers chose one; %lld have "
                  "several chunks, or W apart\n",
                  (long long)tally.plans, (long long)tally.fitting, (long long)tally.nothing,
                  PROBLEMS, (long long)tally.simulated, (long long)tally.labelled,
                  (long long)tally.chosen, (long long)tally.apart);
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
            problem->cluster->store[MEMORY_DRAM] = (Store){.bytes = INT64_C(1) << 40,
                                                           .read_bytes_per_s = INT64_C(40) << 30,
                                                           .write_bytes_per_s = INT64_C(40) << 30,
                                                           .latency_ns = 2000};
            problem->offload = far ? MEMORY_DRAM : MEMORY_HBM;
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
                       int64_t *ret_late)
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
    *ret_late += at_once.step_ns != brute.best;
}

static void test_cuts_of_a_family_equal_brute_force(void **state)
{
    (void)state;
    Dice rng = {11, 0};
    int64_t cuts = 0, late = 0;
    for (int i = 0; i < 25; i++) {
        Arena *arena = arena_new("cuts");
        Problem *problem = problem_random(arena, &rng, 11);
        Search *search = search_new(problem);
        Pins deep = pins_none(), *space;
        for (deep.pp = 2; deep.pp <= problem->ranks; deep.pp *= 2) {
            int families = search_space(problem, &deep, arena, &space);
            for (int k = 0; k < 30 && families > 0; k++)
                check_cuts(arena, search, &space[dice(&rng, 0, families - 1)], &cuts, &late);
        }
        search_free(search);
        problem_free(problem);
        arena_free(arena);
    }
    /* the first plans are not always the best: the tree has work */
    assert_true(cuts > 20000);
    assert_true(late > 20);
    print_message("# %lld cuts; the tree was needed %lld times\n", (long long)cuts,
                  (long long)late);
}

/* Where a step has few micro-batches, how it ends is much of it, and many cuts are nearly
 * equal: the tree must not look at them all. There are 2.6 million cuts of 32 layers into 8
 * stages. */
static void test_few_micro_batches_are_few_plans(void **state)
{
    (void)state;
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
            search_free(search);
            problem_free(problem);
            arena_free(arena);
        }
}

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
    work_rows(work, problem, pins, first_link, &times);
    order_simulate(order, &times, end);
    for (int i = 0; i < order->n; i++)
        assert_true(end[i] <= ns);
    for (int s = 0; s < order->stages; s++) {
        int64_t own = family_bytes(family, first_link, s).all;
        bytes = own > bytes ? own : bytes;
    }
    assert_true(rows_fit(work, problem, pins, order, first_link, bytes));
    if (pins_plain(pins))
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
    assert_true(pipeline_bound(work_ns(work, problem, pins), pins->pp, family->order->micros) <=
                ns);
    CutTable *fixed = cuts_table(arena, family, first_link, INT64_MAX);
    if (cuts_bound(fixed) < INT64_MAX)
        assert_true(cuts_bound(fixed) <= ns);
    int64_t least = INT64_MAX;
    bool fits = true;
    for (int s = 0; s < pins->pp; s++) {
        const StageCost *cost = family_stage(family, first_link[s], first_link[s + 1]);
        int64_t bytes = stage_bytes(family, cost, s);
        least = bytes < least ? bytes : least;
        fits &= bytes <= family_budget(family);
    }
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
            assert_string_equal(pins_text(arena, &again), pins_text(arena, &result.best.pins));
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
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_equals_brute_force_with_experts),
        cmocka_unit_test(test_equals_brute_force_with_offload),
        cmocka_unit_test(test_equals_brute_force_of_long_sequences),
        cmocka_unit_test(test_cuts_of_a_family_equal_brute_force),
        cmocka_unit_test(test_few_micro_batches_are_few_plans),
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
