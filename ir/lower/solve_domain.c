/* solve_domain.c - what may be chosen: options of nodes, homes, the boundary, and every placement
 * these give a value. */
#include <string.h>

#include "ir/lower/solve_in.h"

int spot_index(Problem *problem, ValueId value, const Placement *place)
{
    Spot *spot = &problem->spot[value];
    for (int i = 0; i < spot->places.n; i++)
        if (place_equal(&spot->places.at[i], place))
            return i;
    vec_push(problem->arena, &spot->places) = *place;
    return spot->places.n - 1;
}

/* ---- token atoms ---- */

static DimKind token_kind(const Problem *problem, int atom)
{
    bool apart = problem->setup.apart >> atom & 1;
    return apart || problem->setup.mesh->atom[atom].role == ROLE_CP ? DIM_SEQUENCE : DIM_BATCH;
}

static bool is_letter_of(const Net *net, const Node *node, int letter, DimKind kind)
{
    return net->dims.at[node->sig.dim[letter]].kind == kind && !(node->sig.nosplit >> letter & 1);
}

static int token_letter(const Net *net, const Node *node, DimKind kind)
{
    for (int l = 0; l < node->sig.letters; l++)
        if (is_letter_of(net, node, l, kind))
            return l;
    return NONE;
}

static void choice_set(NodeChoice *choice, AtomSet atoms, int what)
{
    for (int a = 0; a < MAX_ATOMS; a++)
        if (atoms >> a & 1)
            choice->atom[a] = (Choice)what;
}

/* The linear set that holds all operands that are Partial over the atom, so that terms of a
 * parameter's gradient are added before they are reduced; else it needs them reduced. */
static Choice token_terms(const Node *node, const AtomSet *partial, int atom)
{
    unsigned terms = 0;
    for (int k = 0; k < node->ins; k++)
        if (partial[node->in[k]] >> atom & 1)
            terms |= 1u << k;
    for (int i = 0; terms != 0 && i < node_linear_sets(node); i++)
        if ((terms & ~(unsigned)node_linear_set(node, i)) == 0)
            return (Choice)(CHOICE_LINEAR + i);
    return CHOICE_REPLICATE;
}

static bool is_routed(const Problem *problem, const Node *node)
{
    return problem->routed[node - problem->setup.graph->nodes.at];
}

/* The atoms that act as the width in this node. */
static AtomSet node_width(const Problem *problem, const Node *node)
{
    const SolveSetup *setup = &problem->setup;
    if (!is_routed(problem, node))
        return setup->width;
    return (AtomSet)((setup->rows ? setup->rows : setup->width) & ~(setup->shared | setup->apart));
}

/* What is cut where rows go by whom they name: what is named, or the choices. */
static int shared_letter(const Net *net, const Node *node)
{
    int letter = node_naming_letter(net, node);
    for (int l = 0; l < node->sig.letters && letter == NONE; l++)
        if (net->dims.at[node->sig.dim[l]].kind == DIM_ROUTED)
            return l;
    return letter;
}

/* Each atom on the letter of its role where the node has one. */
static NodeChoice token_choice(const Problem *problem, const Node *node, const AtomSet *partial)
{
    NodeChoice choice = {{0}, {0}};
    const SolveSetup *setup = &problem->setup;
    AtomSet shared = is_routed(problem, node) ? setup->shared : 0,
            apart = is_routed(problem, node) ? setup->apart : 0;
    for (int a = 0; a < setup->mesh->n; a++) {
        if (!(((setup->tokens & ~node_width(problem, node)) | shared | apart) >> a & 1))
            continue;
        int letter = shared >> a & 1 ? shared_letter(setup->net, node)
                                     : token_letter(setup->net, node, token_kind(problem, a));
        choice.atom[a] =
            letter != NONE ? (Choice)(CHOICE_LETTER + letter) : token_terms(node, partial, a);
    }
    return choice;
}

enum { MAX_BASES = 16 };
typedef struct NodeBases {
    int n;
    NodeChoice at[MAX_BASES];
} NodeBases;

static bool option_legal(const Problem *problem, const Node *node, const NodeChoice *choice)
{
    Placement in[MAX_IN], out[MAX_OUT];
    const SolveSetup *setup = &problem->setup;
    return place_node(setup->mesh, setup->net, setup->graph, node, choice, in, out);
}

/* Whole sequences of fewer heads: each letter that counts no tokens is one way. */
static void heads_bases(const Problem *problem, const Node *node, const NodeChoice *from,
                        AtomSet heads, NodeBases *ret)
{
    for (int l = 0; l < node->sig.letters && ret->n < MAX_BASES; l++) {
        NodeChoice base = *from;
        choice_set(&base, heads, CHOICE_LETTER + l);
        if (is_letter_of(problem->setup.net, node, l, DIM_OTHER) &&
            option_legal(problem, node, &base))
            ret->at[ret->n++] = base;
    }
}

