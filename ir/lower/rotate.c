/* rotate.c - a node runs once for every block of a letter that passes by along a ring of ranks.
 *
 * In turn j a rank works on the block that is at home j places before it (DESIGN section 5,
 * rotate). Operands that lack the staying letter travel: they are sent on before the kernel that
 * reads them runs, so that the next block comes meanwhile. Results that have the staying letter are
 * merged here by the op's monoid; those that lack it are sums that travel with their block and
 * arrive at home complete. What has both letters stays whole, and a turn reads or writes its block
 * of it. Every block has its turn on every rank, but for turns in which masks hide all blocks
 * whole: those are passed over in one move. A result that turns sum over tokens is wide until all
 * of them are in it, as any sum over tokens is (wide.h), and is rounded then (Liu et al. 2023, ring
 * attention; for the merge Dao et al. 2022; Wang et al. 2023, gathers and scatters of sums that
 * hide behind products).
 */
#include "ir/lower/lower_in.h"
#include "ir/lower/turns.h"
#include "ir/wide.h"

#include <string.h>

typedef struct Turns {
    Lowering *lo;
    NodeId id;
    const Node *node;
    const NodeChoice *choice;
    AtomList ring;
    int n;
} Turns;

/* Where a turn's share of a result goes. */
typedef enum {
    PART_TRAVELS, /* is a term of a sum that goes home with its block */
    PART_MERGES,  /* is joined with those before by the op's monoid */
    PART_ADDS,    /* is added by the kernel to those before */
    PART_BLOCK    /* is one block of it */
} Part;

static bool stays(const Turns *t, const int8_t *letters, ValueId id)
{
    int letter = t->choice->atom[t->ring.at[0]] - CHOICE_LETTER;
    for (int a = 0; a < t->lo->body->graph->values.at[id].axes; a++)
        if (letters[a] == letter)
            return true;
    return false;
}

static bool on_ring(const Turns *t, const Placement *place)
{
    return (place_sharded(place) & list_set(&t->ring)) != 0;
}

static int part_copy(Turns *t, ValueId id, const Placement *place, int turn, bool wide)
{
    int copy = lower_copy(t->lo, id, place, HOME_TEMP);
    if (wide)
        lower_widen(t->lo, copy);
    if (turn != 0) {
        t->lo->body->copies.at[copy].ring = t->ring;
        t->lo->body->copies.at[copy].turn = turn;
    }
    return copy;
}

static Part result_part(const Turns *t, int k, const Placement *out)
{
    const int8_t *letters = t->node->sig.out[k];
    int axes = t->lo->body->graph->values.at[t->node->out[k]].axes;
    if (ring_block_axis(&t->ring, t->choice, letters, axes) != NONE)
        return PART_BLOCK;
    if (!stays(t, letters, t->node->out[k]) && on_ring(t, out))
        return PART_TRAVELS;
    const OpInfo *info = &op_info[t->node->op];
    return info->monoid == MONOID_SUM && kernel_info[info->form].in_place ? PART_ADDS : PART_MERGES;
}

/* Do turns sum this result over tokens? What travels is summed along the letter that stays. */
static bool part_is_wide(const Turns *t, Part how)
{
    int atom = t->ring.at[0];
    int letter = (how == PART_TRAVELS ? t->choice->atom : t->choice->travel)[atom] - CHOICE_LETTER;
    return how != PART_BLOCK && letter_counts_tokens(t->lo->body->graph, t->node, letter);
}

static bool is_widened(const Turns *t, int copy)
{
    const Copy *c = &t->lo->body->copies.at[copy];
    return c->dtype != value_dtype(t->lo->body->graph, c->value, t->lo->body->recipe);
}

/* A ring in place of a gather has room for all blocks: another node may have passed this one on.
 * Where the ring is the only way, blocks pass by and are forgotten. */
static int passed_before(const Turns *t, int copy)
{
    int letter = t->choice->travel[t->ring.at[0]] - CHOICE_LETTER;
    if (t->node->sig.nosplit >> letter & 1)
        return NONE;
    for (int i = 0; i < t->lo->insts.n; i++) {
        const Inst *inst = &t->lo->insts.at[i];
        if (inst->kind == INST_MOVE && inst->move.kind == MOVE_ROTATE && inst->in[0] == copy &&
            inst->move.by == 1 && memcmp(&inst->move.atoms, &t->ring, sizeof t->ring) == 0)
            return inst->out[0];
    }
    return NONE;
}

