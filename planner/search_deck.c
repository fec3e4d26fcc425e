/* search_deck.c - bounds on time by the cards of a deck: of links before they are stages. */
#include "ir/base/num.h"
#include "planner/search_in.h"

LinkSum card_least(const Card *card, bool braided)
{
    const CardSegment *list[PART_COUNT] = {
        [PART_F] = &card->forward, [PART_I] = &card->backward, [PART_W] = &card->weight};
    LinkSum least = {{0}};
    for (int part = 0; part < PART_COUNT; part++) {
        const CardSegment *at = list[part];
        if (at) /* others may hide the rest */
            least.ns[part] = braided ? at->compute_ns : at->ns < at->next_ns ? at->ns : at->next_ns;
    }
    least.ns[PART_B] = least.ns[PART_I] + least.ns[PART_W];
    return least;
}

void deck_sums(const Pins *pins, const Deck *deck, const Deck *other, LinkSum *ret)
{
    for (int i = 0; i < deck->net->chain.n; i++) {
        int class = deck->net->chain.at[i].class;
        LinkSum least = card_least(&deck->card[class], pins->braid > 0), own = least;
        if (other)
            own = card_least(&other->card[class], pins->braid > 0);
        for (int part = 0; part < PART_COUNT; part++) {
            int64_t *at = &least.ns[part];
            *at = own.ns[part] < *at ? own.ns[part] : *at;
            ret[i + 1].ns[part] = ret[i].ns[part] + *at;
        }
    }
}

int64_t card_least_ns(const Card *card, bool braided)
{
    LinkSum least = card_least(card, braided);
    return least.ns[PART_F] + least.ns[PART_B];
}

/* ---- steps of whole matrices ---- */

typedef struct Kind {
    const CardMatrix *matrix;
    int64_t ranks, all; /* that they are dealt to at most; how many there are */
} Kind;

/* The kinds of matrices of a deck, each once. */
static int deck_kinds(const Pins *pins, const Deck *deck, Kind *ret, int cap)
{
    /* the deck's mesh lacks ranks of dp */
    int64_t others = (int64_t)pins->tp * pins->cp * pins->dp / mesh_ranks(&deck->mesh);
    int n = 0;
    for (int i = 0; i < deck->net->chain.n; i++) {
        const Card *card = &deck->card[deck->net->chain.at[i].class];
        for (int g = 0; g < card->groups; g++) {
            const CardGroup *group = &card->group[g];
            int k = 0;
            while (k < n && !card_same_matrix(ret[k].matrix, group->matrix))
                k++;
            if (!group->matrix || k == cap)
                continue;
            if (k == n)
                ret[n++] = (Kind){.matrix = group->matrix};
            int64_t own = group->elements / group->matrix->unit,
                    ranks = pins->zero > 0 ? others * mesh_extent(&deck->mesh, group->partial) : 1;
            ret[k].all += own;
            ret[k].ranks = num_larger(ret[k].ranks, ranks);
        }
    }
    return n;
}

int64_t deck_update_ns(const Pins *pins, const Deck *deck)
{
    enum { KINDS = 32 };
    Kind kind[KINDS];
    int64_t ns = 0;
    int n = deck_kinds(pins, deck, kind, KINDS);
    for (int k = 0; k < n; k++) {
        int64_t each = kind[k].all * kind[k].matrix->ns / (kind[k].ranks * pins->pp);
        ns += pins->pp == 1 ? num_larger(each, kind[k].matrix->ns) : each;
    }
    return ns;
}
