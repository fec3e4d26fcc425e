/* parts.c - classes of a plan from pins, those of all layers and those of some. */
#include "planner/parts.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/pin_ranges.h"
#include "ir/plan_parts.h"
#include "planner/contradict.h"

/* ---- pins of a link ---- */

static int given_or(int given, int otherwise)
{
    return given >= 0 ? given : otherwise;
}

bool pins_divide(const Pins *pins)
{
    return pins->ranges > 0 || pins->again;
}

Pins pins_of_link(const Problem *problem, const Pins *pins, int link)
{
    Pins given = pins_given_for(pins, link, problem->net->chain.n), own = *pins;
    int per_stage = problem->ranks / (pins->pp > 0 ? pins->pp : 1);
    own.ranges = 0;
    own.range = NULL;
    own.cp = given_or(given.cp, pins->cp);
    own.tp = given_or(given.tp, given.dp > 0 ? per_stage / (own.cp * given.dp) : pins->tp);
    own.dp = given_or(given.dp, own.tp == pins->tp && own.cp == pins->cp
                                    ? pins->dp
                                    : per_stage / (own.tp * own.cp));
    own.tp_by = given_or(given.tp_by, pins->tp_by);
    own.cp_by = given_or(given.cp_by, pins->cp_by);
    own.cp_heads = given_or(given.cp_heads, pins->cp_heads);
    own.ep = given_or(given.ep, pins->ep);
    own.etp = given_or(given.etp, pins->etp != pins->tp ? pins->etp : own.tp);
    own.zero = given_or(given.zero, pins->zero);
    own.shard = given_or(given.shard, pins->shard);
    own.sp = own.tp > 1 ? given_or(given.sp, pins->sp) : 0;
    for (int k = 0; k < KEPT_COUNT; k++)
        own.home[k] = given_or(given.home[k], pins->home[k]);
    own.block = given_or(given.block, pins->block);
    own.recompute = given_or(given.recompute, pins->recompute);
    own.again = given.recompute >= 0 ? given.again : pins->again;
    return own;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && str_eq(a, b));
}

static bool same_memories(const Pins *a, const Pins *b)
{
    Memory home[2][KEPT_COUNT];
    pins_memories(a, home[0]);
    pins_memories(b, home[1]);
    return memcmp(home[0], home[1], sizeof home[0]) == 0;
}

static bool same_pins(const Pins *a, const Pins *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->dp == b->dp && a->tp_by == b->tp_by &&
           a->cp_by == b->cp_by && a->cp_heads == b->cp_heads && a->ep == b->ep &&
           a->etp == b->etp && a->zero == b->zero && a->shard == b->shard && a->sp == b->sp &&
           a->block == b->block && a->recompute == b->recompute && same_text(a->again, b->again) &&
           same_memories(a, b);
}

bool parts_possible(const Problem *problem, const Pins *pins)
{
    int links = problem->net->chain.n;
    for (int r = 0; r < pins->ranges; r++) {
        int begin = pins->range[r].begin;
        Pins own = pins_of_link(problem, pins,
                                begin == RANGE_FIRST  ? 0
                                : begin == RANGE_LAST ? links - 1
                                                      : begin + 1);
        if ((int64_t)own.tp * own.cp * own.dp * pins->pp != problem->ranks ||
            pins->micro_batch * pins->dp % own.dp != 0)
            return false;
    }
    return true;
}

/* "layer 3", or which end of the chain. */
static const char *link_text(Arena *arena, int link, int links)
{
    if (link == 0 || link == links - 1)
        return link == 0 ? "the first link" : "the last link";
    return arena_printf(arena, "layer %d", link - 1);
}

/* ---- what is made again ---- */

/* The next name of "a+b"; NULL at the end. */
static const char *next_name(Arena *arena, const char **text)
{
    if (!*text || !**text)
        return NULL;
    size_t n = strcspn(*text, "+");
    const char *name = arena_printf(arena, "%.*s", (int)n, *text);
    *text += n + ((*text)[n] == '+');
    return name;
}

