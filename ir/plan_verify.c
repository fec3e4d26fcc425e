/* plan_verify.c - is this plan one that can be lowered? Every fault is reported, with its place in
 * the file the plan was read from. */
#include "ir/plan.h"

#include <string.h>

#include "ir/plan_memory.h"
#include "ir/plan_verify_in.h"
#include "ir/sig.h"

/* Most hand edits end here; what they break is not to be mended by hand. */
static bool undo(const Verify *v)
{
    diag_help(v->diag, "undo the edit, or make the plan again: lplan plan --pin …");
    return false;
}

/* ---- numbers ---- */

static bool verify_counts(const Verify *v)
{
    const Plan *plan = v->plan;
    int64_t stage_ranks = mesh_ranks(&plan->mesh);
    int dp = mesh_extent(&plan->mesh, role_atoms(&plan->mesh, ROLE_DP));
    bool good = true;
    if (plan->stages < 1 || stage_ranks * plan->stages != plan->ranks) {
        good = fault(v, at_key(v->file, "ranks"),
                     SAY(v, "%d stages of %lld ranks are not %d ranks", plan->stages,
                         (long long)stage_ranks, plan->ranks));
        diag_help(v->diag, "the product of the mesh extents times \"stages\" is \"ranks\"");
    }
    if (plan->cluster && plan->ranks > plan->cluster->devices) {
        good = fault(
            v, at_key(v->file, "ranks"),
            SAY(v, "%d ranks on a cluster of %d devices", plan->ranks, plan->cluster->devices));
        diag_help(v->diag, "a rank has a device of its own");
    }
    int64_t sequences = plan->micro_batch * dp;
    if (plan->job.global_batch % sequences != 0 ||
        plan->job.global_batch / sequences != plan->micro_batches) {
        good = fault(v, at_key(v->file, "micro_batches"),
                     SAY(v,
                         "micro-batch %lld x dp %d x %d micro-batches is not the global batch "
                         "%lld",
                         (long long)plan->micro_batch, dp, plan->micro_batches,
                         (long long)plan->job.global_batch));
        diag_help(v->diag, "their product is the job's \"global_batch\"");
    }
    if (v->net->dims.at[v->net->batch].extent != sequences)
        good = fault(v, at_key(v->file, "micro_batch"),
                     SAY(v, "the model was read for %lld sequences, the plan says %lld",
                         (long long)v->net->dims.at[v->net->batch].extent, (long long)sequences));
    if (!recipe_by_name(plan->job.recipe)) {
        good = fault(v, at_key(at_key(v->file, "job"), "recipe"),
                     SAY(v, "unknown recipe %s", plan->job.recipe));
        diag_help(v->diag, "recipes are fp32, bf16, fp16 and fp64");
    }
    return good;
}

/* `list`: the mesh, or the roles of its atoms in a class. */
static bool verify_roles(const Verify *v, const Mesh *mesh, Json list)
{
    for (int a = 0; a < mesh->n; a++) {
        int roles = (mesh->ep >> a & 1) + (mesh->etp >> a & 1) + (mesh->edp >> a & 1);
        Role role = mesh->atom[a].role;
        bool fits = (role == ROLE_DP || !(mesh->etp >> a & 1)) &&
                    (role == ROLE_TP || !(mesh->edp >> a & 1));
        if (roles == 0 || (roles == 1 && fits && role <= ROLE_DP))
            continue;
        fault(v, at_key(at_index(list, a), "experts"),
              SAY(v, "atom a%d has role %s, and another in layers of experts than it may have", a,
                  role_text[role]));
        diag_help(v->diag, "ranks that share experts (ep) are those of tp, cp or dp; of these dp "
                           "may cut each expert too (etp), and tp hold the same (edp)");
        return false;
    }
    return true;
}

