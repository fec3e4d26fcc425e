/* search_mix.c - families whose stages mix two choices of what a layer keeps: which pairs there
 * are, and what they take at least. */
#include <string.h>

#include "ir/base/num.h"
#include "planner/search_in.h"

bool pins_mix(const Pins *pins)
{
    return pins->ranges == 1 && pins->range->begin == RANGE_TAIL;
}

Pins pins_of_tail(const Pins *pins)
{
    Pins tail = *pins;
    if (!pins_mix(pins))
        return tail;
    const Pins *own = &pins->range->pins;
    tail.recompute = own->recompute >= 0 ? own->recompute : pins->recompute;
    tail.zero = own->zero >= 0 ? own->zero : pins->zero;
    tail.block = own->recompute >= 0 ? own->block : pins->block;
    tail.ranges = 0;
    tail.range = NULL;
    return tail;
}

Pins pins_of_base(const Pins *pins)
{
    Pins base = *pins;
    if (pins_mix(pins)) {
        base.ranges = 0;
        base.range = NULL;
    }
    return base;
}

/* ---- what a link takes under either choice ---- */

/* From forward on, without what it is handed, which the first of a stage has elsewhere. */
static int64_t card_saved_bytes(const Card *card)
{
    return card->saved_bytes[SAVED_I] + card->saved_bytes[SAVED_W];
}

/* What is known of a choice of all links is no less than its cards have. */
static void put_cards(Search *search, const Pins *pins, int choice, MixLink *ret)
{
    const Deck *deck = search_deck(search, pins);
    for (int i = 0; deck && i < deck->net->chain.n; i++) {
        const Card *card = &deck->card[deck->net->chain.at[i].class];
        int64_t *ns = &ret[i].ns[choice], *saved = &ret[i].saved[choice];
        *ns = num_larger(*ns, card_least_ns(card, false));
        *saved = num_larger(*saved, card_saved_bytes(card));
    }
}

/* A stage that holds W of static bytes and keeps A of a micro-batch in each of n slots has
 * W + n A <= budget; all stages together keep no more than the sum of budget / n - W / n, in which
 * each W counts with the most slots. What is left of that goes to the links whose tails save most
 * time a byte, and a part of a link will do. */
static int64_t least_ns(const Order *order, int64_t budget, const MixLink *link, int n)
{
    int64_t slots[MAX_STAGES] = {0}, most = 1, ns = 0, free_ns = 0;
    double room = 0, gain = 0, per_byte = 0;
    for (int c = 0; c < order->chunks; c++) {
        int64_t own = order_slots(order, c), *stage = &slots[order->holder[c]];
        *stage = *stage == 0 || own < *stage ? own : *stage;
    }
    for (int s = 0; s < order->stages; s++) {
        room += (double)budget / (double)slots[s];
        most = num_larger(most, slots[s]);
    }
    room *= 1 + 1e-9;
    for (int i = 0; i < n; i++) {
        const MixLink *at = &link[i];
        int64_t less = at->ns[0] - at->ns[1];
        double more = (double)(at->saved[1] - at->saved[0]) +
                      (double)(at->fixed[1] - at->fixed[0]) / (double)most;
        room -= (double)at->saved[0] + (double)at->fixed[0] / (double)most;
        ns += at->ns[0];
        if (less <= 0)
            continue;
        if (more <= 0) {
            free_ns += less;
            room -= more;
            continue;
        }
        gain += (double)less;
        per_byte = (double)less / more > per_byte ? (double)less / more : per_byte;
    }
    if (room < 0)
        return INT64_MAX;
    double taken = room * per_byte < gain ? room * per_byte * (1 + 1e-9) + 1 : gain;
    return ns - free_ns - (int64_t)taken;
}

/* Links of one chunk that are alike, as a stage may give them the other choice. */
typedef struct MixPart {
    int64_t less_ns;
    double more; /* bytes */
} MixPart;

