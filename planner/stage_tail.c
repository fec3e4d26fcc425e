/* stage_tail.c - how many links of a stage have the other choice of two: as many as it has room
 * for.
 */
#include "planner/stage_tail.h"

void family_set_tail(Family *family, const Deck *deck, const Homes *homes)
{
    const Net *net = family->deck->net;
    Card *card = ARENA_ARRAY(family->arena, Card, net->classes.n);
    Tail *tail = family->tail = ARENA_NEW(family->arena, Tail);
    *tail = (Tail){.card = card, .links = ARENA_ARRAY(family->arena, TailLinks *, MAX_STAGES)};
    for (int p = 0; p < net->params.n; p++)
        tail->tied = tail->tied || net->params.at[p].uses > 1;
    for (int c = 0; c < net->classes.n; c++) {
        card[c] = deck->card[c];
        card[c].cut = homes ? homes : card[c].cut;
    }
}

static bool tail_fits(Family *family, int stage, int begin, int end, TailLinks tail)
{
    const StageCost *cost = stage_cost_with(family, begin, end, false, tail);
    return stage_bytes(family, cost, stage) <= family_budget(family) &&
           stage_fits_far(family, cost, stage);
}

/* The most layers that have room beside these ends: more take more bytes, but that none at all and
 * nothing else leave out what either needs for a while. NONE: not even the ends. */
static int most_layers(Family *family, int stage, int begin, int end, TailLinks tail)
{
    int links = family->deck->net->chain.n, low = begin > 0 ? begin : 1,
        high = end < links ? end : links - 1;
    int fit = 0, over = high - low + 1;
    for (int probe = over - 1; over - fit > 1; probe = (fit + over) / 2) {
        tail.layers = probe;
        *(tail_fits(family, stage, begin, end, tail) ? &fit : &over) = probe;
    }
    tail.layers = 0;
    return fit > 0 || tail_fits(family, stage, begin, end, tail) ? fit : NONE;
}

/* Of all choices for the ends the fastest; of equal ones that of most links. */
static TailLinks most_tail(Family *family, int stage, int begin, int end)
{
    int64_t least = INT64_MAX;
    bool first = begin == 0 && !family->tail->tied,
         last = end == family->deck->net->chain.n && !family->tail->tied;
    TailLinks best = {0};
    for (int ends = 3; ends >= 0; ends--) {
        TailLinks tail = {.first = ends & 1, .last = ends >> 1};
        if ((tail.first && !first) || (tail.last && !last))
            continue;
        tail.layers = most_layers(family, stage, begin, end, tail);
        if (tail.layers == NONE)
            continue;
        const StageCost *cost = stage_cost_with(family, begin, end, false, tail);
        int64_t ns = cost->ns[PART_F] + cost->ns[PART_B];
        if (ns < least) {
            least = ns;
            best = tail;
        }
    }
    return best;
}

TailLinks family_tail(Family *family, int stage, int first_link, int end_link)
{
    Tail *tail = family->tail;
    if (!tail)
        return (TailLinks){0};
    int links = family->deck->net->chain.n, begin = family_begin(family, first_link, end_link),
        end = end_link - first_link + begin;
    if (!tail->links[stage]) {
        tail->links[stage] = ARENA_ARRAY(family->arena, TailLinks, links * (links + 1));
        for (int i = 0; i < links * (links + 1); i++)
            tail->links[stage][i].layers = NONE;
    }
    TailLinks *known = &tail->links[stage][begin * (links + 1) + end];
    if (known->layers == NONE)
        *known = most_tail(family, stage, begin, end);
    return *known;
}