/* The letter by which a node crosses the sequence: no atom may have a part of it for good. */
static Choice passing_letter(const Node *node)
{
    for (int l = 0; l < node->sig.letters; l++)
        if (letter_travels(node, l) && (node->sig.nosplit >> l & 1))
            return (Choice)(CHOICE_LETTER + l);
    return 0;
}

/* What the token atoms may do in a node: one thing, but where it crosses the sequence. */
static void node_bases(const Problem *problem, const Node *node, const NodeChoice *token,
                       NodeBases *ret)
{
    const SolveSetup *setup = &problem->setup;
    AtomSet cp = role_atoms(setup->mesh, ROLE_CP) & setup->tokens,
            rest = (AtomSet)(cp & ~setup->heads);
    ret->n = 0;
    if (cp == 0 || !node_crosses(setup->net, node)) {
        ret->at[ret->n++] = *token;
        return;
    }
    unsigned cross = setup->cross ? setup->cross : 1u << CROSS_GATHER;
    if (rest == 0 || (cross >> CROSS_HEADS & 1))
        heads_bases(problem, node, token, cp, ret);
    for (int ring = 0; rest != 0 && ring < 2; ring++) {
        NodeChoice base = *token;
        if (!(cross >> (ring ? CROSS_RING : CROSS_GATHER) & 1))
            continue;
        for (int a = 0; ring && a < setup->mesh->n; a++)
            base.travel[a] = rest >> a & 1 ? passing_letter(node) : 0;
        if (setup->heads != 0)
            heads_bases(problem, node, &base, setup->heads, ret);
        else if (option_legal(problem, node, &base))
            ret->at[ret->n++] = base;
    }
}

/* Without width atoms: the token part of every operand. False when the batch or the sequence does
 * not divide. */
static bool tokens_place(Problem *problem, NodeChoice *ret)
{
    const SolveSetup *setup = &problem->setup;
    const Graph *graph = setup->graph;
    AtomSet *partial = ARENA_ARRAY(problem->arena, AtomSet, graph->values.n);
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        Placement whole = place_replicate();
        if (value->kind == VALUE_NODE)
            continue;
        for (int i = 0; i < value->axes && value->kind != VALUE_PARAM; i++)
            for (int a = MAX_ATOMS - 1; a >= 0; a--)
                if (setup->tokens >> a & 1 && whole.shard[i].n < MAX_PER_AXIS &&
                    setup->net->dims.at[value->dim[i]].kind == token_kind(problem, a))
                    whole.shard[i].at[whole.shard[i].n++] = (int8_t)a;
        if (!place_fits(setup->mesh, setup->net, value, &whole))
            return false;
        problem->spot[v].whole = spot_index(problem, v, &whole);
    }
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        Placement in[MAX_IN], out[MAX_OUT];
        ret[n] = token_choice(problem, node, partial);
        if (!place_node(setup->mesh, setup->net, graph, node, &ret[n], in, out))
            return false;
        for (int k = 0; k < node->outs; k++) {
            partial[node->out[k]] = out[k].partial & setup->tokens;
            problem->spot[node->out[k]].whole = spot_index(problem, node->out[k], &out[k]);
        }
    }
    return true;
}

/* ---- node options ---- */

typedef VEC(Option) OptionList;

/* Adds a choice when it is legal and new. */
static void option_add(Problem *problem, const Node *node, const NodeChoice *choice,
                       OptionList *list)
{
    const SolveSetup *setup = &problem->setup;
    Placement in[MAX_IN], out[MAX_OUT];
    Option option = {.choice = *choice};
    if (!place_node(setup->mesh, setup->net, setup->graph, node, choice, in, out))
        return;
    for (int i = 0; i < list->n; i++)
        if (memcmp(&list->at[i].choice, choice, sizeof *choice) == 0)
            return;
    for (int k = 0; k < node->ins; k++)
        option.in[k] = (int16_t)spot_index(problem, node->in[k], &in[k]);
    for (int k = 0; k < node->outs; k++)
        option.out[k] = (int16_t)spot_index(problem, node->out[k], &out[k]);
    vec_push(problem->arena, list) = option;
}

/* The i-th thing all atoms of a set may do together: Replicate, a letter, a linear set. NONE after
 * the last. */