int64_t mix_stage_ns(const Order *order, const int *first_link, int stage, const RowSums *sums)
{
    enum { PARTS = 64 };
    MixPart part[PARTS];
    int64_t ns = 0;
    int parts = 0;
    double room = (double)sums->budget * (1 + 1e-9), taken = 0;
    for (int c = 0; c < order->chunks; c++) {
        const MixLink *before = NULL;
        if (order->holder[c] != stage)
            continue;
        double slots = (double)order_slots(order, c);
        for (int i = first_link[c]; i < first_link[c + 1]; i++) {
            const MixLink *at = &sums->link[i];
            MixPart own = {at->ns[0] - at->ns[1], (double)(at->saved[1] - at->saved[0]) * slots +
                                                      (double)(at->fixed[1] - at->fixed[0])};
            room -= (double)at->saved[0] * slots + (double)at->fixed[0];
            ns += at->ns[0];
            bool free = own.more <= 0 || parts == PARTS;
            if (own.less_ns <= 0)
                continue;
            if (free) {
                ns -= own.less_ns;
                room -= own.more < 0 ? own.more : 0;
            } else if (before && memcmp(before, at, sizeof *at) == 0) {
                part[parts - 1].less_ns += own.less_ns;
                part[parts - 1].more += own.more;
            } else {
                part[parts++] = own;
                before = at;
            }
        }
    }
    if (room < 0)
        return INT64_MAX;
    while (parts > 0) { /* those first that save most a byte, and of the last one a part will do */
        int best = 0;
        for (int p = 1; p < parts; p++)
            if ((double)part[p].less_ns * part[best].more >
                (double)part[best].less_ns * part[p].more)
                best = p;
        if (part[best].more > room) {
            taken += (double)part[best].less_ns * (room / part[best].more);
            break;
        }
        room -= part[best].more;
        taken += (double)part[best].less_ns;
        part[best] = part[--parts];
    }
    return num_larger(ns - (int64_t)(taken * (1 + 1e-9)) - 1, 0);
}

/* ---- pairs ---- */

/* The families of one choice, one a label. */
static int labelled(Search *search, Arena *arena, const Pins *pins, Pins **ret)
{
    int labels = search_labels(search, pins), n = 0;
    *ret = ARENA_ARRAY(arena, Pins, labels + 1);
    for (int i = 0; i < labels; i++) {
        if (pins->block >= 0 && pins->block != i)
            continue;
        (*ret)[n] = *pins;
        (*ret)[n++].block = labels > 1 ? i : NONE;
    }
    return n;
}

static MixLink *mix_links(Search *search, Arena *arena, const Pins *pins, Solved solved)
{
    int links = search->problem->net->chain.n;
    const Pins base = pins_of_base(pins), tail = pins_of_tail(pins);
    MixLink *link = ARENA_ARRAY(arena, MixLink, links);
    work_links(&search->work, search->problem, pins, link);
    if (solved != SOLVED_NONE)
        put_cards(search, &tail, 1, link);
    if (solved == SOLVED_BOTH)
        put_cards(search, &base, 0, link);
    for (int k = 0; k < links; k++)
        link[k].ns[0] = num_larger(link[k].ns[0], link[k].ns[1]);
    return link;
}

RowSums search_sums(Search *search, Arena *arena, const Pins *pins, int64_t budget, Solved solved)
{
    const Pins base = pins_of_base(pins), tail = pins_of_tail(pins);
    const Deck *deck = solved == SOLVED_BOTH ? search_deck(search, &base) : NULL;
    bool mix = pins_mix(pins);
    RowSums sums = {.budget = budget};
    LinkSum *sum = ARENA_ARRAY(arena, LinkSum, search->problem->net->chain.n + 1);
    if (deck)
        deck_sums(pins, deck, mix ? search_deck(search, &tail) : NULL, sum);
    else
        work_sums(&search->work, search->problem, &tail, sum);
    sums.sum = sum;
    sums.link = mix ? mix_links(search, arena, pins, solved) : NULL;
    return sums;
}

/* Of one whose tail has a label, if that is solved. */
static int64_t labelled_rows(Search *search, const Order *order, const Pins *pins, int64_t budget,
                             Solved solved)
{
    Arena *scratch = arena_new("mix");
    const Problem *problem = search->problem;
    int64_t ns;
    if (pins_few_cuts(pins)) {
        ChunkCut cut[MAX_CHUNK_CUTS];
        RowSums sums = search_sums(search, scratch, pins, budget, solved);
        ns = chunk_rows_bound(scratch, problem, pins, order, &sums, cut,
                              chunk_cuts(problem, pins, cut));
    } else {
        const MixLink *link = mix_links(search, scratch, pins, solved);
        ns = least_ns(order, budget, link, problem->net->chain.n);
        ns = ns < INT64_MAX ? pipeline_bound(ns, order->stages, order->micros) : ns;
    }
    arena_free(scratch);
    return ns;
}

