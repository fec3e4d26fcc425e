/* braid.c - which links of two rows run beside each other, and in which order their instructions
 * are issued. */
#include "ir/lower/braid.h"

void part_lists(PartKind part, int *ret_begin, int *ret_end)
{
    *ret_begin = part == PART_F ? 0 : part == PART_W ? 2 : 1;
    *ret_end = part == PART_F ? 1 : part == PART_I ? 2 : 3;
}

PartKind list_part(int which, bool splits)
{
    return which == 0 ? PART_F : which == 2 ? PART_W : splits ? PART_I : PART_B;
}

bool program_splits(const Program *program)
{
    for (int c = 0; c < program->net->classes.n; c++)
        if (program->body[c]->weight.n > 0)
            return true;
    return false;
}

struct BraidShelf {
    Arena *arena;
    const Cluster *cluster;
    VEC(Braid *) list;
};

BraidShelf *braid_shelf_new(Arena *arena, const Cluster *cluster)
{
    BraidShelf *shelf = ARENA_NEW(arena, BraidShelf);
    shelf->arena = arena;
    shelf->cluster = cluster;
    return shelf;
}

static int part_insts(const Body *body, PartKind part)
{
    int begin, end, n = 0;
    part_lists(part, &begin, &end);
    for (int l = begin; body && l < end; l++)
        n += body_list(body, l)->n;
    return n;
}

/* Items of the lists of a part, behind `n` others: each list in its order, the second of two behind
 * the first. W reads what I saves, and waits for it as it does in the layout. */
static int add_items(Arena *scratch, const BraidShelf *shelf, const Body *body, PartKind part,
                     OrderItem *item, BraidInst *inst, int n)
{
    int begin, end, first = n;
    part_lists(part, &begin, &end);
    for (int l = begin; body && l < end; l++) {
        const InstList *list = body_list(body, l);
        order_read(scratch, body, list, shelf->cluster, n, &item[n]);
        for (int i = 0; i < list->n; i++, n++) {
            inst[n] = (BraidInst){l, i};
            item[n].behind = n > first ? n - 1 : NONE;
        }
    }
    return n;
}

/* Either may be NULL: the other by itself. */
static void make_braid(BraidShelf *shelf, Braid *braid)
{
    Arena *scratch = arena_new("braid");
    int n = part_insts(braid->forward, PART_F) + part_insts(braid->backward, braid->part);
    OrderItem *item = ARENA_ARRAY(scratch, OrderItem, n + 1);
    BraidInst *inst = ARENA_ARRAY(scratch, BraidInst, n + 1);
    int *order = ARENA_ARRAY(scratch, int, n + 1);
    int own = add_items(scratch, shelf, braid->forward, PART_F, item, inst, 0);
    braid->n = add_items(scratch, shelf, braid->backward, braid->part, item, inst, own);
    /* the second list begins by itself */
    braid->ns = order_items(scratch, item, n, order);
    braid->inst = ARENA_ARRAY(shelf->arena, BraidInst, n + 1);
    for (int i = 0; i < n; i++)
        braid->inst[i] = inst[order[i]];
    arena_free(scratch);
}

static const Braid *find_braid(BraidShelf *shelf, const Body *forward, const Body *backward,
                               PartKind part)
{
    for (int i = 0; i < shelf->list.n; i++) {
        const Braid *at = shelf->list.at[i];
        if (at->forward == forward && at->backward == backward && at->part == part)
            return at;
    }
    Braid *braid = ARENA_NEW(shelf->arena, Braid);
    *braid = (Braid){.forward = forward, .backward = backward, .part = part};
    make_braid(shelf, braid);
    vec_push(shelf->arena, &shelf->list) = braid;
    return braid;
}

/* What a cell of the alignment adds: both links, or one of the two. */
typedef enum { ADDS_BOTH, ADDS_FORWARD, ADDS_BACKWARD } Adds;

typedef struct AlignCell {
    int64_t ns;
    Adds adds;
} AlignCell;

