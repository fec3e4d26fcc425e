/* stage_tail.c - how many links of a stage have the other choice of two: as many as it has room
 * for.
 */
#include "planner/stage_tail.h"

#include <string.h>

void family_set_tail(Family *family, const Deck *deck, const Homes *homes)
{
    const Net *net = family->deck->net;
    Card *card = ARENA_ARRAY(family->arena, Card, net->classes.n);
    Tail *tail = family->tail = ARENA_NEW(family->arena, Tail);
    *tail = (Tail){.card = card, .known = ARENA_ARRAY(family->arena, KnownTails **, MAX_STAGES)};
    for (int p = 0; p < net->params.n; p++)
        tail->tied = tail->tied || net->params.at[p].uses > 1;
    for (int c = 0; c < net->classes.n; c++) {
        card[c] = deck->card[c];
        card[c].cut = homes ? homes : card[c].cut;
    }
}

/* The runs of a stage as they take tails: those first whose layers take least for it. */
typedef struct Tails {
    const StageRun *run;
    int runs, layers; /* of all runs, without the ends of the chain */
    int by[MAX_CHUNKS];
    int64_t ns; /* of a pass over all runs, there and back */
    TailLinks links[MAX_CHUNKS];
} Tails;

/* Layers from *ret_low on. */
static int run_layers(const Family *family, const StageRun *run, int *ret_low)
{
    int links = family->deck->net->chain.n, high = run->end < links ? run->end : links - 1;
    *ret_low = run->begin > 0 ? run->begin : 1;
    return high - *ret_low;
}

/* Bytes that the layers of a run keep more under the other choice, in all its slots. */
static int64_t run_more_bytes(const Family *family, const StageRun *run)
{
    int low, layers = run_layers(family, run, &low);
    int64_t bytes = 0;
    for (int i = low; i < low + layers; i++) {
        int class = family->deck->net->chain.at[i].class;
        const Card *own = &family->deck->card[class], *other = &family->tail->card[class];
        for (int kind = 0; kind < SAVED_KINDS; kind++)
            bytes += (other->saved_bytes[kind] - own->saved_bytes[kind]) *
                     family->order->slots[RING_SAVED + kind][run->chunk];
    }
    return bytes;
}

static void tails_sort(const Family *family, Tails *tails)
{
    int64_t bytes[MAX_CHUNKS], layers[MAX_CHUNKS];
    for (int r = 0; r < tails->runs; r++) {
        int low, at = r;
        layers[r] = run_layers(family, &tails->run[r], &low);
        bytes[r] = run_more_bytes(family, &tails->run[r]);
        tails->layers += (int)layers[r];
        for (;
             at > 0 && bytes[tails->by[at - 1]] * layers[r] > bytes[r] * layers[tails->by[at - 1]];
             at--)
            tails->by[at] = tails->by[at - 1];
        tails->by[at] = r;
    }
}

/* So many layers, of every run no fewer than `each` where it has them, beside these ends; false
 * when there is no room for them. */
static bool tails_try(Family *family, int layers, int each, bool first, bool last, Tails *tails)
{
    const StageCost *cost[MAX_CHUNKS];
    int links = family->deck->net->chain.n, low;
    tails->ns = 0;
    for (int r = 0; r < tails->runs; r++) {
        int most = run_layers(family, &tails->run[r], &low), own = each < most ? each : most;
        tails->links[r].layers = own;
        layers -= own;
    }
    for (int i = 0; i < tails->runs; i++) {
        int r = tails->by[i];
        const StageRun *run = &tails->run[r];
        TailLinks *tail = &tails->links[r];
        int more = run_layers(family, run, &low) - tail->layers;
        more = layers < more ? layers : more;
        layers -= more;
        *tail =
            (TailLinks){tail->layers + more, first && run->begin == 0, last && run->end == links};
        cost[r] = stage_cost_with(family, run->begin, run->end, run->together, *tail);
        tails->ns += cost[r]->ns[PART_F] + cost[r]->ns[PART_B];
    }
    StageBytes bytes = stage_runs_bytes(family, tails->run, cost, tails->runs);
    return bytes.all <= family_budget(family) && family_fits_far(family, &bytes);
}

/* The most layers that have room beside these ends: more take more bytes, but that none at all and
 * nothing else leave out what either needs for a while. False: not even the ends. */
static bool tails_most(Family *family, bool first, bool last, Tails *tails)
{
    int fit = 0, over = tails->layers + 1, each = 0;
    for (int probe = tails->layers; over - fit > 1; probe = (fit + over) / 2)
        *(tails_try(family, probe, 0, first, last, tails) ? &fit : &over) = probe;
    if (family->tail->even)
        each = fit / tails->runs;
    while (each > 0 && !tails_try(family, fit, each, first, last, tails))
        each--;
    return tails_try(family, fit, each, first, last, tails);
}

/* Of all choices for the ends the fastest; of equal ones that of most links. */
static const TailLinks *best_tails(Family *family, const StageRun *run, int runs)
{
    int64_t least = INT64_MAX;
    TailLinks *best = ARENA_ARRAY(family->arena, TailLinks, runs);
    Tails tails = {.run = run, .runs = runs};
    bool first = false, last = false;
    for (int r = 0; r < runs && !family->tail->tied; r++) {
        first = first || run[r].begin == 0;
        last = last || run[r].end == family->deck->net->chain.n;
    }
    tails_sort(family, &tails);
    for (int ends = 3; ends >= 0; ends--) {
        bool one = ends & 1, other = ends >> 1;
        if ((one && !first) || (other && !last) || !tails_most(family, one, other, &tails) ||
            tails.ns >= least)
            continue;
        least = tails.ns;
        memcpy(best, tails.links, (size_t)runs * sizeof *best);
    }
    return best;
}

bool family_even_tails(Family *family, bool even)
{
    bool some = family->tail && family->order->chunks > family->order->stages;
    if (family->tail)
        family->tail->even = some && even;
    return some;
}

static bool same_runs(const StageRun *a, const StageRun *b, int runs)
{
    for (int r = 0; r < runs; r++)
        if (a[r].chunk != b[r].chunk || a[r].begin != b[r].begin || a[r].end != b[r].end ||
            a[r].together != b[r].together)
            return false;
    return true;
}

const TailLinks *stage_tails(Family *family, const StageRun *run, int runs)
{
    int links = family->deck->net->chain.n;
    KnownTails ***stage = &family->tail->known[family->order->holder[run->chunk]];
    if (!*stage)
        *stage = ARENA_ARRAY(family->arena, KnownTails *, links * (links + 1));
    KnownTails **known = &(*stage)[run->begin * (links + 1) + run->end];
    while (*known && ((*known)->even != family->tail->even || !same_runs((*known)->run, run, runs)))
        known = &(*known)->next;
    if (!*known) {
        StageRun *own = ARENA_ARRAY(family->arena, StageRun, runs);
        memcpy(own, run, (size_t)runs * sizeof *own);
        const TailLinks *tails = best_tails(family, own, runs);
        *known = ARENA_NEW(family->arena, KnownTails);
        **known = (KnownTails){.even = family->tail->even, .run = own, .links = tails};
    }
    return (*known)->links;
}