static bool names_node(const Net *net, const Graph *graph, const Node *node, const char *name)
{
    if (node->seg != SEG_FORWARD)
        return false;
    if (str_eq(name, "selective"))
        return node_crosses(net, node);
    bool named = str_eq(name, op_info[node->op].text);
    for (int k = 0; k < node->outs; k++)
        named = named || str_eq(name, graph->values.at[node->out[k]].name);
    return named;
}

static bool names_in_class(const Net *net, const Graph *graph, const char *name)
{
    bool any = str_eq(name, "selective");
    for (int n = 0; n < graph->nodes.n && !any; n++)
        any = names_node(net, graph, &graph->nodes.at[n], name);
    return any;
}

bool names_in_graph(const Net *net, const Graph *graph, const char *names)
{
    bool any = false;
    for (const char *name; !any && (name = next_name(net->arena, &names)) != NULL;)
        for (int n = 0; n < graph->nodes.n; n++)
            any = any || names_node(net, graph, &graph->nodes.at[n], name);
    return any;
}

bool plan_is_divided(const Plan *plan, const Net *net)
{
    bool divided = plan->part != NULL, full = false, not_full = false;
    for (int c = 0; c < net->classes.n; c++) {
        Pins own = pins_none();
        class_recompute(plan->arena, net->classes.at[c], &plan->class[c], &own);
        divided = divided || plan->class[c].mesh || plan->class[c].cut;
        full = full || own.recompute;
        not_full = not_full || !own.recompute;
    }
    return divided || (full && not_full);
}

/* Values of the classes of these links, kinds of ops, and the words. */
static const char *nearest_name(Arena *arena, const Net *net, const char *name)
{
    VEC(const char *) known = {0};
    vec_push(arena, &known) = "none";
    vec_push(arena, &known) = "full";
    vec_push(arena, &known) = "selective";
    for (int c = 0; c < net->classes.n; c++)
        for (int n = 0; n < net->classes.at[c]->nodes.n; n++) {
            const Node *node = &net->classes.at[c]->nodes.at[n];
            if (node->seg != SEG_FORWARD)
                continue;
            vec_push(arena, &known) = op_info[node->op].text;
            vec_push(arena, &known) = net->classes.at[c]->values.at[node->out[0]].name;
        }
    return str_nearest(name, known.at, known.n);
}

/* Every name means something in a link for which it was said. */
static bool again_known(Diag *diag, const Problem *problem, const Pins *pins, const PinRange *range)
{
    const Net *net = problem->net;
    const char *rest = range ? range->pins.again : pins->again, *name;
    while ((name = next_name(problem->arena, &rest)) != NULL) {
        bool known = false;
        for (int i = 0; i < net->chain.n && !known; i++)
            known = (!range || range_has_link(range, i, net->chain.n)) &&
                    names_in_class(net, net->classes.at[net->chain.at[i].class], name);
        if (known)
            continue;
        const char *near = nearest_name(problem->arena, net, name);
        diag_error(diag, NO_SPAN, "pin %s: no op or value %s to make again",
                   range ? pin_range_text(problem->arena, range)
                         : arena_printf(problem->arena, "recompute=%s", pins->again),
                   name);
        if (near)
            diag_help(diag, "did you mean %s?", near);
        else
            diag_help(diag, "use none, full, selective, kinds of ops (lplan ops) or values of the "
                            "model, joined by +");
        return false;
    }
    return true;
}

bool parts_known(Diag *diag, const Problem *problem, const Pins *pins)
{
    int layers = problem->net->chain.n - 2;
    for (int r = 0; r < pins->ranges; r++) {
        const PinRange *range = &pins->range[r];
        bool inside = range->begin == RANGE_FIRST || range->begin == RANGE_LAST ||
                      (range->end == RANGE_OPEN ? range->begin : range->end) < layers;
        if (!inside) {
            diag_error(diag, NO_SPAN, "pin %s: the model has %d layer%s",
                       pin_range_text(problem->arena, range), layers > 0 ? layers : 0,
                       layers == 1 ? "" : "s");
            diag_help(diag,
                      layers > 0 ? "layers are 0 to %d, and first and last"
                                 : "its links are first and last",
                      layers - 1);
            return false;
        }
        if (!again_known(diag, problem, pins, range))
            return false;
    }
    return again_known(diag, problem, pins, NULL);
}

