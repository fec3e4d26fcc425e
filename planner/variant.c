/* variant.c - solves the classes of a model for one width, and lifts the answer to a plan's mesh.
 */
#include "planner/variant.h"

#include <string.h>

#include "ir/lower/keep.h"

#include "planner/card.h"
#include "planner/resize.h"

/* For how many micro-batches a step, and in flight, classes are solved: a plan's own numbers would
 * tie its layers to its pipeline. Without a label a byte kept is worth a nanosecond of the step:
 * that keeps shards and gathers them again where backward has the time. */
enum { TYPICAL_MICRO_BATCHES = 32, TYPICAL_LIVE = 4 };
static const BlockLabel plain_label = {.ns_weight = 1, .byte_weight = 1};

static const BlockLabel *label_of(Arena *arena, Width *width, const VariantKey *key)
{
    const BlockLabels *labels = key->block == NONE ? NULL : width_labels(arena, width, key);
    if (!labels || labels->n < 2)
        return &plain_label;
    return &labels->at[key->block < labels->n ? key->block : labels->n - 1];
}

int64_t model_kv_heads(const Net *net)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (op_info[node->op].form != FORM_attention)
                continue;
            const Value *key = &graph->values.at[node->in[1]];
            return key->axes > 3 ? net->dims.at[key->dim[2]].extent : 1;
        }
    }
    return 0;
}

/* The class whose boundary rules the others: the one with most links. */
static int main_class(const Net *net)
{
    int best = 0, most = 0;
    for (int c = 0; c < net->classes.n; c++) {
        int links = 0;
        for (int i = 0; i < net->chain.n; i++)
            links += net->chain.at[i].class == c;
        bool inner = net->classes.at[c]->chain_in != NONE && net->classes.at[c]->chain_out != NONE;
        if (links > most && inner) {
            most = links;
            best = c;
        }
    }
    return best;
}

static const Placement **tied_homes(Arena *arena, const Variant *variant, int c, const bool *solved)
{
    const Net *net = variant->net;
    const Placement **home =
        ARENA_ARRAY(arena, const Placement *, net->classes.at[c]->params.n + 1);
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        for (int use = 0; use < param->uses && param->uses == 2; use++) {
            int other = param->use_class[1 - use];
            if (param->use_class[use] == c && solved[other])
                home[param->use_param[use]] =
                    &variant->class[other].home[param->use_param[1 - use]];
        }
    }
    return home;
}

Spread spread_of_pins(const Pins *pins)
{
    Degrees degrees = {.tp = pins->tp, .cp = pins->cp, .dp = pins->dp};
    degrees_of_experts(pins->ep, pins->etp, &degrees);
    Spread spread = {.tp = pins->tp,
                     .cp = pins->cp,
                     .cp_heads = 1,
                     .cp_by = pins->cp > 1 ? pins->cp_by : -1,
                     .routed = pins_routed(pins),
                     .rounds = pins->ep > 1 && pins->rounds > 1 ? pins->rounds : 1,
                     .etp = degrees.etp,
                     .tp_etp = degrees.tp_etp,
                     .tp_ep = degrees.tp_ep,
                     .cp_ep = degrees.cp_ep,
                     .passing = pins->tp > 1 && pins->tp_by == CROSS_RING};
    if (pins->cp > 1 && pins->cp_heads > 1)
        spread.cp_heads = pins->cp_heads;
    spread.zigzag = pins->cp > 1 && pins->order == ORDER_ZIGZAG;
    return spread;
}

bool spread_same(const Spread *a, const Spread *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->cp_heads == b->cp_heads && a->cp_by == b->cp_by &&
           a->routed == b->routed && a->etp == b->etp && a->zigzag == b->zigzag &&
           a->passing == b->passing && a->tp_etp == b->tp_etp && a->tp_ep == b->tp_ep &&
           a->cp_ep == b->cp_ep && a->rounds == b->rounds;
}

