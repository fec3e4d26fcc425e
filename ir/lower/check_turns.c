/* check_turns.c - the static proof of rings: every block meets every rank once, and what is made of
 * it arrives complete.
 *
 * Each copy has the set of turns whose results are in it. A kernel of turn j makes {j}, or adds j
 * to what is there without it: in its own block, or as a term. A merge makes the union of sets that
 * share nothing, passing on keeps it; whoever else reads a copy must find it at home and all turns
 * in it. Turns of which no rank sees anything are in it from the start. Until then a sum over
 * tokens is as wide as gradients are. */
#include "ir/lower/check_in.h"
#include "ir/lower/turns.h"

#include <string.h>

typedef struct Passing {
    Check *check;
    const Body *body;
    uint64_t *turns; /* per copy; all bits: complete */
} Passing;

static bool wrong(const Passing *r, int copy, const char *what)
{
    return check_fault(r->check, "class %s: %s %s", r->body->graph->name,
                       r->body->copies.at[copy].name, what);
}

/* The letter along which turns are summed has the batch or the sequence, and more are to come. */
static bool wide_enough(const Passing *r, const Node *node, int letter, int id)
{
    const Copy *copy = &r->body->copies.at[id];
    bool tokens = false;
    for (int k = 0; k < node->ins; k++) {
        const Value *value = &r->body->graph->values.at[node->in[k]];
        for (int a = 0; a < value->axes; a++)
            tokens |= node->sig.in[k][a] == letter &&
                      (value->dim[a] == r->body->net->sequence ||
                       r->body->net->dims.at[value->dim[a]].kind == DIM_BATCH);
    }
    return !tokens || copy->dtype == r->body->recipe->gradient ||
           wrong(r, id, "is a sum over tokens that is rounded in every turn");
}

static bool at_home(const Passing *r, const Inst *inst)
{
    bool good = true;
    for (int k = 0; k < inst->ins; k++) {
        if (r->body->copies.at[inst->in[k]].turn != 0)
            good = wrong(r, inst->in[k], "is read where another rank's block passes by");
        if (~r->turns[inst->in[k]] != 0)
            good = wrong(r, inst->in[k], "is read before all blocks are in it");
    }
    return good;
}

static bool has_letter(const Body *body, const int8_t *letters, int copy, int letter)
{
    for (int a = 0; a < body->graph->values.at[body->copies.at[copy].value].axes; a++)
        if (letters[a] == letter)
            return true;
    return false;
}

/* The bits of a node's copies that are no turn of it. */
static uint64_t no_turns(const Passing *r, NodeId id)
{
    const Body *body = r->body;
    const NodeChoice *choice = &body->plan->choice[id];
    const Node *node = &body->graph->nodes.at[id];
    Placement in[MAX_IN], out[MAX_OUT];
    CHECK(place_node(body->mesh, body->net, body->graph, node, choice, in, out));
    Meeting meeting = {body->mesh, body->net, body->graph, node, in, node_ring(body->mesh, choice)};
    return ~turns_set(&meeting);
}

/* A result of which each turn makes a block, or to which it adds, is one copy for all of them. */
static bool check_result(Passing *r, const Inst *inst, int k, const AtomList *ring, uint64_t whole)
{
    const Body *body = r->body;
    const Node *node = &body->graph->nodes.at[inst->node[0]];
    int id = inst->bind_out[0][k];
    uint64_t turn = UINT64_C(1) << inst->turn, *has = &r->turns[id];
    bool block = ring_block_axis(ring, &body->plan->choice[inst->node[0]], node->sig.out[k],
                                 body->graph->values.at[node->out[k]].axes) != NONE;
    bool adds = inst->adds >> k & 1, more = inst->turn > 0 && (block || adds), good = true;
    if (adds && (inst->turn == 0 || block || op_info[node->op].monoid != MONOID_SUM ||
                 !kernel_info[op_info[node->op].form].in_place))
        good = wrong(r, id, "is added to what is not there, or is no sum");
    if (more && (~*has == 0 || (*has & turn) != 0))
        good = wrong(r, id, "has a block in it twice");
    *has = more ? *has | turn : whole | turn;
    return good;
}

/* What passes by is there in its turn, all else stays. */
static bool check_turn(Passing *r, const Inst *inst, const AtomList *ring)
{
    const Body *body = r->body;
    const Node *node = &body->graph->nodes.at[inst->node[0]];
    const NodeChoice *choice = &body->plan->choice[inst->node[0]];
    int stay = choice->atom[ring->at[0]] - CHOICE_LETTER, n = list_extent(body->mesh, ring);
    int pass = choice->travel[ring->at[0]] - CHOICE_LETTER;
    bool good = inst->nodes == 1 && inst->turn >= 0 && inst->turn < n && n <= MAX_TURNS;
    if (!good)
        return wrong(r, inst->out[0], "is made in a turn that the ring does not have");
    uint64_t whole = no_turns(r, inst->node[0]);
    if (whole >> inst->turn & 1)
        good = wrong(r, inst->out[0], "is made in a turn in which no rank sees anything");
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool in = k < node->ins;
        int id = in ? inst->bind_in[0][k] : inst->bind_out[0][k - node->ins];
        const int8_t *letters = in ? node->sig.in[k] : node->sig.out[k - node->ins];
        const Copy *copy = &body->copies.at[id];
        bool passes = !has_letter(body, letters, id, stay) && has_letter(body, letters, id, pass);
        if (copy->turn != (passes ? inst->turn : 0) ||
            (copy->turn && memcmp(&copy->ring, ring, sizeof *ring) != 0))
            good = wrong(r, id, "holds another rank's block than this turn's");
        if (in && ~r->turns[id] != 0)
            good = wrong(r, id, "is read before all blocks are in it");
        if (!in) {
            good &= check_result(r, inst, k - node->ins, ring, whole);
            if (inst->adds >> (k - node->ins) & 1)
                good &= wide_enough(r, node, pass, id);
        }
    }
    return good;
}