static bool verify_mesh(const Verify *v)
{
    const Mesh *mesh = &v->plan->mesh;
    bool good = verify_roles(v, mesh, at_key(v->file, "mesh"));
    for (int c = 0; good && c < v->net->classes.n; c++)
        if (v->plan->class[c].mesh)
            good = verify_roles(v, v->plan->class[c].mesh,
                                at_key(at_index(at_key(v->file, "classes"), c), "mesh"));
    if (!good)
        return false;
    for (int a = 0; v->plan->cluster && a < mesh->n; a++) {
        if (mesh->atom[a].level < v->plan->cluster->levels)
            continue;
        fault(v, at_key(at_index(at_key(v->file, "mesh"), a), "level"),
              SAY(v, "level %d of a cluster with %d link levels", mesh->atom[a].level,
                  v->plan->cluster->levels));
        diag_help(v->diag, "levels count from 0, the fastest link");
        return false;
    }
    return true;
}

/* Runs of one length, and no node that counts along a sequence that is dealt out. */
static bool verify_order(const Verify *v)
{
    const Net *net = v->net;
    int64_t runs = 2 * (int64_t)mesh_extent(&v->plan->mesh, v->plan->zigzag);
    if (v->plan->zigzag == 0)
        return true;
    if (v->plan->job.sequence % runs != 0) {
        fault(v, at_key(v->file, "zigzag"),
              SAY(v, "a sequence of %lld is not cut into %lld runs of a zigzag",
                  (long long)v->plan->job.sequence, (long long)runs));
        diag_help(v->diag, "use a sequence of %lld, or order=identity",
                  (long long)((v->plan->job.sequence + runs - 1) / runs * runs));
        return false;
    }
    for (int c = 0; c < net->classes.n; c++)
        for (int n = 0; n < net->classes.at[c]->nodes.n; n++) {
            const Node *node = &net->classes.at[c]->nodes.at[n];
            if (!node_needs_order(net, node))
                continue;
            fault(v, at_key(v->file, "zigzag"),
                  SAY(v, "%s of class %s counts along the sequence, which a zigzag deals out",
                      node->name, net->classes.at[c]->name));
            diag_help(v->diag, "plan with --pin order=identity");
            return false;
        }
    return true;
}

static bool verify_cuts(const Verify *v)
{
    const Plan *plan = v->plan;
    Json links = at_key(v->file, "first_link");
    bool good = true;
    const char *part = plan->chunks > plan->stages ? "chunk" : "stage";
    for (int c = 0; c < plan->chunks; c++) {
        if (plan->first_link[c] < plan->first_link[c + 1])
            continue;
        good = fault(v, at_index(links, c + 1), SAY(v, "%s %d has no layer", part, c));
        diag_help(v->diag, "the numbers grow from %s to %s", part, part);
    }
    if (plan->first_link[0] == 0 && plan->first_link[plan->chunks] == v->net->chain.n)
        return good;
    fault(v, links, SAY(v, "the stages do not cover the chain of %d links", v->net->chain.n));
    diag_help(v->diag, "the first number is 0, the last %d", v->net->chain.n);
    return false;
}

/* Where steps flow into each other no stage waits for all others, and each sees other weights. */
static bool verify_flow(const Verify *v)
{
    const Plan *plan = v->plan;
    const char *name = schedule_text[plan->schedule], *keeps = schedule_text[SCHEDULE_1F1B];
    Json at = at_key(v->file, "schedule");
    bool good = true;
    if (plan->job.clip > 0) {
        good = fault(v, at,
                     SAY(v,
                         "schedule %s updates each stage by itself, but clipping needs the norm "
                         "of all gradients first",
                         name));
        diag_help(v->diag, "set clip to 0, or plan with schedule=%s", keeps);
    }
    if (recipe_by_name(plan->job.recipe)->scales_loss) {
        good = fault(v, at,
                     SAY(v,
                         "schedule %s updates each stage by itself, but recipe %s skips steps "
                         "that overflow anywhere",
                         name, plan->job.recipe));
        diag_help(v->diag, "plan with --recipe bf16, or with schedule=%s", keeps);
    }
    if (plan->memory[KEPT_GRADIENTS] != MEMORY_HBM) {
        good = fault(v, at,
                     SAY(v,
                         "schedule %s updates while rows add to gradients, and those in %s pass "
                         "through places that an update needs",
                         name, memory_text[plan->memory[KEPT_GRADIENTS]]));
        diag_help(v->diag, "plan with --pin gradient_home=hbm, or with schedule=%s", keeps);
    }
    for (int p = 0; p < v->net->params.n; p++) {
        const NetParam *param = &v->net->params.at[p];
        int home[2] = {0, 0};
        for (int use = 0; use < param->uses && use < 2; use++) {
            int chunk = 0;
            while (chunk + 1 < plan->chunks && param->link[use] >= plan->first_link[chunk + 1])
                chunk++;
            home[use] = plan->holder[chunk];
        }
        if (param->uses < 2 || home[0] == home[1])
            continue;
        good = fault(v, at,
                     SAY(v,
                         "%s is used on stages %d and %d, which schedule %s updates each by "
                         "itself",
                         param->name, home[0], home[1], name));
        diag_help(v->diag,
                  "give the last layer a parameter of its own (tie no weights), or plan "
                  "with schedule=%s",
                  keeps);
    }
    return good;
}