/* The same block, `by` places on. */
static int pass_on(Turns *t, int copy, int by)
{
    const Copy *from = &t->lo->body->copies.at[copy];
    Placement place = from->place;
    int target = part_copy(t, from->value, &place, (from->turn + by) % t->n, is_widened(t, copy));
    Inst *inst = lower_inst(t->lo, INST_MOVE);
    inst->flow = t->node->flow;
    inst->move = (Move){.kind = MOVE_ROTATE, .atoms = t->ring, .from = NONE, .to = NONE, .by = by};
    inst->ins = inst->outs = 1;
    inst->in[0] = copy;
    inst->out[0] = target;
    return target;
}

/* Joins `n` results with those of earlier turns, which they replace. */
static void merge_parts(Turns *t, Monoid monoid, int turn, int n, const int *part, int *total)
{
    int made[MAX_OUT];
    for (int k = 0; k < n; k++) {
        const Copy *copy = &t->lo->body->copies.at[part[k]];
        Placement place = copy->place;
        made[k] = part_copy(t, copy->value, &place, copy->turn, is_widened(t, part[k]));
    }
    Inst *inst = lower_inst(t->lo, INST_MERGE);
    inst->flow = t->node->flow;
    inst->monoid = (uint8_t)monoid;
    inst->turn = turn;
    inst->ins = 2 * n;
    inst->outs = n;
    for (int k = 0; k < n; k++) {
        inst->in[k] = total[k];
        inst->in[n + k] = part[k];
        inst->out[k] = total[k] = made[k];
    }
}

/* What a turn makes joins the results so far; in turn 0 there are none. */
static void join_turn(Turns *t, const Part *how, const int *part, int turn, int *total)
{
    Monoid monoid = op_info[t->node->op].monoid;
    int stay[MAX_OUT], old[MAX_OUT], n = 0;
    for (int k = 0; k < t->node->outs; k++) {
        if (turn == 0) {
            total[k] = part[k];
        } else if (how[k] == PART_TRAVELS) {
            merge_parts(t, MONOID_SUM, turn, 1, &part[k], &total[k]);
        } else if (how[k] == PART_MERGES) {
            stay[n] = part[k];
            old[n++] = total[k];
        }
    }
    if (n == 0)
        return;
    merge_parts(t, monoid, turn, n, stay, old);
    for (int k = 0, i = 0; k < t->node->outs; k++)
        if (how[k] == PART_MERGES)
            total[k] = old[i++];
}

void lower_turns(Lowering *lo, NodeId id, const AtomList *ring, const int *operand,
                 const Placement *out, int *ret_result)
{
    Body *body = lo->body;
    const Node *node = &body->graph->nodes.at[id];
    Turns t = {lo, id, node, &body->plan->choice[id], *ring, list_extent(body->mesh, ring)};
    bool in_travels[MAX_IN];
    Part how[MAX_OUT];
    int now[MAX_IN];
    for (int k = 0; k < node->ins; k++) {
        now[k] = operand[k];
        in_travels[k] = !stays(&t, node->sig.in[k], node->in[k]) &&
                        on_ring(&t, &body->copies.at[operand[k]].place);
    }
    for (int k = 0; k < node->outs; k++)
        how[k] = result_part(&t, k, &out[k]);
    Placement in[MAX_IN];
    for (int k = 0; k < node->ins; k++)
        in[k] = body->copies.at[operand[k]].place;
    Meeting meeting = {body->mesh, body->net, body->graph, node, in, *ring};
    for (int turn = 0, then; turn < t.n; turn = then) {
        int part[MAX_OUT], next[MAX_IN];
        uint8_t adds = 0;
        then = turn_next(&meeting, turn);
        for (int k = 0; k < node->ins; k++) {
            int there = in_travels[k] ? passed_before(&t, now[k]) : NONE;
            next[k] = !in_travels[k] || then == t.n ? now[k]
                      : there != NONE               ? there
                                                    : pass_on(&t, now[k], then - turn);
        }
        for (int k = 0; k < node->outs; k++) {
            bool again = turn > 0 && (how[k] == PART_ADDS || how[k] == PART_BLOCK);
            part[k] = again
                          ? ret_result[k]
                          : part_copy(&t, node->out[k], &out[k], how[k] == PART_TRAVELS ? turn : 0,
                                      part_is_wide(&t, how[k]));
            adds = (uint8_t)(adds | (again && how[k] == PART_ADDS) << k);
        }
        Inst *inst = lower_kernel(lo, id, now, part);
        inst->turn = turn;
        inst->adds = adds;
        join_turn(&t, how, part, turn, ret_result);
        for (int k = 0; k < node->outs; k++)
            if (how[k] == PART_TRAVELS)
                ret_result[k] = pass_on(&t, ret_result[k], then - turn);
        for (int k = 0; k < node->ins; k++)
            now[k] = next[k];
    }
    for (int k = 0; k < node->outs; k++)
        if (is_widened(&t, ret_result[k]))
            ret_result[k] = lower_own_copy(lo, node->out[k], ret_result[k], HOME_TEMP);
}