/* What names say is made again, besides what is already. */
static void make_again(Arena *arena, const Net *net, const Graph *graph, const char *names,
                       ClassPlan *plan)
{
    Keep *keep = ARENA_ARRAY(arena, Keep, graph->values.n + 1);
    memcpy(keep, plan->keep, (size_t)graph->values.n * sizeof *keep);
    for (const char *name; (name = next_name(arena, &names)) != NULL;)
        for (int n = 0; n < graph->nodes.n; n++)
            for (int k = 0; k < graph->nodes.at[n].outs; k++)
                if (names_node(net, graph, &graph->nodes.at[n], name))
                    keep[graph->nodes.at[n].out[k]] = KEEP_NONE;
    plan->keep = keep;
}

/* ---- kinds ---- */

static bool kind_fits(const Parts *parts, const Pins *all, const LayerKind *kind)
{
    const Problem *problem = parts->problem;
    const Pins *pins = &kind->pins;
    Diag *diag = problem->diag;
    int64_t ranks = (int64_t)pins->tp * pins->cp * pins->dp, stage = problem->ranks / all->pp;
    if (ranks != stage) {
        diag_error(diag, NO_SPAN, "%s: tp %d x cp %d x dp %d are %lld ranks, a stage has %lld",
                   kind->where, pins->tp, pins->cp, pins->dp, (long long)ranks, (long long)stage);
        diag_help(diag, "the layers of a stage share its ranks: leave dp of the range out");
        return false;
    }
    if (all->micro_batch * all->dp % pins->dp != 0) {
        diag_error(diag, NO_SPAN, "%s: the micro-batch of %lld x dp %d sequences has no %d parts",
                   kind->where, (long long)all->micro_batch, all->dp, pins->dp);
        diag_help(diag, "use mbs=%d, or a smaller dp for these layers",
                  (int)(num_multiple(all->dp, pins->dp) / all->dp));
        return false;
    }
    if (sequence_fits(diag, problem, pins) && experts_fit(diag, problem, pins))
        return true;
    diag_note(diag, "of %s, by its own pins", kind->where);
    return false;
}

/* One order of the sequence serves all layers: those that deal it out do so alike. */
static bool settle_order(Parts *parts)
{
    Diag *diag = parts->problem->diag;
    const Pins *dealt = NULL;
    for (int k = 0; k < parts->n; k++) {
        const Pins *pins = &parts->kind[k].pins;
        if (!parts->kind[k].key.spread.zigzag)
            continue;
        if (dealt && (dealt->cp != pins->cp || dealt->cp_heads != pins->cp_heads)) {
            diag_error(diag, NO_SPAN,
                       "%s: order=zigzag deals the sequence out to one number of cp "
                       "ranks, these have cp %d and others cp %d",
                       parts->kind[k].where, pins->cp, dealt->cp);
            diag_help(diag, "use one cp for all layers that cut the sequence, or order=identity");
            return false;
        }
        dealt = pins;
    }
    for (int k = 0; k < parts->n && dealt && parts->n > 1; k++)
        parts->kind[k].key.spread.runs =
            2 * (dealt->cp / (dealt->cp_heads > 1 ? dealt->cp_heads : 1));
    return true;
}

/* ---- one mesh ---- */

static bool build_mesh(const Parts *parts, LayerKind *kind)
{
    Degrees degrees = spread_degrees(&kind->key.spread, kind->pins.dp,
                                     kind->pins.ep > 1 ? kind->pins.ep : 1, parts->problem->net);
    return mesh_build(parts->problem->diag, parts->problem->cluster, &degrees, &kind->mesh);
}

static void add_ends(AtomEnds *ends, const Mesh *mesh)
{
    int end = 1;
    for (int a = 0; a < mesh->n; a++) {
        end *= mesh->atom[a].extent;
        int at = 0;
        while (at < ends->n && ends->at[at] != end)
            at++;
        if (at == ends->n && ends->n < MAX_ATOMS)
            ends->at[ends->n++] = end;
    }
}