/* Every row of the schedule comes to run. */
static bool verify_schedule(const Verify *v)
{
    const Schedule *schedule = plan_rows(v->scratch, v->diag, v->plan);
    return schedule && schedule_check(schedule, v->diag) && (!schedule->delay || verify_flow(v));
}

/* ---- placements ---- */

typedef struct Class {
    const Verify *v;
    const Graph *graph;
    const ClassPlan *plan;
    const Mesh *mesh;
    Json file;
} Class;

static bool verify_place(const Class *c, ValueId id, const Placement *place, Json at,
                         const char *what, bool partial)
{
    if (id == NONE)
        return true;
    const Verify *v = c->v;
    const Value *value = &c->graph->values.at[id];
    AtomSet known = (AtomSet)((1u << v->plan->mesh.n) - 1);
    if (place_used(place) & ~known) {
        fault(v, at,
              SAY(v, "%s of %s in class %s names an atom that the mesh lacks", what, value->name,
                  c->graph->name));
        if (v->plan->mesh.n == 0)
            diag_help(v->diag, "a stage of one rank has no atoms: write {}");
        else
            diag_help(v->diag, "the mesh has %d atoms, a0 and on", v->plan->mesh.n);
        return false;
    }
    if (!place_fits(&v->plan->mesh, v->net, value, place)) {
        fault(v, at,
              SAY(v, "%s of %s in class %s does not divide by its atoms", what, value->name,
                  c->graph->name));
        return undo(v);
    }
    if (!partial && place->partial) {
        fault(v, at, SAY(v, "%s of %s in class %s is Partial", what, value->name, c->graph->name));
        diag_help(v->diag, "state and what links hand on is whole or cut, never a sum to be made");
        return false;
    }
    return true;
}

/* Who has which round is dealt out by each block alone: rounds of the same choices agree only when
 * they are cut alike. */
static bool verify_rounds(const Class *c, int of)
{
    const Node *node = &c->graph->nodes.at[of];
    if (op_info[node->op].attrs != ATTRS_deal)
        return true;
    for (int n = 0; n < of; n++) {
        const Node *other = &c->graph->nodes.at[n];
        if (other->op != node->op || other->in[0] != node->in[0] ||
            memcmp(c->plan->choice[n].atom, c->plan->choice[of].atom,
                   (size_t)c->mesh->n * sizeof(Choice)) == 0)
            continue;
        fault(c->v, at_key(at_key(c->file, "nodes"), node->name),
              SAY(c->v, "node %s of class %s deals rows out to rounds otherwise than %s",
                  node->name, c->graph->name, other->name));
        diag_help(c->v->diag, "place it as %s is: a row would have two rounds, or none",
                  other->name);
        return false;
    }
    return true;
}

static bool verify_nodes(const Class *c)
{
    const Verify *v = c->v;
    bool good = true;
    for (int n = 0; n < c->graph->nodes.n; n++) {
        const Node *node = &c->graph->nodes.at[n];
        Placement in[MAX_IN], out[MAX_OUT];
        if (place_node(c->mesh, v->net, c->graph, node, &c->plan->choice[n], in, out)) {
            good = verify_rounds(c, n) && good;
            continue;
        }
        good = fault(v, at_key(at_key(c->file, "nodes"), node->name),
                     SAY(v, "node %s of class %s cannot be placed so", node->name, c->graph->name));
        SigText sig = sig_of_node(c->graph, node);
        Str text = str_new(v->scratch);
        sig_put(&text, &sig);
        diag_help(v->diag,
                  "it computes %s; extents divide by the atoms on their letter, and a sum "
                  "is made only where the op is linear",
                  text.at);
    }
    return good;
}

