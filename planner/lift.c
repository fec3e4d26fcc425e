/* lift.c - the classes of a variant on the mesh of a plan: dp atoms take the batch, and those that
 * share experts the rows that name them. */
#include <string.h>

#include "planner/variant.h"

/* A run of dp atoms of the mesh that go to the batch: the highest atom is the slowest link, hence
 * major. Where `routed` says so they go to the rows that name what they hold. */
typedef struct Lift {
    const Net *net;
    const Mesh *mesh;
    const Graph *graph;
    int low, high;  /* atoms: [low, high) */
    bool *routed;   /* per node: works on single choices; NULL: these atoms share no experts */
    bool *partial;  /* per value: a sum over the batch has left it Partial on them */
    DimId *named;   /* per value: what choices name, along which it is cut; NONE */
    bool recompute; /* nothing is kept but what links hand on */
} Lift;

static AtomSet lift_atoms(const Lift *lift)
{
    return (AtomSet)(((1u << lift->high) - 1) & ~((1u << lift->low) - 1));
}

/* The atoms in front of those that an axis has. */
static void lift_axis(const Lift *lift, AtomList *list)
{
    AtomList own = *list;
    *list = (AtomList){0};
    for (int atom = lift->high - 1; atom >= lift->low; atom--)
        list->at[list->n++] = (int8_t)atom;
    CHECK(list->n + own.n <= MAX_PER_AXIS);
    for (int i = 0; i < own.n; i++)
        list->at[list->n++] = own.at[i];
}

/* What shares experts cuts rows alone, whatever it cuts of their tokens. */
static void lift_shared(const Lift *lift, const Value *value, int routed, Placement *place)
{
    AtomSet shared = lift->mesh->ep & (AtomSet)~lift_atoms(lift);
    for (int a = 0; a < value->axes; a++) {
        AtomList own = place->shard[a];
        place->shard[a] = (AtomList){0};
        for (int i = 0; i < own.n; i++)
            if (!(shared >> own.at[i] & 1))
                place->shard[a].at[place->shard[a].n++] = own.at[i];
    }
    for (int atom = lift->low - 1; atom >= 0; atom--)
        if (shared >> atom & 1)
            place->shard[routed].at[place->shard[routed].n++] = (int8_t)atom;
}

/* Rows hold whole tokens: what cut them cuts the last axis instead, where it can. */
static void lift_off_tokens(const Lift *lift, const Value *value, int axis, Placement *place)
{
    if (list_set(&place->shard[axis]) & lift->mesh->edp)
        return;
    AtomList *last = &place->shard[value->axes - 1], was = place->shard[axis];
    if (!(list_set(&was) & (role_atoms(lift->mesh, ROLE_TP) | lift->mesh->etp)))
        return;
    int64_t extent = lift->net->dims.at[value->dim[value->axes - 1]].extent;
    int64_t ranks = list_extent(lift->mesh, &was) * list_extent(lift->mesh, last);
    place->shard[axis] = (AtomList){0};
    for (int i = 0; i < was.n && extent % ranks == 0; i++)
        last->at[last->n++] = was.at[i];
}

/* A value of tokens, or the rows of its choices where those live whom they name. */
static Placement lift_place(const Lift *lift, ValueId id, const Placement *place, bool rows)
{
    Placement lifted = *place;
    const Value *value = &lift->graph->values.at[id];
    int routed = rows ? value_routed_axis(lift->net, value) : NONE;
    if (lift->high == lift->low)
        return lifted;
    if (routed != NONE)
        lift_shared(lift, value, routed, &lifted);
    for (int a = 0; a < routed; a++)
        lift_off_tokens(lift, value, a, &lifted);
    for (int a = 0; a < value->axes; a++)
        if (routed == NONE ? value->dim[a] == lift->net->batch : a == routed)
            lift_axis(lift, &lifted.shard[a]);
    if (lift->partial[id]) {
        lifted.partial |= lift_atoms(lift);
        lifted.monoid = MONOID_SUM;
    }
    return lifted;
}

static int letter_of_kind(const Net *net, const Node *node, DimKind kind)
{
    int letter = NONE;
    for (int l = 0; l < node->sig.letters; l++)
        if (net->dims.at[node->sig.dim[l]].kind == kind)
            letter = l;
    return letter;
}

/* What a node is cut by: what its choices name, or the choices, or the batch. */
static int lift_letter(const Lift *lift, const Node *node)
{
    if (!lift->routed || !lift->routed[node - lift->graph->nodes.at]) {
        int letter = letter_of_kind(lift->net, node, DIM_BATCH);
        for (int k = 0; k < node->ins && letter == NONE; k++) /* terms of gradients of the named */
            for (int l = 0; l < node->sig.letters && lift->named[node->in[k]] != NONE; l++)
                if (node->sig.dim[l] == lift->named[node->in[k]] && !(node->sig.nosplit >> l & 1))
                    letter = l;
        return letter;
    }
    int naming = node_naming_letter(lift->net, node);
    return naming != NONE ? naming : letter_of_kind(lift->net, node, DIM_ROUTED);
}

/* Has the output anything of what the letter cuts? Rows go with whom they name. */
static bool lift_cuts(const Lift *lift, const Node *node, int letter, ValueId out)
{
    const Value *value = &lift->graph->values.at[out];
    DimId dim = node->sig.dim[letter];
    for (int a = 0; a < value->axes; a++) {
        const Dim *own = &lift->net->dims.at[value->dim[a]];
        if (value->dim[a] == dim || (own->kind == DIM_ROUTED && own->among == dim))
            return true;
    }
    return false;
}

/* On the letter where there is one; else as linear as what it reads is Partial, and where it is
 * not, on the sums themselves: lowering reduces them first. */
