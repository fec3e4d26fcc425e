/* search_chunks.c - the cuts of a family with several chunks on a stage, or with W apart: even
 * ones, and where layers do not divide, those of one layer more or less. */
#include "ir/base/num.h"
#include "planner/search_in.h"

/* ---- the cuts ---- */

void chunk_links(const Problem *problem, const Pins *pins, const ChunkCut *cut, int *ret_first_link)
{
    int layers = problem->net->chain.n - 2, chunks = pins_chunks(pins), each = layers / chunks;
    if (pins->cuts) {
        search_links(problem, pins, ret_first_link);
        return;
    }
    ret_first_link[0] = 0;
    for (int c = 0; c < chunks; c++) {
        bool first = c == 0, last = c == chunks - 1;
        int own = each + (c >= cut->begin && c < cut->begin + cut->more) - (first && cut->first) -
                  (last && cut->last);
        ret_first_link[c + 1] = ret_first_link[c] + own + first + last;
    }
}

static bool has_links(const Problem *problem, const Pins *pins, const ChunkCut *cut)
{
    int first_link[MAX_CHUNKS + 1];
    chunk_links(problem, pins, cut, first_link);
    for (int c = 0; c < pins_chunks(pins); c++)
        if (first_link[c + 1] <= first_link[c])
            return false;
    return true;
}

int chunk_cuts(const Problem *problem, const Pins *pins, ChunkCut *ret)
{
    int layers = problem->net->chain.n - 2, chunks = pins_chunks(pins), rest = layers % chunks;
    int n = 0;
    ret[0] = (ChunkCut){.begin = 1, .more = rest};
    n += has_links(problem, pins, &ret[0]);
    if (pins->cuts || pins->table || pins_flow(pins) || rest == 0)
        return n;
    for (int ends = 0; ends < 4; ends++) {
        bool first = ends & 1, last = ends >> 1 & 1;
        int more = rest + first + last;
        for (int begin = first; begin + more <= chunks - last; begin++) {
            ret[n] = (ChunkCut){begin, more, first, last};
            n += (ends != 0 || begin != 1) && has_links(problem, pins, &ret[n]);
        }
    }
    return n;
}

/* ---- bounds ---- */

/* The stage that is done last when each works without a break from the first forward row that can
 * reach it: forward[c] and all[c] are the rows of a chunk in forward, of one micro-batch, and all
 * of a step. */
static int64_t busiest_ns(const Order *order, const int64_t *forward, const int64_t *all)
{
    int64_t busy[MAX_STAGES] = {0}, head[MAX_STAGES], before = 0, most = 0;
    for (int s = 0; s < order->stages; s++)
        head[s] = NONE;
    for (int c = 0; c < order->chunks; c++) {
        int s = order->holder[c];
        head[s] = head[s] == NONE ? before : head[s];
        before += forward[c];
        busy[s] += all[c];
    }
    for (int s = 0; s < order->stages; s++)
        most = num_larger(most, head[s] + busy[s]);
    return most;
}

/* The rows of the chunks of a mix: of each stage those of its first chunk stand for all. False: a
 * stage does not hold its links. */
static bool mixed_rows(const Order *order, const int *first_link, const RowSums *sums, int64_t *all)
{
    bool known[MAX_STAGES] = {false};
    for (int c = 0; c < order->chunks; c++) {
        int stage = order->holder[c];
        int64_t ns = known[stage] ? 0 : mix_stage_ns(order, first_link, stage, sums);
        if (ns == INT64_MAX)
            return false;
        known[stage] = true;
        all[c] = order->micros * ns;
    }
    return true;
}

/* The same by sums over links alone. */
static int64_t summed_ns(const Order *order, const int *first_link, const RowSums *sums)
{
    int64_t forward[MAX_CHUNKS], all[MAX_CHUNKS];
    for (int c = 0; c < order->chunks; c++) {
        const int64_t *low = sums->sum[first_link[c]].ns, *high = sums->sum[first_link[c + 1]].ns;
        int64_t back = order->splits ? high[PART_I] - low[PART_I] + high[PART_W] - low[PART_W]
                                     : high[PART_B] - low[PART_B];
        forward[c] = high[PART_F] - low[PART_F];
        all[c] = order->micros * (forward[c] + back);
        forward[c] *= !order->turn; /* steps that flow begin before others end */
    }
    if (sums->link && !mixed_rows(order, first_link, sums, all))
        return INT64_MAX;
    return busiest_ns(order, forward, all);
}

/* The last row's end in the schedule's order, when every row is as short as with any of the cuts.
 */
static int64_t shortest_rows(Arena *scratch, const Problem *problem, const Pins *pins,
                             const Order *order, const LinkSum *sum, const ChunkCut *cut, int n)
{
    int64_t last = 0, *end = ARENA_ARRAY(scratch, int64_t, order->n);
    OrderTimes *shortest = ARENA_NEW(scratch, OrderTimes);
    for (int i = 0; i < n; i++) {
        int first_link[MAX_CHUNKS + 1];
        chunk_links(problem, pins, &cut[i], first_link);
        for (int c = 0; c < order->chunks; c++)
            for (int part = 0; part < PART_COUNT; part++) {
                int64_t *at = &shortest->time[part][c];
                int64_t own = sum[first_link[c + 1]].ns[part] - sum[first_link[c]].ns[part];
                *at = i == 0 || own < *at ? own : *at;
            }
    }
    order_least_pairs(order->chunks, shortest);
    order_simulate(order, shortest, end);
    for (int i = 0; i < order->n; i++)
        last = num_larger(last, end[i]);
    return last;
}