static bool verify_class(const Class *c)
{
    const Graph *graph = c->graph;
    bool good = verify_nodes(c);
    for (int p = 0; p < graph->params.n; p++) {
        const Param *param = &graph->params.at[p];
        good &= verify_place(c, param->value, &c->plan->home[p],
                             at_key(at_key(c->file, "homes"), param->name), "the home", false);
    }
    good &= verify_place(c, graph->chain_in, &c->plan->boundary_in, at_key(c->file, "in"),
                         "the boundary", false);
    good &= verify_place(c, graph->chain_out, &c->plan->boundary_out, at_key(c->file, "out"),
                         "the boundary", false);
    for (int i = 0; i < graph->values.n; i++)
        if (c->plan->keep[i] == KEEP_SAVED)
            good &= verify_place(c, i, &c->plan->saved[i],
                                 at_key(at_key(c->file, "saved"), graph->values.at[i].name),
                                 "the saved copy", true);
    return good;
}

/* ---- ways ---- */

/* What a class's values are made as, and the search for a way to what is asked of them. */
typedef struct Ways {
    const Class *c;
    PathTable *paths;
    Placement *made; /* per value */
    bool *known;
} Ways;

static bool verify_way(const Ways *w, ValueId id, const Placement *want, Json at, const char *who)
{
    const Verify *v = w->c->v;
    Path path;
    const Value *value = &w->c->graph->values.at[id];
    if (!w->known[id] || path_find(w->paths, value, &w->made[id], want, &path))
        return true;
    Str text = str_new(v->scratch);
    str_putf(&text, "no way to bring %s of class %s from ", value->name, w->c->graph->name);
    place_put(&text, v->net, value, &w->made[id]);
    str_put(&text, " to ");
    place_put(&text, v->net, value, want);
    str_putf(&text, ", as %s wants it", who);
    fault(v, at, text.at);
    return undo(v);
}

static void make(Ways *w, ValueId id, Placement place)
{
    if (id == NONE)
        return;
    w->made[id] = place;
    w->known[id] = true;
}

/* Whatever a node reads must be reachable from what its maker makes. Copies made on the way only
 * add to the choice. */
static bool verify_ways(const Class *c)
{
    const Verify *v = c->v;
    const Graph *graph = c->graph;
    MovePrice price = path_plain_price(4);
    Ways w = {.c = c,
              .paths = path_table_new(v->scratch, c->mesh, v->net, &price),
              .made = ARENA_ARRAY(v->scratch, Placement, graph->values.n + 1),
              .known = ARENA_ARRAY(v->scratch, bool, graph->values.n + 1)};
    make(&w, graph->chain_in, c->plan->boundary_in);
    make(&w, graph->grad_in, c->plan->boundary_out);
    for (int p = 0; p < graph->params.n; p++)
        make(&w, graph->params.at[p].value, c->plan->home[p]);
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        Json at = at_key(at_key(c->file, "nodes"), node->name);
        Placement in[MAX_IN], out[MAX_OUT];
        place_node(c->mesh, v->net, graph, node, &c->plan->choice[n], in, out);
        for (int k = 0; k < node->ins; k++)
            if (!verify_way(&w, node->in[k], &in[k], at, node->name))
                return false;
        for (int k = 0; k < node->outs; k++) {
            ValueId id = node->out[k];
            make(&w, id, out[k]);
            if (node->seg != SEG_FORWARD || c->plan->keep[id] != KEEP_SAVED)
                continue;
            at = at_key(at_key(c->file, "saved"), graph->values.at[id].name);
            if (!verify_way(&w, id, &c->plan->saved[id], at, "what is saved"))
                return false;
        }
    }
    return (graph->chain_out == NONE || verify_way(&w, graph->chain_out, &c->plan->boundary_out,
                                                   at_key(c->file, "out"), "the next link")) &&
           (graph->grad_out == NONE || verify_way(&w, graph->grad_out, &c->plan->boundary_in,
                                                  at_key(c->file, "in"), "the link before"));
}