int spread_dp_ep(const Spread *spread, int ep)
{
    return ep > 1 ? ep / (spread->tp_ep * spread->cp_ep) : 1;
}

Degrees spread_degrees(const Spread *spread, int dp, int ep, const Net *net)
{
    return (Degrees){.tp = spread->tp,
                     .cp = spread->cp,
                     .dp = dp,
                     .cp_heads = spread->cp_heads,
                     .ep = spread_dp_ep(spread, ep),
                     .etp = spread->etp,
                     .tp_etp = spread->tp_etp,
                     .tp_ep = spread->tp_ep,
                     .cp_ep = spread->cp_ep,
                     .ends = spread->ends,
                     .kv_heads = model_kv_heads(net)};
}

static AtomSet spread_heads(const Spread *spread, const Mesh *mesh)
{
    return spread->cp_heads > 1 ? role_first_atoms(mesh, ROLE_CP, spread->cp_heads) : 0;
}

static unsigned spread_cross(const Spread *spread)
{
    unsigned all = (1u << CROSS_COUNT) - 1;
    if (spread->zigzag) /* whole sequences would gain nothing by it */
        all &= ~(1u << CROSS_HEADS);
    return spread->cp_by >= 0 ? 1u << spread->cp_by : all;
}

VariantKey key_of_pins(const Pins *pins)
{
    return (VariantKey){spread_of_pins(pins), pins->sp == 1, pins->recompute == 1, pins->block};
}

/* What a class is solved under, but its boundary and homes that others have settled. */
static SolveSetup class_setup(const Width *width, const VariantKey *key, int c,
                              const SolveModel *model)
{
    return (SolveSetup){.net = width->net,
                        .graph = width->net->classes.at[c],
                        .mesh = &width->mesh,
                        .width = role_atoms(&width->mesh, ROLE_TP),
                        .tokens = (AtomSet)(role_atoms(&width->mesh, ROLE_CP) | width->mesh.etp),
                        .rows = (AtomSet)(role_atoms(&width->mesh, ROLE_TP) | width->mesh.etp),
                        .shared = width->mesh.ep,
                        .apart = width->mesh.edp,
                        .heads = spread_heads(&width->spread, &width->mesh),
                        .cross = spread_cross(&width->spread),
                        .pass_by = width->spread.passing,
                        .model = model,
                        .micro_batches = TYPICAL_MICRO_BATCHES,
                        .live = TYPICAL_LIVE,
                        .recompute = key->recompute,
                        .boundary_rule = key->sp ? BOUNDARY_SEQUENCE : BOUNDARY_WHOLE,
                        .weight_rule = WEIGHTS_SHARDED,
                        .paths = width->paths};
}

static const char *cp_text(Arena *arena, const Spread *spread)
{
    return spread->cp > 1 ? arena_printf(arena, " and cp %d", spread->cp) : "";
}

bool class_too_wide(Diag *diag, const char *name, int tp)
{
    diag_error(diag, NO_SPAN, "%s can be placed on tp=%d in more ways than the block solver weighs",
               name, tp);
    diag_help(diag, "every round of rows that tp ranks cut multiplies them: use etp=1, fewer "
                    "rounds, or a smaller tp");
    return false;
}

