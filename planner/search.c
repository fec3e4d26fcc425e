/* search.c - best first over families, each bounded level by level. */
#include "planner/search.h"

#include <string.h>
#include <time.h>

#include "ir/base/num.h"
#include "planner/search_in.h"

/* ---- the heap ---- */

typedef enum { LEVEL_WORK, LEVEL_ROWS, LEVEL_CARDS, LEVEL_TREE } Level;

typedef struct HeapItem {
    Family *family;   /* from LEVEL_TREE on, in an arena of its own */
    const Pins *pins; /* of the space; from LEVEL_CARDS on with their labels */
    int64_t bound;
    int rank; /* place in the written order of the space, with room for the picks of each */
    Level level;
    bool simulated; /* some plan of it was */
} HeapItem;

typedef struct Heap {
    Arena *arena;
    VEC(HeapItem) items;
} Heap;

static bool item_before(const HeapItem *a, const HeapItem *b)
{
    return a->bound != b->bound ? a->bound < b->bound : a->rank < b->rank;
}

static void heap_push(Heap *heap, HeapItem item)
{
    vec_push(heap->arena, &heap->items) = item;
    int at = heap->items.n - 1;
    while (at > 0 && item_before(&item, &heap->items.at[(at - 1) / 2])) {
        heap->items.at[at] = heap->items.at[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items.at[at] = item;
}

static HeapItem heap_pop(Heap *heap)
{
    HeapItem top = heap->items.at[0], item = heap->items.at[--heap->items.n];
    int n = heap->items.n, at = 0;
    for (int child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && item_before(&heap->items.at[child + 1], &heap->items.at[child]))
            child++;
        if (!item_before(&heap->items.at[child], &item))
            break;
        heap->items.at[at] = heap->items.at[child];
        at = child;
    }
    if (n > 0)
        heap->items.at[at] = item;
    return top;
}

/* ---- one run ---- */

typedef struct Run {
    Search *search;
    const Problem *problem;
    Arena *scratch;
    Heap heap;
    Pins *space; /* without labels */
    int families, best_rank;
    int64_t budget; /* bytes of a device */
    bool inside, any;
    Deadline deadline;
    SearchResult *result;
} Run;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t micros_of(const Run *run, const Pins *pins)
{
    return run->problem->job.global_batch / (pins->micro_batch * pins->dp);
}

static int64_t end_bound(const Run *run, const Pins *pins)
{
    if (pins_flow(pins))
        return 0;
    const Cluster *cluster = run->problem->cluster;
    int width = dtype_bytes(recipe_by_name(run->problem->job.recipe)->gradient);
    return price_world(cluster, run->problem->ranks, 2 * width) + cluster->device.launch_ns +
           work_update_ns(&run->search->work, run->problem, pins);
}

/* The least makespan of this work in the rows of a schedule: with several chunks on a stage, or W
 * that waits, what lies before a stage's first row need not be what its whole share says. */
static int64_t rows_bound(const Run *run, const Pins *pins, int64_t work)
{
    int64_t micros = micros_of(run, pins);
    return pins_plain(pins) ? pipeline_bound(work, pins->pp, micros) : work * micros / pins->pp;
}

/* The even cuts, or pinned ones; false when some chunk has no link. */
static bool has_links(const Run *run, const Pins *pins, int *ret_first_link)
{
    search_links(run->problem, pins, ret_first_link);
    for (int c = 0; c < pins_chunks(pins); c++)
        if (ret_first_link[c + 1] <= ret_first_link[c])
            return false;
    return true;
}

/* What the stage would need at least: keeps the plan that is nearest to fitting. */
static void note_tightest(Run *run, const Pins *pins, Family *family)
{
    Tightest *tightest = &run->result->tightest;
    int first_link[MAX_CHUNKS + 1], worst = 0;
    if (!has_links(run, pins, first_link))
        return;
    StageBytes bytes = {.all = -1};
    for (int s = 0; s < pins->pp; s++) {
        StageBytes own = family_bytes(family, first_link, s);
        if (own.all > bytes.all) {
            bytes = own;
            worst = s;
        }
    }
    if (tightest->known && tightest->bytes <= bytes.all)
        return;
    *tightest = (Tightest){.known = true,
                           .pins = pins_of_base(pins),
                           .stage = worst,
                           .bytes = bytes.all,
                           .budget_bytes = family_budget(family),
                           .weight_bytes = bytes.weights,
                           .gradient_bytes = bytes.gradients,
                           .state_bytes = bytes.state,
                           .saved_bytes = bytes.saved,
                           .transient_bytes = bytes.transients};
}

/* A mix may come to a plan of another family. */
static void keep_runner(SearchResult *result, const Found *found)
{
    bool known = pins_same(&found->pins, &result->best.pins);
    for (int i = 0; i < result->runners; i++)
        known = known || pins_same(&found->pins, &result->runner[i].pins);
    if (known)
        return;
    int at = result->runners < MAX_RUNNERS ? result->runners++ : MAX_RUNNERS - 1;
    if (at == MAX_RUNNERS - 1 && result->runners == MAX_RUNNERS && result->runner[at].step_ns > 0 &&
        result->runner[at].step_ns <= found->step_ns)
        return;
    while (at > 0 && result->runner[at - 1].step_ns > found->step_ns) {
        result->runner[at] = result->runner[at - 1];
        at--;
    }
    result->runner[at] = *found;
}

static void keep_best(Run *run, const Pins *pins, int rank, Family *family, const Cuts *cuts)
{
    SearchResult *result = run->result;
    Found found = {*pins, cuts->step_ns, cuts->bytes};
    mix_ranges(run->problem->arena, family, cuts->first_link, &found.pins);
    int chunks = found.pins.cuts = pins_chunks(pins);
    for (int c = 0; c < chunks; c++)
        found.pins.cut[c] =
            cuts->first_link[c + 1] - cuts->first_link[c] - (c == 0) - (c == chunks - 1);
    bool better = !result->found || found.step_ns < result->best.step_ns ||
                  (found.step_ns == result->best.step_ns && rank < run->best_rank);
    const Found other = better ? result->best : found;
    bool some = !better || result->found;
    if (better) {
        result->found = true;
        result->best = found;
        run->best_rank = rank;
    }
    if (some)
        keep_runner(result, &other);
}

/* A family of equal time wins only with a smaller rank. */
static int64_t below_for(const Run *run, int rank)
{
    if (!run->result->found)
        return INT64_MAX;
    return run->result->best.step_ns + (rank < run->best_rank);
}

/* What a mix takes at least by what is solved of it, as memory leaves room; INT64_MAX: it fits no
 * device. */
static int64_t mix_bound(Run *run, const Pins *pins, Solved solved)
{
    const Order *order = search_order(run->search, pins);
    int64_t rows = mix_rows(run->search, order, pins, run->budget, solved);
    return rows < INT64_MAX ? rows + end_bound(run, pins) : INT64_MAX;
}

/* The rows of its schedule, each as long as its work, and with what they keep. A family with
 * several chunks on a stage, or with W apart, has few ways to be cut, so that rows bound them. */
static void bound_by_rows(Run *run, HeapItem item)
{
    const Pins *pins = item.pins;
    const Order *order = search_order(run->search, pins);
    const Work *work = &run->search->work;
    /* rows of steps that flow are a run of several: they bound no single one */
    bool flows = pins_flow(pins), few = pins_few_cuts(pins);
    int first_link[MAX_CHUNKS + 1];
    Arena *scratch = arena_new("rows");
    ChunkCut *cut = ARENA_ARRAY(scratch, ChunkCut, MAX_CHUNK_CUTS);
    int n = order && few ? chunk_cuts(run->problem, pins, cut) : 0;
    if (n == 1)
        chunk_links(run->problem, pins, cut, first_link);
    if (order && pins_mix(pins) && (n > 0 || !few))
        item.bound = num_larger(item.bound, mix_bound(run, pins, SOLVED_NONE));
    if (!order || (few && n == 0)) {
        run->result->stats.illegal++;
    } else if (item.bound == INT64_MAX ||
               (!flows && !rows_fit(work, run->problem, pins, order, n == 1 ? first_link : NULL,
                                    run->budget))) {
        run->result->stats.cut_memory++;
    } else {
        item.level = LEVEL_ROWS;
        if (few && !flows && !pins_mix(pins)) {
            RowSums sums = search_sums(run->search, scratch, pins, run->budget, SOLVED_NONE);
            int64_t rows = chunk_rows_bound(scratch, run->problem, pins, order, &sums, cut, n);
            item.bound = num_larger(item.bound, rows + end_bound(run, pins));
        }
        heap_push(&run->heap, item);
    }
    arena_free(scratch);
}

/* Is a mix done with, by what is solved of it? */
static bool mix_settled(Run *run, HeapItem *item, Solved solved)
{
    SearchStats *stats = &run->result->stats;
    int64_t bound = pins_mix(item->pins) ? mix_bound(run, item->pins, solved) : item->bound;
    bool fits = bound < INT64_MAX;
    item->bound = num_larger(item->bound, bound);
    if (item->bound >= below_for(run, item->rank))
        ++*(fits ? &stats->cut_bound : &stats->cut_memory);
    return item->bound >= below_for(run, item->rank);
}

/* The rows of the schedule, each as long as its cards at least. */
static int64_t deck_rows(Run *run, const Pins *pins, const Deck *deck)
{
    Arena *scratch = arena_new("sums");
    RowSums sums = search_sums(run->search, scratch, pins, run->budget, SOLVED_BOTH);
    const int64_t *all = sums.sum[deck->net->chain.n].ns;
    int64_t rows = rows_bound(run, pins, all[PART_F] + all[PART_B]);
    if (!pins_plain(pins) && !pins_flow(pins)) {
        ChunkCut *cut = ARENA_ARRAY(scratch, ChunkCut, MAX_CHUNK_CUTS);
        int n = chunk_cuts(run->problem, pins, cut);
        const Order *order = search_order(run->search, pins);
        rows =
            num_larger(rows, chunk_rows_bound(scratch, run->problem, pins, order, &sums, cut, n));
    }
    arena_free(scratch);
    return rows;
}

/* Cards: the work of all links as they are placed. */
static bool bound_by_deck(Run *run, HeapItem item)
{
    const Pins *pins = item.pins;
    bool flows = pins_flow(pins), mix = pins_mix(pins);
    if (mix && mix_settled(run, &item, SOLVED_TAIL))
        return true;
    const Deck *deck = search_deck(run->search, pins);
    if (!deck || (mix && !mix_pairs(run->search, pins)))
        return false;
    if (mix && mix_settled(run, &item, SOLVED_BOTH))
        return true;
    int64_t rows = 0, norm = run->problem->cluster->device.launch_ns, update = 0;
    if (!mix)
        rows = deck_rows(run, pins, deck);
    if (!flows && !mix)
        update =
            deck_update_ns(pins, deck) - work_update_ns(&run->search->work, run->problem, pins);
    int64_t bound = rows + norm + end_bound(run, pins) + num_larger(update, 0);
    item.bound = bound > item.bound ? bound : item.bound;
    item.level = LEVEL_CARDS;
    heap_push(&run->heap, item);
    return true;
}

/* Once its blocks are solved, a family is as many as they have labels, or pairs of them. */
static void bound_by_cards(Run *run, HeapItem item)
{
    Pins *pick;
    if (pins_mix(item.pins) && mix_settled(run, &item, SOLVED_TAIL))
        return;
    int picks = search_picks(run->search, run->scratch, item.pins, &pick), families = 0;
    for (int i = 0; i < picks; i++) {
        HeapItem family = item;
        family.rank += i;
        family.pins = &pick[i];
        families += bound_by_deck(run, family);
    }
    run->result->stats.illegal += families == 0;
    run->result->stats.considered += families > 1 ? families - 1 : 0;
}

static CutTable *table_for(Run *run, Arena *scratch, const HeapItem *item, Family *family)
{
    int *fixed = ARENA_ARRAY(scratch, int, MAX_STAGES + 1);
    search_links(run->problem, item->pins, fixed);
    return cuts_table(scratch, family, item->pins->cuts ? fixed : NULL, below_for(run, item->rank));
}

/* A family counts as simulated once, with the first of its plans. */
static void count_plans(Run *run, HeapItem *item, const CutStats *cut)
{
    run->result->stats.plans += cut->simulated;
    if (cut->simulated == 0 || item->simulated)
        return;
    item->simulated = true;
    run->result->stats.simulated++;
}

/* The family is done with: slower for certain, unless it was simulated or time ran out. */
static void settle_family(Run *run, const HeapItem *item, bool certain)
{
    if (!item->simulated)
        ++*(certain ? &run->result->stats.cut_bound : &run->result->stats.open);
}

/* A family of several chunks on a stage, or of a backward in two parts, has few plans in the
 * declared space. */
static void settle_chunks(Run *run, HeapItem *item)
{
    const Pins *pins = item->pins;
    Family *family = item->family;
    CutStats stats = {.complete = true};
    Arena *scratch = arena_new("chunks");
    RowSums sums = search_sums(run->search, scratch, pins, run->budget, SOLVED_BOTH);
    Cuts cuts = chunk_best(scratch, pins, family, &sums, below_for(run, item->rank),
                           end_bound(run, pins), &stats);
    arena_free(scratch);
    if (cuts.step_ns < INT64_MAX) {
        count_plans(run, item, &stats);
        keep_best(run, pins, item->rank, family, &cuts);
    } else if (stats.bound < INT64_MAX) {
        run->result->stats.cut_bound++;
    } else {
        run->result->stats.cut_memory++;
        note_tightest(run, pins, family);
    }
}

/* The least maximum of busy paths over all cuts that fit, and a plan that attains it: incumbents
 * before any tree. False: the family is done with. */
static bool first_cuts(Run *run, HeapItem *item)
{
    const Pins *pins = item->pins;
    SearchStats *stats = &run->result->stats;
    Arena *scratch = arena_new("cuts");
    CutTable *table = table_for(run, scratch, item, item->family);
    int64_t bound = cuts_bound(table), below = below_for(run, item->rank);
    bool fits = cuts_fit(table), open = fits && bound < below;
    if (!fits) {
        stats->cut_memory++;
        note_tightest(run, pins, item->family);
    } else if (!open) {
        stats->cut_bound++;
    } else {
        CutStats cut = {0};
        Cuts cuts = cuts_first(table, below, &cut);
        count_plans(run, item, &cut);
        if (cuts.step_ns < INT64_MAX)
            keep_best(run, pins, item->rank, item->family, &cuts);
        item->bound = bound > item->bound ? bound : item->bound;
        item->level = LEVEL_TREE;
    }
    arena_free(scratch);
    return open;
}

static void drop_family(HeapItem *item)
{
    if (item->family)
        arena_free(item->family->arena);
    item->family = NULL;
}

static void bound_by_cuts(Run *run, HeapItem item)
{
    const Pins *pins = item.pins;
    Arena *arena = arena_new("family");
    item.family = search_family(run->search, arena, pins);
    if (!item.family) {
        run->result->stats.illegal++;
        arena_free(arena);
        return;
    }
    if (!pins_plain(pins))
        settle_chunks(run, &item);
    else if (first_cuts(run, &item)) {
        heap_push(&run->heap, item);
        return;
    }
    drop_family(&item);
}

static void search_tree(Run *run, HeapItem item)
{
    Arena *scratch = arena_new("tree");
    CutTable *table = table_for(run, scratch, &item, item.family);
    CutStats cut = {0};
    Cuts cuts = cuts_search(table, below_for(run, item.rank), &run->deadline, &cut);
    count_plans(run, &item, &cut);
    if (cuts.step_ns < INT64_MAX)
        keep_best(run, item.pins, item.rank, item.family, &cuts);
    if (!cut.complete) {
        run->result->complete = false;
        run->result->stats.left += cut.left;
        if (item.bound < run->result->bound_ns)
            run->result->bound_ns = item.bound;
    }
    settle_family(run, &item, cut.complete);
    arena_free(scratch);
    drop_family(&item);
}

/* A layer spread inside the fastest domain comes first: its plans prune the wider ones. */
static bool inside_domain(const Run *run, const Pins *pins)
{
    return pins->tp * pins->cp <= run->problem->cluster->level[0].width;
}

static void fill_heap(Run *run, bool inside)
{
    for (int i = 0; i < run->families; i++) {
        const Pins *pins = &run->space[i];
        if (inside_domain(run, pins) != inside)
            continue;
        run->result->stats.considered++;
        if (memory_bound(&run->search->work, run->problem, pins) > run->budget) {
            run->result->stats.cut_memory++;
            continue;
        }
        const Pins tail = pins_of_tail(pins);
        int64_t work = work_ns(&run->search->work, run->problem, &tail);
        heap_push(&run->heap,
                  (HeapItem){.bound = rows_bound(run, pins, work) + end_bound(run, pins),
                             .rank = i * MAX_PICKS,
                             .pins = pins});
    }
}

static bool limits_out(const Run *run, const Pins *pins)
{
    return run->inside && !inside_domain(run, pins);
}

/* Nothing fits: of the families that were too large without looking, the nearest says what is
 * missing. */
static void find_tightest(Run *run)
{
    int nearest = NONE, first_link[MAX_CHUNKS + 1];
    int64_t least = INT64_MAX;
    for (int i = 0; i < run->families; i++) {
        int64_t bytes = memory_bound(&run->search->work, run->problem, &run->space[i]);
        if (limits_out(run, &run->space[i]) || pins_mix(&run->space[i]))
            continue;
        if (bytes < least && has_links(run, &run->space[i], first_link) &&
            search_labels(run->search, &run->space[i]) > 0) {
            least = bytes;
            nearest = i;
        }
    }
    for (int i = nearest; i != NONE && i < run->families; i++) {
        if (limits_out(run, &run->space[i]) || pins_mix(&run->space[i]) ||
            memory_bound(&run->search->work, run->problem, &run->space[i]) > least + least / 8)
            continue;
        /* of its labels the last takes least */
        Pins pins = run->space[i];
        int labels = search_labels(run->search, &pins);
        if (pins.block < 0 && labels > 1)
            pins.block = labels - 1;
        Arena *arena = arena_new("family");
        Family *family = labels > pins.block ? search_family(run->search, arena, &pins) : NULL;
        if (family)
            note_tightest(run, &pins, family);
        arena_free(arena);
    }
}

/* Best first, until the smallest bound is no better than the best plan. */
static void empty_heap(Run *run)
{
    SearchResult *result = run->result;
    while (run->heap.items.n > 0) {
        HeapItem item = heap_pop(&run->heap);
        if (item.bound >= below_for(run, item.rank)) {
            settle_family(run, &item, true);
            drop_family(&item);
            continue;
        }
        if (deadline_passed(&run->deadline) || (run->any && result->found)) {
            settle_family(run, &item, false);
            drop_family(&item);
            result->complete = false;
            result->bound_ns = item.bound < result->bound_ns ? item.bound : result->bound_ns;
            continue;
        }
        if (item.level == LEVEL_WORK)
            bound_by_rows(run, item);
        else if (item.level == LEVEL_ROWS)
            bound_by_cards(run, item);
        else if (item.level == LEVEL_CARDS)
            bound_by_cuts(run, item);
        else
            search_tree(run, item);
    }
}

static void note_space(Run *run, const Pins *given)
{
    SearchedSpace *space = &run->result->space;
    space->chunks = space->ep = space->rounds = 1;
    space->wide = run->problem->wide;
    space->open = wide_choices(run->problem, given);
    for (int i = 0; i < run->families; i++) {
        const Pins *pins = &run->space[i];
        int chunks = pins_chunks(pins) / pins->pp;
        space->schedules |= 1u << schedule_by_name(pins->schedule);
        space->chunks = chunks > space->chunks ? chunks : space->chunks;
        space->ep = pins->ep > space->ep ? pins->ep : space->ep;
        space->mixes = space->mixes || pins_mix(pins);
        space->mixed_homes = space->mixed_homes || (pins_mix(pins) && pins->range->pins.zero >= 0);
        space->rounds = pins->rounds > space->rounds ? pins->rounds : space->rounds;
        space->room = pins->ep > 1 && pins->rounds <= 1 ? pins->room : space->room;
        for (int k = 0; k < KEPT_COUNT; k++)
            space->home = pins->home[k] > space->home ? pins->home[k] : space->home;
    }
}

void search_run(Search *search, const Pins *pins, const SearchLimits *limits, SearchResult *ret)
{
    int64_t begin = now_ns();
    *ret = (SearchResult){.complete = true, .bound_ns = INT64_MAX};
    Run run = {.search = search,
               .problem = search->problem,
               .scratch = arena_new("run"),
               .result = ret,
               .budget = search->problem->cluster->device.memory_bytes -
                         search->problem->cluster->device.margin_bytes,
               .inside = limits->inside,
               .any = limits->any,
               .deadline = {.end_ns = limits->time_ns ? begin + limits->time_ns : 0,
                            .nodes = TREE_NODES,
                            .plans = TREE_PLANS}};
    int64_t solved = search->solved;
    run.heap.arena = run.scratch;
    run.families = search_space(search->problem, pins, run.scratch, &run.space);
    note_space(&run, pins);
    for (int wave = 0; wave < (limits->inside ? 1 : 2); wave++) {
        fill_heap(&run, wave == 0);
        empty_heap(&run);
    }
    if (ret->found && ret->bound_ns >= ret->best.step_ns)
        ret->complete = true; /* what was left open cannot be faster than what came later */
    if (ret->found && (ret->complete || ret->bound_ns > ret->best.step_ns))
        ret->bound_ns = ret->best.step_ns;
    if (!ret->found && ret->complete && !ret->tightest.known)
        find_tightest(&run);
    ret->stats.considered -= ret->stats.illegal;
    ret->stats.solved = search->solved - solved;
    ret->stats.wall_ns = now_ns() - begin;
    arena_free(run.scratch);
}