/* ---- homes ---- */

/* Cuts nest: what is cut more is a share of what is cut less. */
static bool verify_homes(const Verify *v)
{
    const Plan *plan = v->plan;
    for (int c = 0; c < v->net->classes.n; c++) {
        Homes homes = plan_homes(plan, c);
        Json class = at_index(at_key(v->file, "classes"), c);
        Json at = plan->class[c].cut ? at_key(class, "cut") : v->file;
        if ((homes.weight & ~homes.gradient) == 0 && (homes.gradient & ~homes.state) == 0 &&
            homes.state >> plan->mesh.n == 0)
            continue;
        bool weight = homes.weight & ~homes.gradient;
        fault(v, at_key(at, weight ? "weight_atoms" : "gradient_atoms"),
              weight ? "weights are cut over an atom that does not cut their gradients"
                     : "gradients are cut over an atom that does not cut the optimizer's state");
        diag_help(v->diag, "\"state_atoms\" holds \"gradient_atoms\", and that \"weight_atoms\"");
        return false;
    }
    return true;
}

static bool same_homes(const Plan *plan, int a, int b)
{
    Homes x = plan_homes(plan, a), y = plan_homes(plan, b);
    return homes_equal_of_params(&x, &y);
}

/* ---- between classes ---- */

static bool verify_seams(const Verify *v)
{
    const Plan *plan = v->plan;
    const Net *net = v->net;
    Json classes = at_key(v->file, "classes");
    for (int i = 0; i + 1 < net->chain.n; i++) {
        int from = net->chain.at[i].class, to = net->chain.at[i + 1].class;
        if (place_equal(&plan->class[from].boundary_out, &plan->class[to].boundary_in))
            continue;
        fault(v, at_key(at_index(classes, to), "in"),
              SAY(v, "link %d hands on another placement than link %d takes", i, i + 1));
        diag_help(v->diag, "\"out\" of class %s and \"in\" of class %s are to be the same",
                  net->classes.at[from]->name, net->classes.at[to]->name);
        return false;
    }
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        for (int use = 1; use < param->uses; use++) {
            int class = param->use_class[use], mine = param->use_param[use];
            if (!same_homes(plan, param->use_class[0], class)) {
                fault(v, at_key(at_index(classes, class), "cut"),
                      SAY(v, "the uses of the tied parameter %s are cut differently", param->name));
                diag_help(v->diag, "write the same \"cut\" in both classes");
                return false;
            }
            if (place_equal(&plan->class[param->use_class[0]].home[param->use_param[0]],
                            &plan->class[class].home[mine]))
                continue;
            fault(v,
                  at_key(at_key(at_index(classes, class), "homes"),
                         net->classes.at[class]->params.at[mine].name),
                  SAY(v, "the uses of the tied parameter %s have different homes", param->name));
            diag_help(v->diag, "it is one tensor: write the same home in both classes");
            return false;
        }
    }
    return true;
}

bool plan_verify_file(const Plan *plan, const Net *net, Diag *diag, Json file)
{
    Verify v = {plan, net, arena_new("verify"), diag, file};
    bool good = verify_counts(&v); /* each says all it finds */
    good = verify_mesh(&v) && good;
    good = verify_order(&v) && good;
    good = verify_cuts(&v) && good;
    good = verify_homes(&v) && good;
    good = verify_memory(&v) && verify_far(&v) && good;
    good = good && verify_schedule(&v);
    bool legal = true;
    for (int pass = 0; pass < 2 && legal; pass++)
        for (int c = 0; c < net->classes.n; c++) {
            Class class = {&v, net->classes.at[c], &plan->class[c], plan_mesh(plan, c),
                           at_index(at_key(file, "classes"), c)};
            legal &= pass == 0 ? verify_class(&class) : verify_ways(&class);
        }
    good = good && legal && verify_seams(&v);
    arena_free(v.scratch);
    return good;
}

bool plan_verify(const Plan *plan, const Net *net, Diag *diag)
{
    return plan_verify_file(plan, net, diag, (Json){0});
}