static bool solve_class(Arena *arena, Diag *diag, Width *width, Variant *variant, int c,
                        const BlockLabel *label, const Placement *boundary, const bool *solved)
{
    const Net *net = variant->net;
    const VariantKey *key = &variant->key;
    SolveModel model = pricer_model(&width->pricer);
    SolveSetup setup = class_setup(width, key, c, &model);
    setup.boundary = boundary;
    setup.home = tied_homes(arena, variant, c, solved);
    Solver *solver = solver_new(arena, &setup);
    Solution solution;
    if (!solver || !solver_at(solver, label->ns_weight, label->byte_weight, &solution)) {
        if (solver && solver_stats(solver).too_wide)
            return class_too_wide(diag, net->classes.at[c]->name, key->spread.tp);
        diag_error(diag, NO_SPAN, "class %s of %s has no legal placement on tp %d%s%s",
                   net->classes.at[c]->name, net->name, key->spread.tp,
                   key->sp ? " with the sequence on tp" : "", cp_text(arena, &key->spread));
        diag_help(diag, "heads, feed-forward width, vocabulary and sequence must divide by tp%s",
                  key->spread.cp > 1 ? ", the sequence by cp, and what heads tp leaves by the cp "
                                       "ranks that exchange them"
                                     : "");
        return false;
    }
    variant->class[c] = solution.plan;
    plan_keep_cheap(net->classes.at[c], &variant->class[c]);
    return true;
}

static bool solve_classes(Arena *arena, Diag *diag, Width *width, Variant *variant)
{
    const Net *net = variant->net;
    const BlockLabel *label = label_of(arena, width, &variant->key);
    bool *solved = ARENA_ARRAY(arena, bool, net->classes.n);
    int first = main_class(net);
    variant->class = ARENA_ARRAY(arena, ClassPlan, net->classes.n);
    if (label->plan)
        variant->class[first] = *label->plan;
    else if (!solve_class(arena, diag, width, variant, first, label, NULL, solved))
        return false;
    solved[first] = true;
    Placement boundary = net->classes.at[first]->chain_in != NONE
                             ? variant->class[first].boundary_in
                             : variant->class[first].boundary_out;
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        bool inner = graph->chain_in != NONE && graph->chain_out != NONE;
        if (c == first)
            continue;
        /* the ends of the chain are there once: they have one placement under every label */
        if (!solve_class(arena, diag, width, variant, c, inner ? label : &plain_label, &boundary,
                         solved))
            return false;
        solved[c] = true;
    }
    return true;
}

/* ---- labels ---- */

/* Weights that a corner of a hull, and no other, minimises: between the slopes of its two sides. */
static void label_weights(const Solution *hull, int n, int at, BlockLabel *ret)
{
    int64_t ns = 0, bytes = 0;
    for (int side = at - 1; side <= at; side++) {
        if (side < 0 || side + 1 >= n)
            continue;
        const Label *fast = &hull[side].label, *small = &hull[side + 1].label;
        ns += hull[side + 1].ns - hull[side].ns;
        bytes += TYPICAL_LIVE * (fast->saved_bytes - small->saved_bytes) + fast->state_bytes -
                 small->state_bytes;
    }
    if (n == 1)
        ns = bytes = 1;
    ret->ns_weight = bytes * (at == 0 && n > 1 ? 2 : 1);
    ret->byte_weight = ns * (at == n - 1 && n > 1 ? 2 : 1);
}

const BlockLabels *width_labels(Arena *arena, Width *width, const VariantKey *key)
{
    BlockLabels **kept = &width->labels[key->sp][key->recompute];
    if (*kept)
        return *kept;
    BlockLabels *labels = *kept = ARENA_NEW(arena, BlockLabels);
    SolveModel model = pricer_model(&width->pricer);
    int class = main_class(width->net);
    SolveSetup setup = class_setup(width, key, class, &model);
    Solver *solver = solver_new(arena, &setup);
    Solution hull[MAX_LABELS];
    if (!solver)
        return labels;
    if (width->spread.tp * width->spread.cp > width->pricer.cluster->level[0].width)
        labels->n = solver_at(solver, plain_label.ns_weight, plain_label.byte_weight, hull);
    else
        labels->n = solver_hull(solver, hull, MAX_LABELS);
    labels->too_wide = solver_stats(solver).too_wide;
    for (int i = 0; i < labels->n; i++) {
        BlockLabel *label = &labels->at[i];
        ClassPlan *plan = ARENA_NEW(arena, ClassPlan);
        *plan = hull[i].plan;
        plan_keep_cheap(width->net->classes.at[class], plan);
        label->plan = plan;
        label_weights(hull, labels->n, i, label);
        label->micro_ns = hull[i].label.micro_ns;
        label->saved_bytes = hull[i].label.saved_bytes;
        label->state_bytes = hull[i].label.state_bytes;
    }
    return labels;
}