static bool same_atoms(const Mesh *a, const Mesh *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->atom[i].extent == b->atom[i].extent && a->atom[i].level == b->atom[i].level;
    return same;
}

static bool atoms_fit(const Parts *parts, const LayerKind *kind)
{
    int count[ROLE_COUNT] = {0};
    for (int a = 0; a < kind->mesh.n; a++)
        count[kind->mesh.atom[a].role]++;
    if (parts->n == 1 || (count[ROLE_TP] + count[ROLE_CP] <= MAX_PER_AXIS &&
                          count[ROLE_CP] + count[ROLE_DP] <= MAX_PER_AXIS))
        return true;
    diag_error(parts->problem->diag, NO_SPAN,
               "%s: the ranks of a role fall into more than %d "
               "atoms among so many different layers",
               kind->where, MAX_PER_AXIS);
    diag_help(parts->problem->diag, "let fewer degrees differ");
    return false;
}

/* Meshes whose atoms are those of all: an atom ends wherever one of another kind does. */
static bool refine_meshes(Parts *parts)
{
    Diag *diag = parts->problem->diag;
    AtomEnds ends = {0};
    for (int k = 0; k < parts->n; k++) {
        if (!build_mesh(parts, &parts->kind[k]))
            return false;
        add_ends(&ends, &parts->kind[k].mesh);
    }
    for (int k = 0; k < parts->n && parts->n > 1; k++) {
        LayerKind *kind = &parts->kind[k];
        kind->key.spread.ends = ends;
        if (!build_mesh(parts, kind))
            return false;
        if (k > 0 && !same_atoms(&kind->mesh, &parts->kind[0].mesh)) {
            const Pins *a = &kind->pins, *b = &parts->kind[0].pins;
            diag_error(diag, NO_SPAN,
                       "%s: tp %d x cp %d x dp %d and tp %d x cp %d x dp %d have no "
                       "common atoms",
                       kind->where, a->tp, a->cp, a->dp, b->tp, b->cp, b->dp);
            diag_help(diag, "where tp, cp or dp of one ends inside that of another, it must divide "
                            "it: 2 and 4, not 2 and 3");
            return false;
        }
    }
    for (int k = 0; k < parts->n; k++)
        if (!atoms_fit(parts, &parts->kind[k]))
            return false;
    return true;
}

/* ---- variants ---- */

/* The blocks have the label that a pin names. */
static bool check_label(const Problem *problem, Width *width, const VariantKey *key)
{
    if (key->block == NONE)
        return true;
    int n = width_labels(problem->arena, width, key)->n;
    if (key->block < (n > 1 ? n : 1))
        return true;
    diag_error(problem->diag, NO_SPAN, "pin block=%d: these blocks have %s", key->block,
               n > 1 ? "fewer labels" : "one label");
    diag_help(problem->diag, "labels are 0 to %d, fastest first", n > 1 ? n - 1 : 0);
    return false;
}

static bool solve_kind(const Parts *parts, LayerKind *kind, bool given)
{
    const Problem *problem = parts->problem;
    Width *width = width_new(problem->arena, problem->diag, problem, &kind->key.spread);
    if (!width || (given && !check_label(problem, width, &kind->key)))
        return false;
    kind->variant = variant_solve(problem->arena, problem->diag, width, &kind->key);
    if (!kind->variant && parts->n > 1)
        diag_note(problem->diag, "of %s, by its own pins", kind->where);
    return kind->variant != NULL;
}