static Choice lift_choice(Lift *lift, const Node *node)
{
    int letter = lift_letter(lift, node);
    uint8_t sums = 0;
    for (int k = 0; k < node->ins; k++)
        if (lift->partial[node->in[k]])
            sums |= (uint8_t)(1u << k);
    int linear = NONE;
    for (int i = 0; sums && i < node_linear_sets(node); i++)
        if ((node_linear_set(node, i) & sums) == sums) /* the others are owned by one rank */
            linear = i;
    bool named = letter != NONE && lift->net->dims.at[node->sig.dim[letter]].kind == DIM_OTHER;
    for (int k = 0; k < node->outs && named; k++)
        if (lift_cuts(lift, node, letter, node->out[k]) &&
            value_routed_axis(lift->net, &lift->graph->values.at[node->out[k]]) == NONE)
            lift->named[node->out[k]] = node->sig.dim[letter];
    for (int k = 0; k < node->outs; k++)
        lift->partial[node->out[k]] =
            letter != NONE ? !lift_cuts(lift, node, letter, node->out[k]) : linear != NONE;
    if (letter != NONE)
        return (Choice)(CHOICE_LETTER + letter);
    return linear != NONE ? (Choice)(CHOICE_LINEAR + linear) : CHOICE_REPLICATE;
}

/* Are rows of the value read in backward where they were sent to in forward? Choices are not: they
 * are cut from what is whole, for nothing. */
static bool lift_keeps_rows(const Lift *lift, ValueId id)
{
    if (!lift->routed || lift->graph->values.at[id].number == NUM_INDEX)
        return false;
    for (int n = 0; n < lift->graph->nodes.n; n++) {
        const Node *node = &lift->graph->nodes.at[n];
        for (int k = 0; k < node->ins; k++)
            if (node->seg == SEG_BACKWARD && node->in[k] == id && lift->routed[n])
                return true;
    }
    return false;
}

/* What was sent elsewhere is kept there: to make it again is to send it again. */
static Keep lift_keep(const Lift *lift, ValueId id, Keep keep, bool rows)
{
    const Value *value = &lift->graph->values.at[id];
    bool sent = rows && value->kind == VALUE_NODE && !lift->routed[value->made] &&
                lift->graph->nodes.at[value->made].seg == SEG_FORWARD;
    return sent && !lift->recompute && !value->late ? KEEP_SAVED : keep;
}

static void lift_class(Arena *arena, Lift *lift, const ClassPlan *plan, ClassPlan *ret)
{
    const Graph *graph = lift->graph;
    class_plan_alloc(arena, graph, ret);
    for (int n = 0; n < graph->nodes.n; n++) {
        Choice choice = lift_choice(lift, &graph->nodes.at[n]);
        ret->choice[n] = plan->choice[n];
        for (int a = lift->low; a < lift->high; a++)
            ret->choice[n].atom[a] = choice;
    }
    if (graph->chain_in != NONE)
        ret->boundary_in = lift_place(lift, graph->chain_in, &plan->boundary_in, false);
    if (graph->chain_out != NONE)
        ret->boundary_out = lift_place(lift, graph->chain_out, &plan->boundary_out, false);
    for (int p = 0; p < graph->params.n; p++)
        ret->home[p] = plan->home[p];
    for (int v = 0; v < graph->values.n; v++) {
        bool rows = lift_keeps_rows(lift, v);
        ret->keep[v] = lift_keep(lift, v, plan->keep[v], rows);
        ret->saved[v] = lift_place(lift, v, &plan->saved[v], rows);
    }
}

/* Parameters that choices name are shared like these. */
static void lift_homes(const Lift *lift, ClassPlan *ret)
{
    for (int n = 0; n < lift->graph->nodes.n; n++) {
        const Node *node = &lift->graph->nodes.at[n];
        int naming = lift->routed && lift->routed[n] ? node_naming_letter(lift->net, node) : NONE;
        for (int k = 0; k < node->ins && naming != NONE; k++) {
            const Value *value = &lift->graph->values.at[node->in[k]];
            for (int a = 0; a < value->axes && value->kind == VALUE_PARAM; a++) {
                Placement *home = &ret->home[value->out];
                bool own = list_set(&home->shard[a]) & lift_atoms(lift);
                if (node->sig.in[k][a] == naming && !own)
                    lift_axis(lift, &home->shard[a]);
            }
        }
    }
}

void variant_lift(Arena *arena, const Variant *variant, const Mesh *mesh, int c, ClassPlan *ret)
{
    const Graph *graph = variant->net->classes.at[c];
    Arena *scratch = arena_new("lift");
    int shared = variant->mesh.n;
    while (shared < mesh->n && (mesh->ep >> shared & 1))
        shared++;
    Lift lift = {variant->net,
                 mesh,
                 graph,
                 variant->mesh.n,
                 shared,
                 graph_routed_nodes(scratch, graph),
                 ARENA_ARRAY(scratch, bool, graph->values.n),
                 ARENA_ARRAY(scratch, DimId, graph->values.n),
                 variant->key.recompute};
    for (int v = 0; v < graph->values.n; v++)
        lift.named[v] = NONE;
    ClassPlan near;
    lift_class(scratch, &lift, &variant->class[c], &near);
    if (lift.high > lift.low)
        lift_homes(&lift, &near);
    else /* nobody shares experts: nothing is kept for that */
        near = variant->class[c];
    lift.low = shared;
    lift.high = mesh->n;
    lift.routed = NULL;
    for (int v = 0; v < graph->values.n; v++)
        lift.named[v] = NONE;
    memset(lift.partial, 0, (size_t)graph->values.n * sizeof *lift.partial);
    lift_class(arena, &lift, &near, ret);
    arena_free(scratch);
}