bool problem_read(Problem *problem)
{
    Reading reading = {.batch = 1, .sequence = problem->job.sequence, .pad_vocabulary = 1};
    problem->steps = step_shelf_new(problem->arena);
    Json model = json_root(problem->model);
    problem->net = model_read_as(problem->arena, problem->diag, model, &reading);
    problem->routed = NULL;
    if (!problem->net || !net_has_experts(problem->net))
        return problem->net != NULL;
    reading.routed = true;
    problem->routed = model_read_as(problem->arena, problem->diag, model, &reading);
    return problem->routed != NULL;
}

Net *problem_form(const Problem *problem, const Spread *spread, int sharing, int64_t room_percent)
{
    Reading reading = {.batch = 1,
                       .sequence = problem->job.sequence,
                       .pad_vocabulary = 1,
                       .routed = true,
                       .rounds = spread->rounds,
                       .sharing = sharing,
                       .room_percent = room_percent};
    if (!spread->routed || spread->rounds <= 1)
        return spread->routed ? problem->routed : problem->net;
    return model_read_as(problem->arena, problem->diag, json_root(problem->model), &reading);
}

/* In percent of an even share, the room in which so many rounds hold all rows that can come. */
static int rounds_room_of(const Problem *problem, int tp, int cp, int ep, int rounds)
{
    const Net *net = problem->routed;
    int64_t room = 100, tokens = problem->job.sequence / (tp * (cp > 1 ? cp : 1));
    for (int d = 0; net && ep > 1 && d < net->dims.n; d++) {
        const Dim *dim = &net->dims.at[d];
        if (dim->kind != DIM_ROUTED)
            continue;
        int64_t own = rounds_room(tokens > 0 ? tokens : 1, dim->extent,
                                  net->dims.at[dim->among].extent, ep, rounds);
        room = own > room ? own : room;
    }
    return (int)room;
}

int pins_rounds_room(const Problem *problem, const Pins *pins)
{
    int room = rounds_room_of(problem, pins->tp, pins->cp, pins->ep, pins->rounds);
    for (int i = 0; i < pins->ranges; i++) { /* a model has one room: that of all its layers */
        const Pins *some = &pins->range[i].pins;
        int own = rounds_room_of(problem, some->tp > 0 ? some->tp : pins->tp,
                                 some->cp > 0 ? some->cp : pins->cp,
                                 some->ep > 0 ? some->ep : pins->ep, pins->rounds);
        room = own > room ? own : room;
    }
    return room;
}

bool pins_routed(const Pins *pins)
{
    return pins->ep > 1 || (pins->etp > 0 && pins->etp != pins->tp);
}

int problem_imbalance(const Problem *problem)
{
    return problem->imbalance > 0 ? problem->imbalance : USUAL_IMBALANCE;
}

bool net_has_experts(const Net *net)
{
    for (int c = 0; c < net->classes.n; c++)
        for (int n = 0; n < net->classes.at[c]->nodes.n; n++)
            if (op_info[net->classes.at[c]->nodes.at[n].op].form == FORM_expert)
                return true;
    return false;
}

Width *width_new(Arena *arena, Diag *diag, const Problem *problem, const Spread *spread)
{
    Width *width = ARENA_NEW(arena, Width);
    width->spread = *spread;
    Net *form = problem_form(problem, spread, 1, 0);
    if (!form)
        return NULL;
    width->net = net_resize(arena, form, spread->etp, spread->tp);
    Degrees degrees =
        spread_degrees(spread, spread->etp, spread->tp_ep * spread->cp_ep, width->net);
    if (!mesh_build(diag, problem->cluster, &degrees, &width->mesh))
        return NULL;
    if (spread->zigzag)
        width->net->runs = 2 * (spread->cp / spread->cp_heads);
    if (spread->runs)
        width->net->runs = spread->runs;
    width->pricer = (Pricer){
        problem->cluster, width->net,    &width->mesh, recipe_by_name(problem->job.recipe), 0,
        &problem->job,    problem->steps};
    MovePrice moves = pricer_moves(&width->pricer);
    width->paths = path_table_new(arena, &width->mesh, width->net, &moves);
    return width;
}