Parts *parts_new(const Problem *problem, const Pins *pins, const Variant *variant)
{
    Arena *arena = problem->arena;
    int links = problem->net->chain.n;
    Parts *parts = ARENA_NEW(arena, Parts);
    *parts = (Parts){.problem = problem,
                     .kind = ARENA_ARRAY(arena, LayerKind, links + 1),
                     .of = ARENA_ARRAY(arena, int, links),
                     .pad_vocabulary = 1};
    if (!parts_known(problem->diag, problem, pins))
        return NULL;
    Pins all = *pins;
    all.ranges = 0;
    all.range = NULL;
    parts->kind[parts->n++] = (LayerKind){.pins = all, .where = "all layers"};
    for (int i = 0; i < links; i++) {
        Pins own = pins_of_link(problem, pins, i);
        while (parts->of[i] < parts->n && !same_pins(&own, &parts->kind[parts->of[i]].pins))
            parts->of[i]++;
        if (parts->of[i] == parts->n)
            parts->kind[parts->n++] = (LayerKind){.pins = own, .where = link_text(arena, i, links)};
    }
    for (int k = 0; k < parts->n; k++) {
        LayerKind *kind = &parts->kind[k];
        if (k > 0 && !kind_fits(parts, pins, kind))
            return NULL;
        kind->key = key_of_pins(&kind->pins);
        parts->routed = parts->routed || kind->key.spread.routed;
        parts->pad_vocabulary = num_multiple(parts->pad_vocabulary, kind->pins.tp);
    }
    for (int k = 0; k < parts->n; k++)
        parts->kind[k].key.spread.routed = parts->routed;
    if (!settle_order(parts) || !refine_meshes(parts))
        return NULL;
    for (int k = 0; k < parts->n; k++) {
        LayerKind *kind = &parts->kind[k];
        bool own = parts->n == 1 || kind->pins.block != parts->kind[0].pins.block;
        kind->variant = parts->n == 1 ? variant : NULL;
        if (!kind->variant && !solve_kind(parts, kind, own))
            return NULL;
    }
    return parts;
}

AtomSet parts_zigzag(const Parts *parts)
{
    for (int k = 0; k < parts->n; k++)
        if (parts->kind[k].key.spread.zigzag)
            return mesh_zigzag(&parts->kind[k].mesh, parts->kind[k].key.spread.cp_heads);
    return 0;
}

bool parts_memories(const Parts *parts, Memory *ret)
{
    pins_memories(&parts->kind[parts->of[0]].pins, ret);
    for (int i = 1; i < parts->problem->net->chain.n; i++) {
        const LayerKind *kind = &parts->kind[parts->of[i]];
        Memory own[KEPT_COUNT];
        pins_memories(&kind->pins, own);
        for (int k = 0; k < KEPT_COUNT; k++) {
            bool differ = own[k] != MEMORY_HBM && ret[k] != MEMORY_HBM && own[k] != ret[k];
            if (differ && k != KEPT_STATE) {
                diag_error(parts->problem->diag, NO_SPAN, "%s: %s in %s, those of others in %s",
                           kind->where, kept_text[k], memory_text[own[k]], memory_text[ret[k]]);
                diag_help(parts->problem->diag,
                          "layers have their %s in one memory beside the device's: use %s=%s or "
                          "hbm",
                          kept_text[k], kept_pin[k], memory_text[ret[k]]);
                return false;
            }
            ret[k] = own[k] > ret[k] ? own[k] : ret[k];
        }
    }
    return true;
}

/* ---- classes ---- */

/* A class of the plan: a class of the model under a kind, and what it is handed. */
typedef struct Piece {
    int class, kind, part; /* part: the how-manyth of its class */
    Placement in;
} Piece;

static Homes kind_homes(const LayerKind *kind, const Memory *memory)
{
    Homes homes = homes_preset(&kind->mesh, kind->pins.zero, kind->pins.shard);
    Memory own[KEPT_COUNT];
    pins_memories(&kind->pins, own);
    for (int k = 0; k < KEPT_COUNT; k++)
        homes.nearer[k] = (uint8_t)(memory[k] - own[k]);
    return homes;
}

/* What the layers of a kind have beside their placements. */
static void dress(const Parts *parts, const Plan *plan, const Net *net, const Piece *piece,
                  ClassPlan *ret)
{
    Arena *arena = parts->problem->arena;
    const LayerKind *kind = &parts->kind[piece->kind];
    Homes homes = kind_homes(kind, plan->memory), usual = {.state = plan->state_atoms,
                                                           .gradient = plan->gradient_atoms,
                                                           .weight = plan->weight_atoms};
    ret->boundary_in = piece->in;
    if (!mesh_same_roles(&kind->mesh, &plan->mesh))
        ret->mesh = &kind->mesh;
    if (!homes_equal(&homes, &usual)) {
        Homes *cut = ARENA_NEW(arena, Homes);
        *cut = homes;
        ret->cut = cut;
    }
    if (kind->pins.again)
        make_again(arena, net, net->classes.at[piece->class], kind->pins.again, ret);
}

