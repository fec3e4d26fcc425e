/* search_keep.c - what a search keeps from one run to the next: widths, solved variants, decks of
 * cards, orders. */
#include "planner/search_in.h"

typedef struct KeptDeck {
    struct KeptDeck *next;
    DeckKey key;
    const Deck *deck; /* NULL: no such mesh */
} KeptDeck;

struct KeptVariant {
    struct KeptVariant *next;
    VariantKey key;
    const Variant *variant; /* NULL: no legal placement */
    KeptDeck *decks;
};

struct KeptWidth {
    struct KeptWidth *next;
    Spread spread;
    Width *width; /* NULL: no such mesh */
};

struct KeptOrder {
    struct KeptOrder *next;
    int stages, micros, chunks;
    const Schedule *table;
    bool braids;
    const Order *order; /* NULL: such a schedule does not run */
};

Search *search_new(const Problem *problem)
{
    Arena *arena = arena_new("search");
    Search *search = ARENA_NEW(arena, Search);
    *search = (Search){.arena = arena,
                       .scratch = arena_new("bodies"),
                       .problem = problem,
                       .work = work_of(arena, problem)};
    return search;
}

void search_free(Search *search)
{
    if (!search)
        return;
    arena_free(search->scratch);
    arena_free(search->arena);
}

static Width *width_for(Search *search, const Spread *spread)
{
    for (const KeptWidth *at = search->widths; at; at = at->next)
        if (spread_same(&at->spread, spread))
            return at->width;
    KeptWidth *kept = ARENA_NEW(search->arena, KeptWidth);
    /* a width that cannot be is no error of the user's: others can */
    Width *width = width_new(search->arena, diag_new(search->arena), search->problem, spread);
    *kept = (KeptWidth){search->widths, *spread, width};
    search->widths = kept;
    return width;
}

static const BlockLabels *labels_of(Search *search, const Pins *pins)
{
    VariantKey key = key_of_pins(pins);
    Width *width = width_for(search, &key.spread);
    return width ? width_labels(search->arena, width, &key) : NULL;
}

int search_labels(Search *search, const Pins *pins)
{
    const BlockLabels *labels = labels_of(search, pins);
    return labels ? labels->n : 0;
}

bool search_too_wide(Search *search, const Pins *pins)
{
    const BlockLabels *labels = labels_of(search, pins);
    return labels && labels->n == 0 && labels->too_wide;
}

static KeptVariant *variant_for(Search *search, const Pins *pins)
{
    VariantKey key = key_of_pins(pins);
    for (KeptVariant *at = search->variants; at; at = at->next)
        if (spread_same(&at->key.spread, &key.spread) && at->key.sp == key.sp &&
            at->key.recompute == key.recompute && at->key.block == key.block)
            return at;
    KeptVariant *kept = ARENA_NEW(search->arena, KeptVariant);
    *kept = (KeptVariant){.next = search->variants, .key = key};
    Width *width = width_for(search, &key.spread);
    if (width)
        kept->variant = variant_solve(search->arena, diag_new(search->arena), width, &key);
    search->solved++;
    search->variants = kept;
    return kept;
}

const Variant *search_variant(Search *search, const Pins *pins)
{
    return variant_for(search, pins)->variant;
}

const Deck *search_deck(Search *search, const Pins *pins)
{
    KeptVariant *from = variant_for(search, pins);
    if (!from->variant)
        return NULL;
    bool shared = pins->ep > 1;
    DeckKey key = {pins->micro_batch, shared ? pins->ep : 1, shared ? pins->room : 0,
                   shared ? pins->exchange : 0, pins_split(pins)};
    for (const KeptDeck *at = from->decks; at; at = at->next)
        if (at->key.micro_batch == key.micro_batch && at->key.ep == key.ep &&
            at->key.room == key.room && at->key.exchange == key.exchange &&
            at->key.split == key.split)
            return at->deck;
    KeptDeck *kept = ARENA_NEW(search->arena, KeptDeck);
    *kept =
        (KeptDeck){from->decks, key,
                   deck_new(search->arena, search->scratch, search->problem, from->variant, &key)};
    arena_reset(search->scratch);
    from->decks = kept;
    return kept->deck;
}

const Order *search_order(Search *search, const Pins *pins)
{
    ScheduleKind kind = schedule_by_name(pins->schedule);
    int micros = (int)(search->problem->job.global_batch / (pins->micro_batch * pins->dp));
    for (const KeptOrder *at = search->orders[kind]; at; at = at->next)
        if (at->stages == pins->pp && at->micros == micros && at->chunks == pins_chunks(pins) &&
            at->table == pins->table && at->braids == (pins->braid > 0))
            return at->order;
    KeptOrder *kept = ARENA_NEW(search->arena, KeptOrder);
    *kept = (KeptOrder){.next = search->orders[kind],
                        .stages = pins->pp,
                        .micros = micros,
                        .chunks = pins_chunks(pins),
                        .table = pins->table,
                        .braids = pins->braid > 0};
    /* a schedule that does not run with these numbers is no error of the user's: others do */
    const Schedule *rows = pins_rows(search->arena, diag_new(search->arena), pins, micros);
    if (rows)
        kept->order = order_new(search->arena, kind, rows);
    search->orders[kind] = kept;
    return kept->order;
}

Family *search_family(Search *search, Arena *arena, const Pins *pins)
{
    const Deck *deck = search_deck(search, pins);
    if (pins_mix(pins) && !mix_pairs(search, pins))
        return NULL;
    const Order *order = deck ? search_order(search, pins) : NULL;
    Family *family =
        order ? family_new(arena, search->problem, deck, order, pins->dp, pins->zero, pins->shard)
              : NULL;
    if (!family)
        return NULL;
    pins_memories(pins, family->memory);
    if (pins_mix(pins)) {
        const Pins tail = pins_of_tail(pins);
        Homes *homes = ARENA_NEW(arena, Homes);
        *homes = homes_preset(&family->mesh, tail.zero, tail.shard);
        family_set_tail(family, search_deck(search, &tail), tail.zero != pins->zero ? homes : NULL);
    }
    return family;
}

void search_links(const Problem *problem, const Pins *pins, int *ret_first_link)
{
    int layers = problem->net->chain.n - 2, chunks = pins_chunks(pins);
    ret_first_link[0] = 0;
    for (int c = 0; c < chunks; c++) {
        int own = pins->cuts ? pins->cut[c] : layers / chunks + (c > 0 && c <= layers % chunks);
        ret_first_link[c + 1] = ret_first_link[c] + own + (c == 0) + (c == chunks - 1);
    }
}