Variant *variant_solve(Arena *arena, Diag *diag, Width *width, const VariantKey *key)
{
    Variant *variant = ARENA_NEW(arena, Variant);
    *variant = (Variant){
        .key = *key, .net = width->net, .mesh = width->mesh, .pad_vocabulary = key->spread.tp};
    return solve_classes(arena, diag, width, variant) ? variant : NULL;
}

Variant *variant_of_plan(Arena *arena, const Plan *plan, const Net *net)
{
    Variant *variant = ARENA_NEW(arena, Variant);
    *variant = (Variant){
        .net = net_resize(arena, net, net->dims.at[net->batch].extent, plan->pad_vocabulary),
        .mesh = plan->mesh,
        .pad_vocabulary = plan->pad_vocabulary,
        .class = plan->class};
    variant->key.spread = spread_of_plan(plan, net);
    plan_tell(plan, variant->net);
    return variant;
}

/* ---- how a plan spreads its layers ---- */

/* What the cp atoms do in the first node of a class that crosses the sequence with them; false when
 * none does. */
static bool crossing(const Plan *plan, const Net *net, int c, Spread *ret)
{
    const Mesh *mesh = plan_mesh(plan, c);
    AtomSet cp = role_atoms(mesh, ROLE_CP);
    const Graph *graph = net->classes.at[c];
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (!node_crosses(net, node))
            continue;
        AtomSet heads = 0;
        for (int a = 0; a < mesh->n; a++) {
            Choice choice = plan->class[c].choice[n].atom[a];
            bool letter = choice != CHOICE_REPLICATE && choice < CHOICE_LINEAR;
            if ((cp >> a & 1) && letter &&
                net->dims.at[node->sig.dim[choice - CHOICE_LETTER]].kind == DIM_OTHER)
                heads = (AtomSet)(heads | 1u << a);
        }
        AtomList ring = node_ring(mesh, &plan->class[c].choice[n]);
        ret->cp_by = heads == cp ? CROSS_HEADS : ring.n > 0 ? CROSS_RING : CROSS_GATHER;
        ret->cp_heads = heads == cp ? 1 : mesh_extent(mesh, heads);
        return true;
    }
    return false;
}

/* Do blocks pass by along an atom of the role in a class? */
static bool passes_on(const Plan *plan, const Net *net, int c, Role role)
{
    AtomSet atoms = role_atoms(plan_mesh(plan, c), role);
    for (int n = 0; n < net->classes.at[c]->nodes.n; n++) {
        AtomList ring = node_ring(&plan->mesh, &plan->class[c].choice[n]);
        if (list_set(&ring) & atoms)
            return true;
    }
    return false;
}

static Spread spread_on(const Plan *plan, const Mesh *mesh)
{
    AtomSet tp = role_atoms(mesh, ROLE_TP), apart = (mesh->ep | mesh->edp) & tp;
    return (Spread){.tp = mesh_extent(mesh, tp),
                    .cp = mesh_extent(mesh, role_atoms(mesh, ROLE_CP)),
                    .cp_heads = 1,
                    .cp_by = -1,
                    .routed = mesh_has_experts(mesh),
                    .rounds = plan->rounds > 1 ? plan->rounds : 1,
                    .etp = mesh_extent(mesh, mesh->etp),
                    .tp_etp = apart ? mesh_extent(mesh, (AtomSet)(tp & ~apart)) : 0,
                    .tp_ep = mesh_extent(mesh, mesh->ep & tp),
                    .cp_ep = mesh_extent(mesh, mesh->ep & role_atoms(mesh, ROLE_CP)),
                    .zigzag = plan->zigzag != 0 && role_atoms(mesh, ROLE_CP) != 0};
}