int64_t mix_rows(Search *search, const Order *order, const Pins *pins, int64_t budget,
                 Solved solved)
{
    if (solved == SOLVED_NONE)
        return labelled_rows(search, order, pins, budget, solved);
    Arena *scratch = arena_new("labels");
    const Pins tail = pins_of_tail(pins);
    int64_t least = INT64_MAX;
    Pins *label;
    int n = labelled(search, scratch, &tail, &label);
    for (int i = 0; i < n; i++) {
        PinRange range = *pins->range;
        Pins own = *pins;
        own.range = &range;
        *(range.pins.recompute >= 0 ? &range.pins.block : &own.block) = label[i].block;
        int64_t ns = labelled_rows(search, order, &own, budget, solved);
        least = ns < least ? ns : least;
    }
    arena_free(scratch);
    return least;
}

bool mix_pairs(Search *search, const Pins *pins)
{
    Pins base = pins_of_base(pins), tail = pins_of_tail(pins);
    const Deck *slow = search_deck(search, &base), *fast = search_deck(search, &tail);
    bool good = slow && fast;
    for (int c = 0; good && c < slow->net->classes.n; c++) {
        const Graph *graph = slow->net->classes.at[c];
        const ClassPlan *one = &slow->variant->class[c], *other = &fast->variant->class[c];
        good = card_least_ns(&fast->card[c], false) <= card_least_ns(&slow->card[c], false);
        if (graph->chain_in != NONE)
            good = good && place_equal(&one->boundary_in, &other->boundary_in);
        if (graph->chain_out != NONE)
            good = good && place_equal(&one->boundary_out, &other->boundary_out);
    }
    return good;
}

/* Homes alone differ: blocks are the same. */
static int homes_picks(Search *search, Arena *arena, const Pins *pins, Pins **ret)
{
    Pins base = pins_of_base(pins);
    int n = labelled(search, arena, &base, ret);
    for (int i = 0; i < n; i++) {
        (*ret)[i].ranges = 1;
        (*ret)[i].range = pins->range;
    }
    return n;
}

/* Any label of the ones with any of the others. */
static int mixed_picks(Search *search, Arena *arena, const Pins *pins, Pins **ret)
{
    Pins base = pins_of_base(pins), tail = pins_of_tail(pins), *slow, *fast;
    int bases = labelled(search, arena, &base, &slow),
        tails = labelled(search, arena, &tail, &fast), n = bases * tails;
    *ret = ARENA_ARRAY(arena, Pins, n + 1);
    PinRange *range = ARENA_ARRAY(arena, PinRange, n + 1);
    for (int pair = 0; pair < n; pair++) {
        range[pair] = (PinRange){RANGE_TAIL, RANGE_TAIL, pins->range->pins};
        range[pair].pins.block = fast[pair % tails].block;
        (*ret)[pair] = slow[pair / tails];
        (*ret)[pair].ranges = 1;
        (*ret)[pair].range = &range[pair];
    }
    return n;
}

int search_picks(Search *search, Arena *arena, const Pins *pins, Pins **ret)
{
    if (!pins_mix(pins))
        return labelled(search, arena, pins, ret);
    return pins->range->pins.recompute < 0 ? homes_picks(search, arena, pins, ret)
                                           : mixed_picks(search, arena, pins, ret);
}

/* ---- the plan's pins ---- */

/* One more link has the pins, behind the others. */
static void put_link(Pins *pins, PinRange *range, const Pins *own, int link, int links)
{
    PinRange *before = pins->ranges ? &range[pins->ranges - 1] : NULL;
    bool layer = link > 0 && link < links - 1;
    int begin = link == 0 ? RANGE_FIRST : layer ? link - 1 : RANGE_LAST;
    if (before && layer && before->begin != RANGE_FIRST && before->end == begin - 1)
        before->end = begin;
    else
        range[pins->ranges++] = (PinRange){begin, begin, *own};
}

void mix_ranges(Arena *arena, Family *family, const int *first_link, Pins *pins)
{
    int links = family->deck->net->chain.n, others = 0;
    const Pins mix = *pins;
    if (!pins_mix(&mix))
        return;
    PinRange *range = ARENA_ARRAY(arena, PinRange, links);
    pins->ranges = 0;
    pins->range = range;
    for (int c = 0; c < family->order->chunks; c++) {
        TailLinks tail = family_tail(family, first_link, c);
        int end = first_link[c + 1] < links ? first_link[c + 1] : links - 1;
        for (int i = first_link[c]; i < first_link[c + 1]; i++)
            if (i == 0 ? tail.first : i == links - 1 ? tail.last : i >= end - tail.layers)
                put_link(pins, range, &mix.range->pins, i, links);
            else
                others++;
    }
    if (others == 0)
        *pins = pins_of_tail(&mix);
}
