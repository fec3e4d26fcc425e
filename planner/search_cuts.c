/* search_cuts.c - the best cuts of one family: completions of busy paths, then a tree under learned
 * paths.
 *
 * The busy path of a stage: every stage before it runs forward once, all its own rows run, and then
 * its own end of the step follows, or every stage before it runs backward once and the first
 * stage's end follows. Its length depends on the stage's links alone, because what lies before them
 * is a sum. So the least maximum over all cuts is a table from the last stage to the first. A
 * learned path is the longest path of a plan that was simulated: for other cuts it is a sum over
 * stages. */
#include <string.h>
#include <time.h>

#include "ir/base/num.h"
#include "planner/search_in.h"

static const int64_t never = INT64_MAX / 4;

typedef struct LearnedPath {
    PathChunk *at; /* of the stages */
    int chunk;     /* it ends there */
    int64_t hops;
    int64_t *rest; /* per (stage, link): least sum of the stages from there on */
} LearnedPath;

struct CutTable {
    Arena *arena;
    Family *family;
    const int *fixed;
    int stages, links;
    int64_t budget, below;
    int64_t hop_forward[MAX_STAGES + 1],
        hop_both[MAX_STAGES + 1]; /* of all boundaries before a stage */
    int64_t *forward, *both; /* per link: ns of a micro-batch in all links before it, at least */
    int64_t first_norm;      /* of the first stage, at least */
    int64_t *busy, *update;  /* per (stage, link): least maximum of the stages from there on */
    int64_t tail;            /* after the norm: the world, the clip */
    bool time_cut;           /* some stage was left out because of its time, not its bytes */
    int64_t *end;            /* of rows, for simulations */
    VEC(LearnedPath) forms;
};

