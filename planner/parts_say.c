/* parts_say.c - the pins that say a plan whose layers differ. */
#include <string.h>

#include "ir/pin_ranges.h"
#include "ir/plan_parts.h"
#include "planner/parts.h"

/* ---- what is made again ---- */

/* Values that cost next to nothing may be made again in every plan; products, norms and whatever
 * mixes elements only where someone asked for it. */
static bool is_dear(const Node *node)
{
    return node->seg == SEG_FORWARD &&
           (node->ins > 1 || (node->ins == 1 && !str_eq(op_info[node->op].pattern, "A->A")));
}

void class_recompute(Arena *arena, const Graph *graph, const ClassPlan *class, Pins *ret)
{
    bool all = true, any = false;
    Str names = str_new(arena);
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (node->seg != SEG_FORWARD || node->late) /* rows of later rounds are never kept */
            continue;
        bool again = class->keep[node->out[0]] == KEEP_NONE;
        all = all && again;
        any = any || (again && node->ins > 1);
        if (again && is_dear(node))
            str_putf(&names, "%s%s", names.n ? "+" : "", graph->values.at[node->out[0]].name);
    }
    ret->recompute = any && all;
    ret->again = any && !all ? names.at : NULL;
}

/* ---- pins of a class ---- */

static bool on_sequence(const Plan *plan, const Net *net, int class)
{
    const Graph *graph = net->classes.at[class];
    AtomSet tp = role_atoms(plan_mesh(plan, class), ROLE_TP);
    const Value *value = graph->chain_out != NONE ? &graph->values.at[graph->chain_out] : NULL;
    for (int a = 0; value && a < value->axes; a++)
        if (value->dim[a] == net->sequence &&
            (list_set(&plan->class[class].boundary_out.shard[a]) & tp))
            return true;
    return false;
}

static Pins pins_of_class(const Plan *plan, const Net *net, int class)
{
    const Mesh *mesh = plan_mesh(plan, class);
    Spread spread = spread_of_class(plan, net, class);
    Pins own = pins_none();
    own.tp = spread.tp;
    own.cp = spread.cp;
    own.dp = mesh_extent(mesh, role_atoms(mesh, ROLE_DP));
    own.cp_by = spread.cp_by;
    own.cp_heads = spread.cp_heads > 1 ? spread.cp_heads : -1;
    own.tp_by = spread.passing ? CROSS_RING : -1;
    own.ep = mesh_extent(mesh, mesh->ep);
    own.etp = spread.tp_etp > 0 ? spread.tp_etp : spread.tp * spread.etp;
    Homes homes = plan_homes(plan, class);
    own.zero = homes_words(mesh, &homes, &own.shard);
    own.zero = own.zero < 0 ? (homes.weight ? 3 : homes.gradient ? 2 : 1) : own.zero;
    for (int k = 0; k < KEPT_COUNT; k++)
        own.home[k] = (int)home_memory(plan->memory, &homes, (Kept)k);
    own.sp = on_sequence(plan, net, class);
    class_recompute(plan->arena, net->classes.at[class], &plan->class[class], &own);
    return own;
}

/* ---- labels ---- */

/* The model as the plan reads it, its kinds undivided. */
static bool read_problem(Arena *arena, const Plan *plan, Problem *ret)
{
    *ret = (Problem){.arena = arena,
                     .diag = diag_new(arena),
                     .model = plan->model,
                     .cluster = plan->cluster,
                     .job = plan->job,
                     .ranks = plan->ranks};
    return problem_read(ret);
}

/* The label at which the class of a link was solved under its pins; NONE when it is none, or the
 * only one. */
static int label_of_link(const Problem *problem, const Plan *plan, const Net *net, int link,
                         const Pins *own)
{
    int class = net->chain.at[link].class, stride = 1;
    Pins pins = *own;
    pins.order = plan->zigzag ? ORDER_ZIGZAG : ORDER_IDENTITY;
    VariantKey key = key_of_pins(&pins);
    key.spread.routed = plan_is_routed(plan, net);
    key.spread.runs = net->runs;
    for (int a = 0; a < plan->mesh.n; a++) {
        stride *= plan->mesh.atom[a].extent;
        key.spread.ends.at[key.spread.ends.n++] = stride;
    }
    Width *width = width_new(problem->arena, problem->diag, problem, &key.spread);
    int n = width ? width_labels(problem->arena, width, &key)->n : 0;
    for (key.block = 0; n > 1 && key.block < n; key.block++) {
        const Variant *variant = variant_solve(problem->arena, problem->diag, width, &key);
        if (variant && plan_has_class(problem->arena, plan, net, class, variant,
                                      problem->net->chain.at[link].class))
            return key.block;
    }
    return NONE;
}

/* ---- ranges ---- */