static int single_choice(const Node *node, int i)
{
    if (i == 0)
        return CHOICE_REPLICATE;
    if (i <= node->sig.letters)
        return CHOICE_LETTER + i - 1;
    i -= node->sig.letters + 1;
    return i < node_linear_sets(node) ? CHOICE_LINEAR + i : NONE;
}

/* The atoms of the role that a letter takes when it does not divide by all of them: as many ranks
 * as divide, of equal ones those with the slower links. 0 when there is none. */
static AtomSet leading_atoms(const Problem *problem, const Node *node, const NodeChoice *base,
                             int what)
{
    const Mesh *mesh = problem->setup.mesh;
    AtomSet best = 0;
    int extent = 1;
    AtomSet width = node_width(problem, node);
    for (unsigned set = 1; set < width; set++) {
        NodeChoice choice = *base;
        if ((set & ~(unsigned)width) != 0)
            continue;
        choice_set(&choice, (AtomSet)set, what);
        if (mesh_extent(mesh, (AtomSet)set) >= extent && option_legal(problem, node, &choice)) {
            best = (AtomSet)set;
            extent = mesh_extent(mesh, (AtomSet)set);
        }
    }
    return best;
}

/* Tokens with their choices, where these go over atoms of the width as well. */
static bool has_choices(const Problem *problem, const Node *node)
{
    bool choices = false;
    for (int l = 0; l < node->sig.letters; l++)
        choices |= problem->setup.net->dims.at[node->sig.dim[l]].kind == DIM_ROUTED;
    return choices && ((problem->setup.shared | problem->setup.apart) & problem->setup.width);
}

/* A boundary that must be whole forbids the sequence to the width atoms throughout the block. Rows
 * that may go by whom they name are cut by other atoms, which take whole tokens. */
static bool letter_allowed(const Problem *problem, const Node *node, int what)
{
    const Net *net = problem->setup.net;
    if (what == CHOICE_REPLICATE || what >= CHOICE_LINEAR)
        return true;
    int letter = what - CHOICE_LETTER;
    DimKind kind = net->dims.at[node->sig.dim[letter]].kind;
    bool goes = problem->routed[node - problem->setup.graph->nodes.at];
    if (kind == DIM_ROUTED || letter == node_naming_letter(net, node) ||
        (goes && (kind == DIM_SEQUENCE || kind == DIM_BATCH)))
        return false;
    return problem->setup.boundary_rule != BOUNDARY_WHOLE || kind != DIM_SEQUENCE ||
           has_choices(problem, node);
}

/* Letters that may share the role with another one: of dims that are no tokens and that no op of
 * the class wants whole. With heads = g r these are the two parts of the heads. */
static bool letter_shares(const Problem *problem, const Node *node, int letter)
{
    DimId dim = node->sig.dim[letter];
    return problem->setup.net->dims.at[dim].kind == DIM_OTHER && !problem->whole_dim[dim];
}

/* A letter that stays lets the blocks of the sequence pass by along the width atoms, where
 * something without it has the sequence (place_node wants that). */
static bool choice_pass(const Problem *problem, const Node *node, int what, NodeChoice *ret)
{
    int pass = token_letter(problem->setup.net, node, DIM_SEQUENCE);
    NodeChoice choice = *ret;
    if (!problem->setup.pass_by || what == CHOICE_REPLICATE || what >= CHOICE_LINEAR ||
        pass == NONE || !node_is_product(problem->setup.graph, node) ||
        !letter_allowed(problem, node, CHOICE_LETTER + pass))
        return false;
    for (int a = 0; a < MAX_ATOMS; a++)
        if (problem->setup.width >> a & 1)
            choice.travel[a] = (Choice)(CHOICE_LETTER + pass);
    bool legal = option_legal(problem, node, &choice);
    *ret = legal ? choice : *ret;
    return legal;
}

/* May the node let blocks pass by with some letter? Then it does nothing without a letter, which
 * would gather what is to pass. */
static bool node_passes(const Problem *problem, const Node *node, const NodeChoice *base)
{
    for (int l = 0; l < node->sig.letters; l++) {
        NodeChoice choice = *base;
        choice_set(&choice, node_width(problem, node), CHOICE_LETTER + l);
        if (choice_pass(problem, node, CHOICE_LETTER + l, &choice))
            return true;
    }
    return false;
}