static bool check_pass(Passing *r, const Inst *inst)
{
    const Copy *from = &r->body->copies.at[inst->in[0]], *to = &r->body->copies.at[inst->out[0]];
    int n = list_extent(r->body->mesh, &inst->move.atoms);
    bool good = inst->move.by > 0 && to->turn == (from->turn + inst->move.by) % n;
    for (int end = 0; end < 2; end++) {
        const Copy *copy = end ? to : from;
        good &= copy->turn == 0 || memcmp(&copy->ring, &inst->move.atoms, sizeof copy->ring) == 0;
    }
    r->turns[inst->out[0]] = r->turns[inst->in[0]];
    return good || wrong(r, inst->out[0], "is not the block that is passed on");
}

static bool check_merge(Passing *r, const Inst *inst)
{
    const Body *body = r->body;
    bool good = inst->outs > 0 && inst->ins == 2 * inst->outs &&
                (inst->monoid == MONOID_SUM || (inst->monoid == MONOID_LSE && inst->outs == 2));
    if (!good)
        return wrong(r, inst->out[0], "is joined in no known way");
    for (int k = 0; k < inst->outs; k++) {
        const int part[] = {inst->in[k], inst->in[inst->outs + k]};
        const Copy *to = &body->copies.at[inst->out[k]];
        const Value *value = &body->graph->values.at[to->value];
        const Node *node = &body->graph->nodes.at[value->made];
        AtomList ring = node_ring(body->mesh, &body->plan->choice[value->made]);
        int stay = body->plan->choice[value->made].atom[ring.n ? ring.at[0] : 0] - CHOICE_LETTER;
        bool here = has_letter(body, node->sig.out[value->out], inst->out[k], stay);
        Monoid monoid = here ? op_info[node->op].monoid : MONOID_SUM;
        int pass = body->plan->choice[value->made].travel[ring.n ? ring.at[0] : 0] - CHOICE_LETTER;
        if (inst->monoid != monoid || (monoid == MONOID_LSE && value->out != k))
            good = wrong(r, inst->out[k], "is joined in another way than its op says");
        for (int p = 0; p < 3; p++)
            good &= wide_enough(r, node, here ? pass : stay, p == 2 ? inst->out[k] : part[p]);
        for (int p = 0; p < 2; p++) {
            const Copy *from = &body->copies.at[part[p]];
            if (from->value != to->value || !place_equal(&from->place, &to->place) ||
                from->turn != to->turn)
                good = wrong(r, part[p], "is joined with what is placed otherwise");
        }
        uint64_t both = r->turns[part[0]] & r->turns[part[1]], none = no_turns(r, value->made);
        if (both != none)
            good = wrong(r, inst->out[k], "has a block in it twice");
        /* ranks that see nothing in this turn leave the second one out */
        if (r->turns[part[1]] != (none | UINT64_C(1) << inst->turn))
            good = wrong(r, part[1], "is joined in another turn than its own");
        r->turns[inst->out[k]] = r->turns[part[0]] | r->turns[part[1]];
    }
    return good;
}

bool check_turns(Check *check, const Body *body, const InstList *list)
{
    Arena *scratch = arena_new("turns");
    Passing ring = {check, body, ARENA_ARRAY(scratch, uint64_t, body->copies.n + 1)};
    bool good = true;
    memset(ring.turns, 0xff, sizeof *ring.turns * (size_t)(body->copies.n + 1));
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        AtomList atoms = {0};
        for (int k = 0; inst->kind == INST_KERNEL && k < inst->nodes && atoms.n == 0; k++)
            atoms = node_ring(body->mesh, &body->plan->choice[inst->node[k]]);
        if (atoms.n > 0)
            good &= check_turn(&ring, inst, &atoms);
        else if (inst->kind == INST_MERGE)
            good &= check_merge(&ring, inst);
        else if (inst->kind == INST_MOVE && inst->move.kind == MOVE_ROTATE)
            good &= check_pass(&ring, inst);
        else
            good &= at_home(&ring, inst);
    }
    for (int i = 0; i < body->copies.n; i++)
        if (body->copies.at[i].home != HOME_TEMP && ~ring.turns[i] != 0)
            good = wrong(&ring, i, "is handed on before all blocks are in it");
    arena_free(scratch);
    return good;
}