/* What belongs to a parameter of two kinds of layers has the same homes. */
static bool same_homes(const Pins *a, const Pins *b)
{
    Pins other = *b;
    other.home[KEPT_SAVED] = a->home[KEPT_SAVED];
    return a->zero == b->zero && a->shard == b->shard && same_memories(a, &other);
}

/* Both uses of a tied parameter live where the first does; where that is not what the second needs
 * it is moved for each use. */
static bool share_homes(const Parts *parts, const Plan *plan, const Net *net)
{
    for (int p = 0; p < net->params.n; p++) {
        const NetParam *param = &net->params.at[p];
        if (param->uses < 2 || param->use_class[0] == param->use_class[1])
            continue;
        const LayerKind *a = &parts->kind[parts->of[param->link[0]]],
                        *b = &parts->kind[parts->of[param->link[1]]];
        ClassPlan *first = &plan->class[param->use_class[0]],
                  *second = &plan->class[param->use_class[1]];
        if (a == b)
            continue;
        if (!same_homes(&a->pins, &b->pins)) {
            diag_error(parts->problem->diag, NO_SPAN,
                       "%s and %s share %s: it has one zero, one "
                       "shard and one home of each kind",
                       a->where, b->where, param->name);
            diag_help(parts->problem->diag, "pin the same for both, first:zero=… and last:zero=…");
            return false;
        }
        second->home[param->use_param[1]] = first->home[param->use_param[0]];
        Homes own = plan_homes(plan, param->use_class[1]);
        Homes *cut = ARENA_NEW(plan->arena, Homes);
        *cut = plan_homes(plan, param->use_class[0]);
        cut->nearer[KEPT_SAVED] = own.nearer[KEPT_SAVED]; /* belongs to no parameter */
        second->cut = first->cut || second->cut ? cut : NULL;
    }
    return true;
}

bool parts_fill(const Parts *parts, Plan *plan, Net *net)
{
    Arena *arena = parts->problem->arena;
    Arena *scratch = arena_new("parts");
    int links = net->chain.n, pieces = 0;
    Piece *piece = ARENA_ARRAY(scratch, Piece, links);
    ClassPlan *made = ARENA_ARRAY(scratch, ClassPlan, links);
    int *of = ARENA_ARRAY(scratch, int, links);
    plan->part = ARENA_ARRAY(arena, int, links);
    bool divided = false;
    for (int i = 0; i < links; i++) {
        Piece own = {.class = net->chain.at[i].class, .kind = parts->of[i]};
        bool handed = net->classes.at[own.class]->chain_in != NONE;
        own.in = handed && i > 0 ? made[of[i - 1]].boundary_out : place_replicate();
        int at = 0;
        for (; at < pieces; at++)
            if (piece[at].class == own.class && piece[at].kind == own.kind &&
                place_equal(&piece[at].in, &own.in))
                break;
        for (int before = 0; at == pieces && before < pieces; before++)
            own.part += piece[before].class == own.class;
        if (at == pieces) {
            const LayerKind *kind = &parts->kind[own.kind];
            variant_lift(arena, kind->variant, &kind->mesh, own.class, &made[at]);
            piece[pieces++] = own;
            dress(parts, plan, net, &own, &made[at]);
        }
        of[i] = at;
        plan->part[i] = piece[at].part;
        divided = divided || piece[at].part > 0;
    }
    if (!divided)
        plan->part = NULL;
    plan->class = ARENA_ARRAY(arena, ClassPlan, pieces);
    plan_tell(plan, net);
    CHECK(net->classes.n == pieces);
    for (int i = 0; i < links; i++)
        plan->class[net->chain.at[i].class] = made[of[i]];
    arena_free(scratch);
    plan_share_rows(plan, net);
    return share_homes(parts, plan, net);
}