/* What pins of one link need not say: it follows from those of all, or means nothing there. */
static void settle(const Pins *all, const Net *net, int link, Pins *own)
{
    const Graph *graph = net->classes.at[net->chain.at[link].class];
    if (own->tp == 1 || graph->chain_out == NONE)
        own->sp = all->sp;
    if (own->dp * own->cp == 1) {
        own->zero = all->zero;
        own->shard = all->shard;
    }
    if (own->cp_by < 0) {
        own->cp_by = all->cp_by;
        own->cp_heads = all->cp_heads;
    }
    own->tp_by = own->tp_by < 0 ? all->tp_by : own->tp_by;
    if (own->etp == (all->etp != all->tp ? all->etp : own->tp))
        own->etp = all->etp;
    if (!own->again && !own->recompute && all->again && !names_in_graph(net, graph, all->again))
        own->again = all->again;
}

/* The pins in which they differ. */
static Pins difference(const Pins *all, const Pins *own)
{
    Pins left = pins_none();
    bool share = own->zero != all->zero || own->shard != all->shard;
    bool again =
        own->recompute != all->recompute ||
        (own->again || all->again ? !own->again || !all->again || !str_eq(own->again, all->again)
                                  : false);
    left.tp = own->tp != all->tp ? own->tp : -1;
    left.cp = own->cp != all->cp ? own->cp : -1;
    left.dp = own->dp != all->dp ? own->dp : -1;
    left.tp_by = own->tp_by != all->tp_by ? own->tp_by : -1;
    left.cp_by = own->cp_by != all->cp_by ? own->cp_by : -1;
    left.cp_heads = own->cp_heads != all->cp_heads ? own->cp_heads : -1;
    left.ep = own->ep != all->ep ? own->ep : -1;
    left.etp = own->etp != all->etp ? own->etp : -1;
    left.zero = share ? own->zero : -1;
    left.shard = share && own->shard != all->shard ? own->shard : -1;
    for (int k = 0; k < KEPT_COUNT; k++)
        left.home[k] = own->home[k] != all->home[k] ? own->home[k] : -1;
    left.sp = own->sp != all->sp ? own->sp : -1;
    left.block = own->block != all->block ? own->block : -1;
    left.recompute = again ? own->recompute : -1;
    left.again = again ? own->again : NULL;
    return left;
}

/* The layer whose pins most others have, of those with the plan's own roles and homes; NONE: there
 * is none.
 */
static int usual_link(const Plan *plan, const Net *net)
{
    int best = NONE, most = 0;
    for (int i = 0; i < net->chain.n; i++) {
        int class = net->chain.at[i].class, links = 0;
        bool inner = i > 0 && i < net->chain.n - 1;
        for (int k = 1; k < net->chain.n - 1; k++)
            links += net->chain.at[k].class == class;
        const ClassPlan *at = &plan->class[class];
        if (!at->mesh && !at->cut && (inner ? links : 0) >= (best == NONE ? 0 : most + 1)) {
            best = i;
            most = inner ? links : 0;
        }
    }
    return best;
}

enum { UNKNOWN = -2 }; /* label */

void parts_say(const Plan *plan, const Net *net, Pins *ret)
{
    Arena *scratch = arena_new("say");
    Problem problem;
    bool read = read_problem(scratch, plan, &problem);
    int links = net->chain.n, usual = usual_link(plan, net);
    if (usual != NONE) {
        Pins own = pins_of_class(plan, net, net->chain.at[usual].class);
        ret->cp_by = own.cp_by >= 0 ? own.cp_by : ret->cp_by;
        ret->sp = own.sp;
        ret->zero = own.zero;
        ret->shard = own.shard;
        ret->recompute = own.recompute;
        ret->again = own.again;
        ret->block = read ? label_of_link(&problem, plan, net, usual, ret) : NONE;
    }
    PinRange *range = ARENA_ARRAY(plan->arena, PinRange, links);
    int *label = ARENA_ARRAY(scratch, int, net->classes.n);
    for (int c = 0; c < net->classes.n; c++)
        label[c] = UNKNOWN;
    for (int i = 0; i < links; i++) {
        int class = net->chain.at[i].class;
        Pins own = pins_of_class(plan, net, class);
        settle(ret, net, i, &own);
        bool end = i == 0 || i == links - 1;
        if (label[class] == UNKNOWN)
            label[class] = end || !read ? ret->block : label_of_link(&problem, plan, net, i, &own);
        own.block = label[class];
        PinRange at = {.begin = i - 1, .end = i - 1, .pins = difference(ret, &own)};
        if (end)
            at.begin = at.end = i == 0 ? RANGE_FIRST : RANGE_LAST;
        PinRange *before = ret->ranges ? &range[ret->ranges - 1] : NULL;
        PinRange none = {.begin = at.begin, .end = at.end, .pins = pins_none()}, like = at;
        if (str_eq(pin_range_text(scratch, &at), pin_range_text(scratch, &none)))
            continue;
        if (before && !end && before->begin >= 0 && before->end == i - 2) {
            like.begin = before->begin;
            like.end = before->end;
            if (str_eq(pin_range_text(scratch, before), pin_range_text(scratch, &like))) {
                before->end = i - 1;
                continue;
            }
        }
        range[ret->ranges++] = at;
    }
    ret->range = range;
    arena_free(scratch);
}