static void node_options(Problem *problem, const Node *node, const NodeChoice *base,
                         OptionList *list)
{
    AtomSet width = node_width(problem, node);
    bool passes = node_passes(problem, node, base);
    for (int i = 0, what; (what = single_choice(node, i)) != NONE; i++) {
        NodeChoice choice = *base;
        bool letter = what != CHOICE_REPLICATE && what < CHOICE_LINEAR;
        if (!letter_allowed(problem, node, what) || (passes && !letter))
            continue;
        choice_set(&choice, width, what);
        choice_pass(problem, node, what, &choice);
        option_add(problem, node, &choice, list);
    }
    for (int l = 0; l < node->sig.letters; l++) {
        NodeChoice choice = *base;
        choice_set(&choice, width, CHOICE_LETTER + l);
        if (!letter_shares(problem, node, l) || option_legal(problem, node, &choice))
            continue;
        AtomSet leading = leading_atoms(problem, node, base, CHOICE_LETTER + l);
        if (leading == 0)
            continue;
        choice_set(&choice, leading, CHOICE_LETTER + l);
        for (int i = 0, what; (what = single_choice(node, i)) != NONE; i++) {
            bool letter = what != CHOICE_REPLICATE && what < CHOICE_LINEAR;
            if (letter &&
                (what == CHOICE_LETTER + l || !letter_shares(problem, node, what - CHOICE_LETTER)))
                continue;
            choice_set(&choice, (AtomSet)(width & ~leading), what);
            option_add(problem, node, &choice, list);
        }
    }
}

/* ---- homes and the boundary ---- */

typedef VEC(Placement) PlaceList;

static void place_add(Arena *arena, PlaceList *list, const Placement *place)
{
    for (int i = 0; i < list->n; i++)
        if (place_equal(&list->at[i], place))
            return;
    vec_push(arena, list) = *place;
}

/* A placement with the whole role on one axis more, minor to what is there. */
static bool place_widen(const Problem *problem, const Value *value, int axis, Placement *place)
{
    AtomList *list = &place->shard[axis];
    for (int a = MAX_ATOMS - 1; a >= 0; a--) {
        if (!(problem->setup.width >> a & 1))
            continue;
        if (list->n == MAX_PER_AXIS)
            return false;
        list->at[list->n++] = (int8_t)a;
    }
    return place_fits(problem->setup.mesh, problem->setup.net, value, place);
}

/* Shards of the whole role on any axis: the placements that may be saved, or gathered from, whoever
 * needs them. */
static void spot_widen(Problem *problem, ValueId id, PlaceList *list)
{
    const Value *value = &problem->setup.graph->values.at[id];
    for (int i = 0; i < value->axes && problem->setup.width != 0; i++) {
        Placement place = problem->spot[id].places.at[problem->spot[id].whole];
        if (i != value_routed_axis(problem->setup.net, value) &&
            place_widen(problem, value, i, &place))
            place_add(problem->arena, list, &place);
    }
}

/* The atoms whose ranks have parts of a parameter that choices name. */
static AtomSet param_shared(const Problem *problem, ValueId id)
{
    const Graph *graph = problem->setup.graph;
    for (int n = 0; n < graph->nodes.n; n++)
        for (int k = 0; k < graph->nodes.at[n].ins; k++)
            if (graph->nodes.at[n].in[k] == id && is_routed(problem, &graph->nodes.at[n]))
                return problem->setup.shared;
    return 0;
}

/* What acts as the width where the parameter is used, and what shares it. */
static AtomSet param_width(const Problem *problem, ValueId id)
{
    const Graph *graph = problem->setup.graph;
    for (int n = 0; n < graph->nodes.n; n++)
        for (int k = 0; k < graph->nodes.at[n].ins; k++)
            if (graph->nodes.at[n].in[k] == id)
                return (AtomSet)(node_width(problem, &graph->nodes.at[n]) |
                                 param_shared(problem, id));
    return problem->setup.width;
}

static bool home_allowed(const Problem *problem, const Value *value, AtomSet width,
                         const Placement *place)
{
    AtomSet sharded = place_sharded(place) & width;
    switch (problem->setup.weight_rule) {
    case WEIGHTS_SHARDED:
        return value->axes < 2 || sharded != 0;
    case WEIGHTS_WHOLE:
        return sharded == 0;
    default:
        return true;
    }
}