int64_t chunk_rows_bound(Arena *scratch, const Problem *problem, const Pins *pins,
                         const Order *order, const RowSums *sums, const ChunkCut *cut, int n)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < n; i++) {
        int first_link[MAX_CHUNKS + 1];
        chunk_links(problem, pins, &cut[i], first_link);
        int64_t busiest = summed_ns(order, first_link, sums);
        least = busiest < least ? busiest : least;
    }
    /* rows of steps that flow are a run of several; those of a mix bound its faster choice */
    if (order->turn || sums->link)
        return least;
    return num_larger(least, shortest_rows(scratch, problem, pins, order, sums->sum, cut, n));
}

/* That stage with the lengths of rows as the family has them, of which a step has so many. */
static int64_t busy_ns(Family *family, const int *first_link, const int32_t (*rows)[MAX_CHUNKS])
{
    int64_t all[MAX_CHUNKS];
    OrderTimes times;
    family_lengths(family, first_link, &times);
    for (int c = 0; c < family->order->chunks; c++) {
        all[c] = 0;
        for (int part = 0; part < PART_COUNT; part++)
            all[c] += rows[part][c] * times.time[part][c];
    }
    return busiest_ns(family->order, times.time[PART_F], all);
}

/* ---- the best of them ---- */

static bool cuts_fit_devices(Family *family, Cuts *cuts)
{
    bool fits = true;
    cuts->bytes = 0;
    for (int s = 0; s < family->order->stages; s++) {
        StageBytes bytes = family_bytes(family, cuts->first_link, s);
        cuts->bytes = num_larger(cuts->bytes, bytes.all);
        fits = fits && family_fits_far(family, &bytes);
    }
    return fits && cuts->bytes <= family_budget(family);
}

/* Is an even spread of tails another one? */
static bool evens_differ(Family *family, const int *first_link)
{
    bool differ = false;
    for (int c = 0; c < family->order->chunks && !differ; c++) {
        family_even_tails(family, false);
        int layers = family_tail(family, first_link, c).layers;
        family_even_tails(family, true);
        differ = family_tail(family, first_link, c).layers != layers;
    }
    return differ;
}

Cuts chunk_best(Arena *scratch, const Pins *pins, Family *family, const RowSums *sums,
                int64_t below, int64_t tail, CutStats *stats)
{
    const Order *order = family->order;
    const Problem *problem = family->problem;
    ChunkCut *cut = ARENA_ARRAY(scratch, ChunkCut, MAX_CHUNK_CUTS);
    int cuts = chunk_cuts(problem, pins, cut), n = cuts * (family_even_tails(family, false) + 1);
    bool even = false;
    int64_t *bound = ARENA_ARRAY(scratch, int64_t, n + 1),
            *end = ARENA_ARRAY(scratch, int64_t, order->n);
    bool *exact = ARENA_ARRAY(scratch, bool, n + 1); /* by the lengths of its rows */
    int32_t(*rows)[MAX_CHUNKS] = arena_array(scratch, PART_COUNT, sizeof *rows);
    Cuts best = {.step_ns = INT64_MAX}, at;
    for (int i = 0; i < order->n; i++)
        rows[order->row[i].part][order->row[i].chunk]++;
    for (int i = 0; i < n; i++) {
        chunk_links(problem, pins, &cut[i % cuts], at.first_link);
        int64_t ns = order->turn ? 0 : summed_ns(order, at.first_link, sums);
        bound[i] = ns < INT64_MAX ? ns + tail : ns;
        exact[i] = order->turn || pins->braid > 0; /* two rows in one are shorter */
    }
    stats->bound = INT64_MAX;
    for (;;) {
        int next = 0;
        for (int i = 1; i < n; i++)
            next = bound[i] < bound[next] ? i : next;
        if (n == 0 || bound[next] >= below) {
            stats->bound = n == 0 ? INT64_MAX : bound[next];
            break;
        }
        chunk_links(problem, pins, &cut[next % cuts], at.first_link);
        bool same = next >= cuts && !evens_differ(family, at.first_link);
        family_even_tails(family, next >= cuts);
        if (!exact[next] && !same) {
            exact[next] = true;
            bound[next] = num_larger(bound[next], busy_ns(family, at.first_link, rows) + tail);
            continue;
        }
        bound[next] = INT64_MAX;
        if (same || !cuts_fit_devices(family, &at))
            continue;
        stats->simulated++;
        at.step_ns = family_segment(family, at.first_link, end);
        if (at.step_ns < best.step_ns) {
            best = at;
            even = next >= cuts;
        }
        below = at.step_ns < below ? at.step_ns : below;
    }
    family_even_tails(family, even);
    return best;
}
