/* pair.c - rows that are two in one, from cards of their links and of pairs of them. */
#include "planner/pair.h"

#include "ir/base/num.h"

typedef struct PairCard {
    const Braid *braid;
    BraidRun run;
    int64_t next_ns; /* what one adds behind its like */
} PairCard;

struct PairShelf {
    Arena *arena;
    const Pricer *pricer;
    const Body *const *body; /* per class */
    BraidShelf *braids;
    VEC(PairCard) cards;
};

PairShelf *pair_shelf_new(Arena *arena, const Pricer *pricer, const Body *const *body)
{
    PairShelf *shelf = ARENA_NEW(arena, PairShelf);
    *shelf = (PairShelf){.arena = arena,
                         .pricer = pricer,
                         .body = body,
                         .braids = braid_shelf_new(arena, pricer->cluster)};
    return shelf;
}

static const PairCard *card_of(PairShelf *shelf, const Braid *braid)
{
    for (int i = 0; i < shelf->cards.n; i++)
        if (shelf->cards.at[i].braid == braid)
            return &shelf->cards.at[i];
    PairCard *card = &vec_push(shelf->arena, &shelf->cards);
    card->braid = braid;
    card->run = card_run_braid(shelf->pricer, braid, 1);
    card->next_ns =
        num_larger(card_run_braid(shelf->pricer, braid, 2).ns - card->run.ns, card->run.compute);
    return card;
}

PairRow pair_row(Arena *arena, const Net *net, int begin, int end, bool forward)
{
    PairRow row = {end - begin, ARENA_ARRAY(arena, int, end - begin + 1)};
    for (int i = 0; i < row.n; i++)
        row.class[i] = net->chain.at[forward ? begin + i : end - 1 - i].class;
    return row;
}

static const Body **bodies_of(Arena *scratch, const PairShelf *shelf, const PairRow *row)
{
    const Body **body = ARENA_ARRAY(scratch, const Body *, row->n + 1);
    for (int i = 0; i < row->n; i++)
        body[i] = shelf->body[row->class[i]];
    return body;
}

PairTimes pair_row_times(PairShelf *shelf, const PairRow *forward, const PairRow *backward,
                         PartKind part, PairStep *ret_step, int *ret_steps)
{
    Arena *scratch = arena_new("pair");
    const Pairing *pairing =
        pairing_make(shelf->braids, bodies_of(scratch, shelf, forward), forward->n,
                     bodies_of(scratch, shelf, backward), backward->n, part);
    PairTimes times = {.lead = NONE};
    for (int i = 0; i < pairing->links; i++) {
        const PairLink *link = &pairing->link[i];
        const PairCard *card = card_of(shelf, link->braid);
        if (link->backward != NONE && times.lead == NONE)
            times.lead = times.ns + card->run.backward;
        if (link->forward != NONE)
            times.forward = times.ns + card->run.forward;
        int64_t ns = i == 0 ? card->run.ns : card->next_ns;
        times.ns += ns;
        if (ret_step)
            ret_step[i] = (PairStep){link->forward, link->backward, ns,
                                     card->run.forward < ns ? card->run.forward : ns,
                                     card->run.backward < ns ? card->run.backward : 0};
    }
    if (ret_step)
        *ret_steps = pairing->links;
    times.forward = times.forward < times.ns ? times.forward : times.ns;
    arena_free(scratch);
    return times;
}