static bool home_domain(Problem *problem, int param)
{
    const SolveSetup *setup = &problem->setup;
    const Param *info = &setup->graph->params.at[param];
    const Value *value = &setup->graph->values.at[info->value];
    const Placement *given = setup->home != NULL ? setup->home[param] : NULL;
    Spot *spot = &problem->spot[info->value];
    PlaceList all = {0}, list = {0};
    AtomSet width = param_width(problem, info->value), shared = param_shared(problem, info->value);
    if (given != NULL) {
        if (!place_fits(setup->mesh, setup->net, value, given))
            return false;
        place_add(problem->arena, &list, given);
    } else {
        for (int i = 0; i < spot->places.n; i++)
            if (spot->places.at[i].partial == 0)
                place_add(problem->arena, &all, &spot->places.at[i]);
        if (setup->gather_weights)
            spot_widen(problem, info->value, &all);
        for (int i = 0; i < all.n; i++)
            if ((width == 0 || info->frozen || home_allowed(problem, value, width, &all.at[i])) &&
                (shared & ~place_sharded(&all.at[i])) == 0)
                place_add(problem->arena, &list, &all.at[i]);
    }
    for (int i = 0; i < list.n; i++)
        spot_index(problem, info->value, &list.at[i]);
    problem->home_var[param] = problem->vars.n;
    vec_push(problem->arena, &problem->vars) =
        (Var){.kind = VAR_HOME, .id = param, .n = list.n, .place = list.at};
    return list.n > 0;
}

static bool boundary_domain(Problem *problem)
{
    const SolveSetup *setup = &problem->setup;
    const Graph *graph = setup->graph;
    ValueId end[] = {graph->chain_in, graph->chain_out, graph->grad_out, graph->grad_in};
    ValueId id = graph->chain_in != NONE ? graph->chain_in : graph->chain_out;
    PlaceList list = {0};
    problem->boundary_var = NONE;
    if (id == NONE)
        return true;
    const Value *value = &graph->values.at[id], *out = value;
    if (graph->chain_out != NONE)
        out = &graph->values.at[graph->chain_out];
    CHECK(out->axes == value->axes);
    if (setup->boundary != NULL) {
        place_add(problem->arena, &list, setup->boundary);
    } else {
        Placement whole = problem->spot[id].places.at[problem->spot[id].whole];
        if (setup->boundary_rule != BOUNDARY_SEQUENCE || setup->width == 0)
            place_add(problem->arena, &list, &whole);
        for (int i = 0; i < value->axes && setup->width != 0; i++) {
            DimKind kind = setup->net->dims.at[value->dim[i]].kind;
            Placement place = whole;
            /* the batch axis is the token atoms' */
            bool allowed = kind != DIM_BATCH && setup->boundary_rule != BOUNDARY_WHOLE &&
                           (kind == DIM_SEQUENCE || setup->boundary_rule == BOUNDARY_FREE) &&
                           value->dim[i] == out->dim[i];
            if (allowed && place_widen(problem, value, i, &place))
                place_add(problem->arena, &list, &place);
        }
    }
    for (int i = 0; i < list.n; i++) {
        if (!place_fits(setup->mesh, setup->net, value, &list.at[i]) ||
            !place_fits(setup->mesh, setup->net, out, &list.at[i]))
            return false;
        for (int k = 0; k < 4; k++)
            if (end[k] != NONE)
                spot_index(problem, end[k], &list.at[i]);
    }
    problem->boundary_var = problem->vars.n;
    vec_push(problem->arena, &problem->vars) =
        (Var){.kind = VAR_BOUNDARY, .id = 0, .n = list.n, .place = list.at};
    return list.n > 0;
}

/* Dims that some op of the class may not split. */
static void mark_whole_dims(Problem *problem)
{
    const Graph *graph = problem->setup.graph;
    problem->whole_dim = ARENA_ARRAY(problem->arena, bool, problem->setup.net->dims.n);
    for (int n = 0; n < graph->nodes.n; n++)
        for (int l = 0; l < graph->nodes.at[n].sig.letters; l++)
            if (graph->nodes.at[n].sig.nosplit >> l & 1)
                problem->whole_dim[graph->nodes.at[n].sig.dim[l]] = true;
}

bool problem_domains(Problem *problem)
{
    const Graph *graph = problem->setup.graph;
    mark_whole_dims(problem);
    problem->routed = graph_routed_nodes(problem->arena, graph);
    NodeChoice *base = ARENA_ARRAY(problem->arena, NodeChoice, graph->nodes.n + 1);
    if (!tokens_place(problem, base))
        return false;
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        OptionList list = {0};
        NodeBases bases;
        node_bases(problem, node, &base[n], &bases);
        for (int i = 0; i < bases.n; i++)
            node_options(problem, node, &bases.at[i], &list);
        if (list.n == 0)
            return false; /* no head divides by the atoms that hold fewer of them */
        problem->node_var[n] = problem->vars.n;
        vec_push(problem->arena, &problem->vars) = (Var){.kind = VAR_NODE,
                                                         .id = n,
                                                         .seg = graph->nodes.at[n].seg,
                                                         .n = list.n,
                                                         .option = list.at};
    }
    if (!boundary_domain(problem))
        return false;
    for (int p = 0; p < graph->params.n; p++)
        if (!home_domain(problem, p))
            return false;
    return true;
}
