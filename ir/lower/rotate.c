/* rotate.c - a node runs once for every block of a letter that passes by along a ring of ranks.
 *
 * In turn j a rank works on the block that is at home j places before it (DESIGN section 5,
 * rotate). Operands that lack the staying letter travel: they are sent on before the kernel that
 * reads them runs, so that the next block comes meanwhile. Results that have the staying letter are
 * merged here by the op's monoid; those that lack it are sums that travel with their block and
 * arrive at home complete. Every block has its turn on every rank, one that a mask hides whole too
 * (Liu et al. 2023, ring attention; for the merge Dao et al. 2022).
 */
#include "ir/lower/lower_in.h"

typedef struct Turns {
    Lowering *lo;
    NodeId id;
    const Node *node;
    AtomList ring;
    int n;
} Turns;

static bool stays(const Turns *t, const int8_t *letters, ValueId id)
{
    const NodeChoice *choice = &t->lo->body->plan->choice[t->id];
    int letter = choice->atom[t->ring.at[0]] - CHOICE_LETTER;
    for (int a = 0; a < t->lo->body->graph->values.at[id].axes; a++)
        if (letters[a] == letter)
            return true;
    return false;
}

static bool on_ring(const Turns *t, const Placement *place)
{
    return (place_sharded(place) & list_set(&t->ring)) != 0;
}

static int part_copy(Turns *t, ValueId id, const Placement *place, int turn)
{
    int copy = lower_copy(t->lo, id, place, HOME_TEMP);
    if (turn != 0) {
        t->lo->body->copies.at[copy].ring = t->ring;
        t->lo->body->copies.at[copy].turn = turn;
    }
    return copy;
}

/* The same block, `by` places on. */
static int pass_on(Turns *t, int copy, int by)
{
    const Copy *from = &t->lo->body->copies.at[copy];
    Placement place = from->place;
    int target = part_copy(t, from->value, &place, (from->turn + by) % t->n);
    Inst *inst = lower_inst(t->lo, INST_MOVE);
    inst->flow = t->node->flow;
    inst->move = (Move){.kind = MOVE_ROTATE, .atoms = t->ring, .from = NONE, .to = NONE, .by = by};
    inst->ins = inst->outs = 1;
    inst->in[0] = copy;
    inst->out[0] = target;
    return target;
}

/* Joins `n` results with those of earlier turns, which they replace. */
static void merge_parts(Turns *t, Monoid monoid, int n, const int *part, int *total)
{
    int made[MAX_OUT];
    for (int k = 0; k < n; k++) {
        const Copy *copy = &t->lo->body->copies.at[part[k]];
        Placement place = copy->place;
        made[k] = part_copy(t, copy->value, &place, copy->turn);
    }
    Inst *inst = lower_inst(t->lo, INST_MERGE);
    inst->flow = t->node->flow;
    inst->monoid = (uint8_t)monoid;
    inst->ins = 2 * n;
    inst->outs = n;
    for (int k = 0; k < n; k++) {
        inst->in[k] = total[k];
        inst->in[n + k] = part[k];
        inst->out[k] = total[k] = made[k];
    }
}

/* What a turn makes joins the results so far; `first`: there are none. */
static void join_turn(Turns *t, const bool *travels, const int *part, bool first, int *total)
{
    Monoid monoid = op_info[t->node->op].monoid;
    int stay[MAX_OUT], old[MAX_OUT], n = 0;
    for (int k = 0; k < t->node->outs; k++) {
        if (first) {
            total[k] = part[k];
        } else if (travels[k]) {
            merge_parts(t, MONOID_SUM, 1, &part[k], &total[k]);
        } else {
            stay[n] = part[k];
            old[n++] = total[k];
        }
    }
    if (n == 0)
        return;
    merge_parts(t, monoid, n, stay, old);
    for (int k = 0, i = 0; k < t->node->outs; k++)
        if (!travels[k])
            total[k] = old[i++];
}

void lower_turns(Lowering *lo, NodeId id, const AtomList *ring, const int *operand,
                 const Placement *out, int *ret_result)
{
    Body *body = lo->body;
    const Node *node = &body->graph->nodes.at[id];
    Turns t = {lo, id, node, *ring, list_extent(body->mesh, ring)};
    bool in_travels[MAX_IN], out_travels[MAX_OUT];
    int now[MAX_IN];
    for (int k = 0; k < node->ins; k++) {
        now[k] = operand[k];
        in_travels[k] = !stays(&t, node->sig.in[k], node->in[k]) &&
                        on_ring(&t, &body->copies.at[operand[k]].place);
    }
    for (int k = 0; k < node->outs; k++)
        out_travels[k] = !stays(&t, node->sig.out[k], node->out[k]) && on_ring(&t, &out[k]);
    for (int turn = 0; turn < t.n; turn++) {
        int part[MAX_OUT], next[MAX_IN];
        for (int k = 0; k < node->ins; k++)
            next[k] = in_travels[k] && turn + 1 < t.n ? pass_on(&t, now[k], 1) : now[k];
        for (int k = 0; k < node->outs; k++)
            part[k] = part_copy(&t, node->out[k], &out[k], out_travels[k] ? turn : 0);
        lower_kernel(lo, id, now, part)->turn = turn;
        join_turn(&t, out_travels, part, turn == 0, ret_result);
        for (int k = 0; k < node->outs; k++)
            if (out_travels[k])
                ret_result[k] = pass_on(&t, ret_result[k], 1);
        for (int k = 0; k < node->ins; k++)
            now[k] = next[k];
    }
}