bool deadline_passed(const Deadline *deadline)
{
    if (deadline->end_ns == 0)
        return false;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec >= deadline->end_ns;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int slot(const CutTable *table, int stage, int link)
{
    return stage * (table->links + 1) + link;
}

/* Where the stage that begins at `link` may end: from *ret_low to the result. */
static int end_range(const CutTable *table, int stage, int link, int *ret_low)
{
    int after = table->stages - 1 - stage; /* stages still to come, a link each */
    if (table->fixed) {
        *ret_low = table->fixed[stage + 1];
        return link == table->fixed[stage] ? *ret_low : 0;
    }
    *ret_low = after == 0 ? table->links : link + 1;
    return after == 0 ? table->links : table->links - after;
}

/* At least what a stage with these links takes in the busy paths, by a sum that needs no stage
 * cost. */
static int64_t busy_least(const CutTable *table, int stage, int begin, int end)
{
    int64_t own = (table->both[end] - table->both[begin]) * table->family->order->micros;
    return own + table->both[begin] + table->hop_both[stage];
}

/* So many rows of a stage, and what they wait for behind those before them. */
static int64_t rows_ns(const PathChunk *rows, const StageCost *cost)
{
    int64_t ns = rows->time[PART_F] * cost->ns[PART_F] + rows->time[PART_B] * cost->ns[PART_B];
    for (int begins = 0; cost->waits && begins < BEGINS_COUNT; begins++)
        ns += rows->gap[begins][PART_F] * cost->gap_ns[begins][PART_F] +
              rows->gap[begins][PART_B] * cost->gap_ns[begins][PART_B];
    return ns;
}

static int64_t busy_of(const CutTable *table, int stage, int begin, const StageCost *cost)
{
    int64_t own = rows_ns(&table->family->order->all[stage], cost);
    int64_t here = table->forward[begin] + table->hop_forward[stage] + own + cost->norm_least_ns;
    int64_t back = table->both[begin] + table->hop_both[stage] + own + table->first_norm;
    return num_larger(here, back);
}

/* The cost of a stage, or NULL when it does not fit or cannot be part of a better plan; *ret_stop:
 * nor can a longer one. */
static const StageCost *stage_at(CutTable *table, int stage, int begin, int end, bool *ret_stop)
{
    *ret_stop = false;
    if (busy_least(table, stage, begin, end) + table->tail >= table->below) {
        table->time_cut = *ret_stop = true;
        return NULL;
    }
    const StageCost *cost = family_stage(table->family, stage, begin, end);
    if (stage_bytes(table->family, cost, stage) > table->budget ||
        !stage_fits_far(table->family, cost, stage)) {
        *ret_stop = true;
        return NULL;
    }
    if (busy_of(table, stage, begin, cost) + table->tail >= table->below) {
        table->time_cut = true;
        return NULL;
    }
    return cost;
}

static void fill_completions(CutTable *table)
{
    int cells = (table->stages + 1) * (table->links + 1);
    for (int i = 0; i < cells; i++)
        table->busy[i] = table->update[i] = never;
    table->busy[slot(table, table->stages, table->links)] = 0;
    table->update[slot(table, table->stages, table->links)] = 0;
    for (int s = table->stages - 1; s >= 0; s--)
        for (int a = s == 0 ? 0 : s; a <= (s == 0 ? 0 : table->links - 1); a++) {
            int low, high = end_range(table, s, a, &low);
            int64_t *busy = &table->busy[slot(table, s, a)],
                    *update = &table->update[slot(table, s, a)];
            for (int b = low; b <= high; b++) {
                int64_t rest = table->busy[slot(table, s + 1, b)];
                if (rest >= never)
                    continue;
                bool stop;
                const StageCost *cost = stage_at(table, s, a, b, &stop);
                if (stop)
                    break;
                if (!cost)
                    continue;
                *busy = smaller(*busy, num_larger(busy_of(table, s, a, cost), rest));
                *update = smaller(
                    *update, num_larger(cost->update_ns, table->update[slot(table, s + 1, b)]));
            }
        }
}

static void fill_sums(CutTable *table)
{
    const Family *family = table->family;
    OrderTimes hops = {.hop_forward = {0}};
    family_hops(family, &hops);
    for (int s = 0; s + 1 < table->stages; s++) {
        table->hop_forward[s + 1] = table->hop_forward[s] + hops.hop_forward[s];
        table->hop_both[s + 1] = table->hop_both[s] + hops.hop_forward[s] + hops.hop_backward[s];
    }
    for (int i = 0; i < table->links; i++) {
        int64_t forward, backward;
        family_least(family, i, &forward, &backward);
        table->forward[i + 1] = table->forward[i] + forward;
        table->both[i + 1] = table->both[i] + forward + backward;
    }
}

CutTable *cuts_table(Arena *arena, Family *family, const int *fixed, int64_t below)
{
    CutTable *table = ARENA_NEW(arena, CutTable);
    const Cluster *cluster = family->problem->cluster;
    *table = (CutTable){.arena = arena,
                        .family = family,
                        .fixed = fixed,
                        .stages = family->order->stages,
                        .links = family->deck->net->chain.n,
                        .budget = family_budget(family),
                        .below = below < never ? below : never};
    int cells = (table->stages + 1) * (table->links + 1);
    table->forward = ARENA_ARRAY(arena, int64_t, table->links + 1);
    table->both = ARENA_ARRAY(arena, int64_t, table->links + 1);
    table->busy = ARENA_ARRAY(arena, int64_t, cells);
    table->update = ARENA_ARRAY(arena, int64_t, cells);
    table->end = ARENA_ARRAY(arena, int64_t, family->order->n);
    table->tail = price_world(cluster, family->problem->ranks, family_pair_bytes(family)) +
                  cluster->device.launch_ns;
    fill_sums(table);
    /* the first stage has the first link at least; a longer one has more gradients to wait for */
    table->first_norm = cluster->device.launch_ns;
    fill_completions(table);
    return table;
}

int64_t cuts_bound(const CutTable *table)
{
    int64_t busy = table->busy[0];
    return busy >= never ? INT64_MAX : busy + table->tail + table->update[0];
}

bool cuts_fit(const CutTable *table)
{
    return table->busy[0] < never || table->time_cut;
}

/* ---- simulating ---- */

static int64_t plan_bytes(CutTable *table, const int *first_link)
{
    int64_t most = 0;
    for (int s = 0; s < table->stages; s++) {
        const StageCost *cost = family_stage(table->family, s, first_link[s], first_link[s + 1]);
        most = num_larger(most, stage_bytes(table->family, cost, s));
    }
    return most;
}

static int64_t form_at(const LearnedPath *form, int stage, const StageCost *cost)
{
    return rows_ns(&form->at[stage], cost) + (stage == form->chunk ? cost->norm_least_ns : 0);
}

/* The least sum of the path over the stages from each place on. */
static void fill_rest(CutTable *table, LearnedPath *form)
{
    int cells = (table->stages + 1) * (table->links + 1);
    form->rest = ARENA_ARRAY(table->arena, int64_t, cells);
    for (int i = 0; i < cells; i++)
        form->rest[i] = never;
    form->rest[slot(table, table->stages, table->links)] = 0;
    for (int s = table->stages - 1; s >= 0; s--)
        for (int a = s == 0 ? 0 : s; a <= (s == 0 ? 0 : table->links - 1); a++) {
            if (table->busy[slot(table, s, a)] >= never)
                continue;
            int low, high = end_range(table, s, a, &low);
            int64_t *rest = &form->rest[slot(table, s, a)];
            for (int b = low; b <= high; b++) {
                bool stop;
                if (form->rest[slot(table, s + 1, b)] >= never)
                    continue;
                const StageCost *cost = stage_at(table, s, a, b, &stop);
                if (stop)
                    break;
                if (cost)
                    *rest =
                        smaller(*rest, form_at(form, s, cost) + form->rest[slot(table, s + 1, b)]);
            }
        }
}

/* Keeps the longest path to the end of a stage, unless it is known. */
static void learn_path(CutTable *table, const OrderTimes *times, int stage)
{
    OrderPath path;
    order_path(table->family->order, times, table->end, stage, &path);
    size_t bytes = (size_t)table->stages * sizeof *path.at;
    for (int f = 0; f < table->forms.n; f++)
        if (table->forms.at[f].chunk == stage && !memcmp(table->forms.at[f].at, path.at, bytes))
            return;
    LearnedPath form = {.at = ARENA_ARRAY(table->arena, PathChunk, table->stages), .chunk = stage};
    memcpy(form.at, path.at, bytes);
    for (int s = 0; s + 1 < table->stages; s++)
        form.hops += path.at[s].hop_forward * times->hop_forward[s] +
                     path.at[s].hop_backward * times->hop_backward[s];
    fill_rest(table, &form);
    vec_push(table->arena, &table->forms) = form;
}

/* Simulates; keeps its longest path. */
static void try_plan(CutTable *table, const int *first_link, Cuts *best, CutStats *stats)
{
    OrderTimes times;
    StageEnd ends[MAX_STAGES];
    const Order *order = table->family->order;
    family_lengths(table->family, first_link, &times);
    order_simulate(order, &times, table->end);
    int64_t ns = family_ends(table->family, first_link, table->end, ends);
    stats->simulated++;
    int last = 0;
    for (int s = 1; s < table->stages; s++)
        if (ends[s].norm > ends[last].norm)
            last = s;
    learn_path(table, &times, last);
    if (ns < best->step_ns) {
        best->step_ns = ns;
        best->bytes = plan_bytes(table, first_link);
        memcpy(best->first_link, first_link, (size_t)(table->stages + 1) * sizeof *first_link);
    }
}

/* ---- the tree ---- */

typedef struct Tree {
    CutTable *table;
    const Deadline *deadline;
    CutStats *stats;
    Cuts *best;
    int first_link[MAX_STAGES + 1];
    VEC(int64_t) sum[MAX_STAGES + 1]; /* per learned path: of the stages before */
    int64_t nodes;
} Tree;

/* Sums of the paths learned since the tree last stood at this stage. */
static void extend_sums(Tree *tree, int stage)
{
    CutTable *table = tree->table;
    for (int f = tree->sum[stage].n; f < table->forms.n; f++) {
        const LearnedPath *form = &table->forms.at[f];
        int64_t sum = form->hops;
        if (stage > 0) {
            const StageCost *cost = family_stage(
                table->family, stage - 1, tree->first_link[stage - 1], tree->first_link[stage]);
            sum = tree->sum[stage - 1].at[f] + form_at(form, stage - 1, cost);
        }
        vec_push(table->arena, &tree->sum[stage]) = sum;
    }
}

/* What every plan with the tree's first `stage` cuts takes at least. */
static int64_t node_bound(Tree *tree, int stage, int64_t busy, int64_t update)
{
    CutTable *table = tree->table;
    int at = slot(table, stage, tree->first_link[stage]);
    int64_t bound = num_larger(busy, table->busy[at]);
    tree->sum[stage].n = 0;
    for (int s = 0; s <= stage; s++)
        extend_sums(tree, s);
    for (int f = 0; f < table->forms.n; f++)
        bound = num_larger(bound, tree->sum[stage].at[f] + table->forms.at[f].rest[at]);
    return bound + table->tail + num_larger(update, table->update[at]);
}

/* One more; false: it is too late for it. */
static bool next_node(Tree *tree)
{
    const Deadline *deadline = tree->deadline;
    CutStats *stats = tree->stats;
    tree->nodes++;
    stats->left = stats->left || (deadline->nodes > 0 && tree->nodes > deadline->nodes) ||
                  (deadline->plans > 0 && stats->simulated > deadline->plans);
    if (stats->left || ((tree->nodes & 1023) == 0 && deadline_passed(deadline)))
        stats->complete = false;
    return stats->complete;
}

/* `busy` and `update`: largest of the stages before. */
static void descend(Tree *tree, int stage, int64_t busy, int64_t update)
{
    CutTable *table = tree->table;
    if (stage == table->stages) {
        try_plan(table, tree->first_link, tree->best, tree->stats);
        return;
    }
    int begin = tree->first_link[stage], low, high = end_range(table, stage, begin, &low);
    for (int end = low; end <= high; end++) {
        if (table->busy[slot(table, stage + 1, end)] >= never)
            continue;
        if (!tree->stats->complete || !next_node(tree))
            return;
        bool stop;
        const StageCost *cost = stage_at(table, stage, begin, end, &stop);
        if (stop)
            return;
        if (!cost)
            continue;
        tree->first_link[stage + 1] = end;
        int64_t now = num_larger(busy, busy_of(table, stage, begin, cost));
        int64_t ends = num_larger(update, cost->update_ns);
        if (node_bound(tree, stage + 1, now, ends) < tree->best->step_ns)
            descend(tree, stage + 1, now, ends);
    }
}

/* The cuts that attain the least maximum: of equal ones, the earliest ends. */
static void least_busy(CutTable *table, int *ret_first_link)
{
    ret_first_link[0] = 0;
    for (int s = 0; s < table->stages; s++) {
        int begin = ret_first_link[s], low, high = end_range(table, s, begin, &low);
        int64_t least = never;
        for (int end = low; end <= high; end++) {
            bool stop;
            int64_t rest = table->busy[slot(table, s + 1, end)];
            if (rest >= never)
                continue;
            const StageCost *cost = stage_at(table, s, begin, end, &stop);
            if (stop)
                break;
            if (cost && num_larger(busy_of(table, s, begin, cost), rest) < least) {
                least = num_larger(busy_of(table, s, begin, cost), rest);
                ret_first_link[s + 1] = end;
            }
        }
    }
}

static bool even_fits(CutTable *table, int *ret_first_link)
{
    int layers = table->links - 2;
    ret_first_link[0] = 0;
    for (int s = 0; s < table->stages; s++) {
        int own = layers / table->stages + (s > 0 && s <= layers % table->stages);
        ret_first_link[s + 1] = ret_first_link[s] + own + (s == 0) + (s == table->stages - 1);
        bool stop;
        if (own < 0 || ret_first_link[s + 1] <= ret_first_link[s] ||
            !stage_at(table, s, ret_first_link[s], ret_first_link[s + 1], &stop))
            return false;
    }
    return ret_first_link[table->stages] == table->links;
}

Cuts cuts_first(CutTable *table, int64_t below, CutStats *stats)
{
    Cuts best = {.step_ns = below};
    int first_link[MAX_STAGES + 1];
    if (cuts_bound(table) < below) {
        least_busy(table, first_link);
        try_plan(table, first_link, &best, stats);
        if (!table->fixed && cuts_bound(table) < best.step_ns && even_fits(table, first_link))
            try_plan(table, first_link, &best, stats);
    }
    if (best.step_ns >= below)
        best.step_ns = INT64_MAX;
    return best;
}

Cuts cuts_search(CutTable *table, int64_t below, const Deadline *deadline, CutStats *stats)
{
    Cuts best = cuts_first(table, below, stats);
    if (best.step_ns == INT64_MAX)
        best.step_ns = below;
    stats->complete = true;
    stats->bound = cuts_bound(table);
    Tree tree = {.table = table, .deadline = deadline, .stats = stats, .best = &best};
    if (stats->bound < best.step_ns)
        descend(&tree, 0, 0, 0);
    if (stats->complete)
        stats->bound = best.step_ns;
    if (best.step_ns >= below)
        best.step_ns = INT64_MAX;
    return best;
}