Spread spread_of_plan(const Plan *plan, const Net *net)
{
    Spread spread = spread_on(plan, &plan->mesh);
    for (int c = 0; c < net->classes.n; c++)
        if (!plan->class[c].mesh)
            spread.passing = spread.passing || passes_on(plan, net, c, ROLE_TP);
    for (int c = 0; c < net->classes.n && spread.cp > 1; c++)
        if (!plan->class[c].mesh && crossing(plan, net, c, &spread))
            break;
    return spread;
}

Spread spread_of_class(const Plan *plan, const Net *net, int class)
{
    Spread spread = spread_on(plan, plan_mesh(plan, class));
    spread.passing = passes_on(plan, net, class, ROLE_TP);
    if (spread.cp > 1)
        crossing(plan, net, class, &spread);
    return spread;
}

/* ---- which label a plan has ---- */

/* again: b may make again what a keeps. */
static bool same_class(const Graph *graph, const Mesh *mesh, const ClassPlan *a, const ClassPlan *b,
                       bool again)
{
    for (int n = 0; n < graph->nodes.n; n++)
        for (int i = 0; i < mesh->n; i++)
            if (a->choice[n].atom[i] != b->choice[n].atom[i] ||
                a->choice[n].travel[i] != b->choice[n].travel[i])
                return false;
    for (int p = 0; p < graph->params.n; p++)
        if (!place_equal(&a->home[p], &b->home[p]))
            return false;
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        if (value->kind != VALUE_NODE || graph->nodes.at[value->made].seg != SEG_FORWARD)
            continue; /* a plan says of these alone what is kept */
        if (again && b->keep[v] == KEEP_NONE)
            continue;
        if (a->keep[v] != b->keep[v] ||
            (a->keep[v] == KEEP_SAVED && !place_equal(&a->saved[v], &b->saved[v])))
            return false;
    }
    return true;
}

static bool same_classes(const Variant *variant, const Plan *plan)
{
    const Net *net = variant->net;
    Arena *scratch = arena_new("same");
    bool same = variant->mesh.n <= plan->mesh.n;
    for (int c = 0; same && c < net->classes.n; c++) {
        ClassPlan lifted;
        variant_lift(scratch, variant, &plan->mesh, c, &lifted);
        same = same_class(net->classes.at[c], &plan->mesh, &lifted, &plan->class[c], false);
    }
    arena_free(scratch);
    return same;
}

bool plan_has_class(Arena *arena, const Plan *plan, const Net *net, int class,
                    const Variant *variant, int from)
{
    ClassPlan lifted;
    const Mesh *mesh = plan_mesh(plan, class);
    variant_lift(arena, variant, mesh, from, &lifted);
    return same_class(net->classes.at[class], mesh, &lifted, &plan->class[class], true);
}

int plan_label(Arena *arena, const Problem *problem, const Plan *plan, const Net *net, bool sp,
               bool recompute, BlockLabels *ret)
{
    Problem single = *problem;
    single.arena = arena;
    single.diag = diag_new(arena);
    single.net = single.routed = net_resize(arena, net, 1, 1); /* in the form that the plan has */
    VariantKey key = {spread_of_plan(plan, net), sp, recompute, NONE};
    Width *width = width_new(arena, single.diag, &single, &key.spread);
    *ret = (BlockLabels){.n = 0};
    if (width)
        *ret = *width_labels(arena, width, &key);
    for (key.block = 0; ret->n > 1 && key.block < ret->n; key.block++) {
        const Variant *variant = variant_solve(arena, single.diag, width, &key);
        if (variant && same_classes(variant, plan))
            return key.block;
    }
    return NONE;
}