Pairing *pairing_make(BraidShelf *shelf, const Body *const *forward, int forwards,
                      const Body *const *backward, int backwards, PartKind part)
{
    Arena *scratch = arena_new("pairing");
    int wide = backwards + 1;
    AlignCell *cell = ARENA_ARRAY(scratch, AlignCell, (forwards + 1) * wide);
    for (int i = 0; i <= forwards; i++)
        for (int k = i == 0; k <= backwards; k++) {
            AlignCell best = {INT64_MAX, ADDS_BOTH};
            for (int adds = ADDS_BOTH; adds <= ADDS_BACKWARD; adds++) {
                bool f = adds != ADDS_BACKWARD, b = adds != ADDS_FORWARD;
                if ((f && i == 0) || (b && k == 0))
                    continue;
                int64_t ns =
                    cell[(i - f) * wide + k - b].ns +
                    find_braid(shelf, f ? forward[i - 1] : NULL, b ? backward[k - 1] : NULL, part)
                        ->ns;
                if (ns < best.ns)
                    best = (AlignCell){ns, (Adds)adds};
            }
            cell[i * wide + k] = best;
        }
    Pairing *pairing = ARENA_NEW(shelf->arena, Pairing);
    pairing->part = part;
    pairing->link = ARENA_ARRAY(shelf->arena, PairLink, forwards + backwards + 1);
    for (int i = forwards, k = backwards; i > 0 || k > 0;) {
        Adds adds = cell[i * wide + k].adds;
        PairLink link = {NONE, NONE, NULL};
        if (adds != ADDS_BACKWARD)
            link.forward = --i;
        if (adds != ADDS_FORWARD)
            link.backward = --k;
        link.braid = find_braid(shelf, link.forward == NONE ? NULL : forward[link.forward],
                                link.backward == NONE ? NULL : backward[link.backward], part);
        pairing->link[pairing->links++] = link;
    }
    for (int i = 0, k = pairing->links - 1; i < k; i++, k--) {
        PairLink link = pairing->link[i];
        pairing->link[i] = pairing->link[k];
        pairing->link[k] = link;
    }
    arena_free(scratch);
    return pairing;
}

/* ---- of a program ---- */

bool chunk_meets_itself(const StageProgram *stage, int chunk)
{
    bool any = false;
    for (int i = 0; i < stage->pairings.n; i++) {
        const Pairing *at = stage->pairings.at[i];
        any = any || (at->forward == chunk && at->backward == chunk);
    }
    return any;
}

int row_link(const Chunk *chunk, bool forward, int at)
{
    return forward ? chunk->begin + at : chunk->end - 1 - at;
}

static const Pairing *find_pairing(const StageProgram *stage, int forward, int backward,
                                   PartKind part)
{
    for (int i = 0; i < stage->pairings.n; i++) {
        const Pairing *at = stage->pairings.at[i];
        if (at->forward == forward && at->backward == backward && at->part == part)
            return at;
    }
    return NULL;
}

const Pairing *entry_pairing(const StageProgram *stage, const Entry *entry)
{
    const Pairing *pairing = find_pairing(stage, entry[0].chunk, entry[1].chunk, entry[1].part);
    CHECK(entry->braids && pairing != NULL);
    return pairing;
}

static const Body **row_bodies(Arena *scratch, const StageProgram *stage, int chunk, bool forward,
                               int *ret_n)
{
    const Chunk *at = &stage->chunk[chunk];
    *ret_n = at->end - at->begin;
    const Body **body = ARENA_ARRAY(scratch, const Body *, *ret_n + 1);
    for (int i = 0; i < *ret_n; i++)
        body[i] = stage->link[row_link(at, forward, i)].body;
    return body;
}

void program_add_pairings(Program *program)
{
    BraidShelf *shelf = braid_shelf_new(program->arena, program->plan->cluster);
    Arena *scratch = arena_new("pairings");
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        for (int i = 0; i < stage->table.n; i++) {
            const Entry *entry = &stage->table.at[i];
            if (!entry->braids ||
                find_pairing(stage, entry[0].chunk, entry[1].chunk, entry[1].part))
                continue;
            CHECK(entry[1].braided && entry[0].part == PART_F && entry[1].part != PART_F);
            int forwards, backwards;
            const Body **forward = row_bodies(scratch, stage, entry[0].chunk, true, &forwards),
                       **backward = row_bodies(scratch, stage, entry[1].chunk, false, &backwards);
            Pairing *pairing =
                pairing_make(shelf, forward, forwards, backward, backwards, entry[1].part);
            pairing->forward = entry[0].chunk;
            pairing->backward = entry[1].chunk;
            vec_push(program->arena, &stage->pairings) = pairing;
        }
    }
    arena_free(scratch);
}
