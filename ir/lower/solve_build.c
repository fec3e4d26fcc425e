/* solve_build.c - the factors of the block solver: what every choice costs alone and in pairs. */
#include <string.h>

#include "ir/lower/solve_in.h"

static const Label forbidden = {.micro_ns = COST_MAX};

bool label_forbidden(const Label *label)
{
    return label->micro_ns >= COST_MAX;
}

Label label_add(Label a, Label b)
{
    return (Label){
        .micro_ns = cost_add(a.micro_ns, b.micro_ns),
        .step_ns = cost_add(a.step_ns, b.step_ns),
        .saved_bytes = cost_add(a.saved_bytes, b.saved_bytes),
        .state_bytes = cost_add(a.state_bytes, b.state_bytes),
        .transient_bytes =
            a.transient_bytes > b.transient_bytes ? a.transient_bytes : b.transient_bytes,
    };
}

int64_t label_ns(const SolveSetup *setup, const Label *label)
{
    return cost_add(cost_times(label->micro_ns, setup->micro_batches), label->step_ns);
}

int64_t label_bytes(const SolveSetup *setup, const Label *label)
{
    return cost_add(cost_times(label->saved_bytes, setup->live), label->state_bytes);
}

/* ---- variables that give or take a value ---- */

/* What one variable says about a value: an index into its spot per value of the variable. */
typedef struct Tie {
    int var; /* NONE: always index[0] */
    int n;
    int16_t *index;
} Tie;

typedef VEC(Tie) TieList;

static Tie tie_places(Problem *problem, ValueId value, int var)
{
    const Var *v = &problem->vars.at[var];
    Tie tie = {var, v->n, ARENA_ARRAY(problem->arena, int16_t, v->n)};
    for (int i = 0; i < v->n; i++)
        tie.index[i] = (int16_t)spot_index(problem, value, &v->place[i]);
    return tie;
}

static Tie tie_operand(Problem *problem, NodeId node, int operand, bool output)
{
    int var = problem->node_var[node];
    const Var *v = &problem->vars.at[var];
    Tie tie = {var, v->n, ARENA_ARRAY(problem->arena, int16_t, v->n)};
    for (int i = 0; i < v->n; i++)
        tie.index[i] = output ? v->option[i].out[operand] : v->option[i].in[operand];
    return tie;
}

/* Where a value comes from. */
static Tie value_source(Problem *problem, ValueId id)
{
    const Value *value = &problem->setup.graph->values.at[id];
    switch (value->kind) {
    case VALUE_NODE:
        return tie_operand(problem, value->made, value->out, true);
    case VALUE_PARAM:
        return tie_places(problem, id, problem->home_var[value->out]);
    case VALUE_CHAIN_IN:
    case VALUE_GRAD_IN:
        return tie_places(problem, id, problem->boundary_var);
    default:
        break;
    }
    Tie tie = {NONE, 1, ARENA_ARRAY(problem->arena, int16_t, 1)};
    tie.index[0] = (int16_t)problem->spot[id].whole;
    return tie;
}

static Segment value_segment(const Graph *graph, ValueId id)
{
    const Value *value = &graph->values.at[id];
    if (value->kind == VALUE_NODE)
        return graph->nodes.at[value->made].seg;
    return value->kind == VALUE_GRAD_IN ? SEG_BACKWARD : SEG_FORWARD;
}

static void value_uses(Problem *problem, ValueId id, TieList *forward, TieList *backward)
{
    const Graph *graph = problem->setup.graph;
    bool born_late = value_segment(graph, id) == SEG_BACKWARD;
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        for (int k = 0; k < node->ins; k++) {
            if (node->in[k] != id)
                continue;
            Tie tie = tie_operand(problem, n, k, false);
            if (node->seg == SEG_FORWARD)
                vec_push(problem->arena, forward) = tie;
            if (node->seg == SEG_BACKWARD || problem->again[n])
                vec_push(problem->arena, backward) = tie;
        }
    }
    if (id == graph->chain_out)
        vec_push(problem->arena, born_late ? backward : forward) =
            tie_places(problem, id, problem->boundary_var);
    if (id == graph->grad_out)
        vec_push(problem->arena, backward) = tie_places(problem, id, problem->boundary_var);
}

/* ---- factors ---- */

static Factor *factor_new(Problem *problem, int a, int b)
{
    Factor *factor = &vec_push(problem->arena, &problem->factors);
    int64_t size = problem->vars.at[a].n;
    *factor = (Factor){.n = b == NONE ? 1 : 2, .var = {a, b}};
    if (b != NONE)
        size *= problem->vars.at[b].n;
    factor->table = ARENA_ARRAY(problem->arena, Label, size);
    return factor;
}

static int64_t spot_path(Problem *problem, ValueId id, int from, int to)
{
    Spot *spot = &problem->spot[id];
    const Value *value = &problem->setup.graph->values.at[id];
    int cell = from * spot->places.n + to;
    Path path;
    if (spot->path[cell] >= 0)
        return spot->path[cell];
    bool found =
        path_find(problem->paths, value, &spot->places.at[from], &spot->places.at[to], &path);
    spot->path[cell] = found ? path.cost : COST_MAX;
    return spot->path[cell];
}

static bool spot_view(const Problem *problem, ValueId id, int have, int want)
{
    const Spot *spot = &problem->spot[id];
    return place_is_view(&spot->places.at[have], &spot->places.at[want]);
}

/* The copies there are on the way to a set: those asked for, and what moves left behind in between.
 */
typedef struct Made {
    int n;
    Placement at[1 + MAX_SET * MAX_MOVES];
} Made;

/* The cheapest way to make all copies of a set, each from the nearest copy there is: all orders are
 * tried. */
static int64_t deliver_order(Problem *problem, ValueId id, const Made *made, const CopySet *want,
                             unsigned done)
{
    const Value *value = &problem->setup.graph->values.at[id];
    int64_t best = done + 1 == 1u << want->n ? 0 : COST_MAX;
    for (int i = 0; i < want->n; i++) {
        const Placement *to = &problem->spot[id].places.at[want->at[i]];
        Path path;
        int from;
        if ((done >> i & 1) ||
            !path_nearest(problem->paths, value, made->at, made->n, to, &from, &path))
            continue;
        Made next = *made;
        for (int k = 0; k < path.n; k++)
            next.at[next.n++] = path.after[k];
        int64_t rest = deliver_order(problem, id, &next, want, done | 1u << i);
        best = cost_add(path.cost, rest) < best ? cost_add(path.cost, rest) : best;
    }
    return best;
}

static int64_t deliver_cost(Problem *problem, ValueId id, int have, const CopySet *want)
{
    if (want->n == 1)
        return spot_path(problem, id, have, want->at[0]);
    Made made = {.n = 1, .at = {problem->spot[id].places.at[have]}};
    return deliver_order(problem, id, &made, want, 0);
}

/* Delivery of a set from one copy; what coexists is all of them. */
static Label deliver_label(Problem *problem, ValueId id, int have, const CopySet *want)
{
    const Spot *spot = &problem->spot[id];
    Label label = {.micro_ns = deliver_cost(problem, id, have, want)};
    bool listed = false;
    for (int i = 0; i < want->n; i++) {
        listed |= want->at[i] == have;
        label.transient_bytes += spot->size[want->at[i]];
    }
    label.transient_bytes += listed ? 0 : spot->size[have];
    return label;
}

static bool copies_serve(const Problem *problem, ValueId id, const CopySet *set, int want)
{
    for (int i = 0; i < set->n; i++)
        if (spot_view(problem, id, set->at[i], want))
            return true;
    return false;
}

/* Every set of copies, up to a size, in which none is a view of another. */
static void copies_collect(Problem *problem, ValueId id, const bool *member, int cap)
{
    Var *var = &problem->vars.at[problem->vars.n - 1];
    int n = problem->spot[id].places.n;
    VEC(CopySet) list = {0};
    for (int size = 1, first = 0; size <= cap; size++) {
        int before = list.n;
        for (int i = size == 1 ? -1 : first; i < (size == 1 ? 0 : before); i++) {
            CopySet base = {0};
            if (i >= 0)
                base = list.at[i];
            for (int p = base.n > 0 ? base.at[base.n - 1] + 1 : 0; p < n; p++) {
                bool apart = member[p];
                for (int k = 0; k < base.n && apart; k++)
                    apart = !spot_view(problem, id, base.at[k], p) &&
                            !spot_view(problem, id, p, base.at[k]);
                if (!apart)
                    continue;
                CopySet set = base;
                set.at[set.n++] = (int16_t)p;
                vec_push(problem->arena, &list) = set;
            }
        }
        first = before;
    }
    var->copies = list.at;
    var->n = list.n;
}

/* The variable of the copies of a value in a segment. A set may hold what a use needs, what is
 * made, or the whole. */
static int copies_var(Problem *problem, ValueId id, Segment seg, const TieList *uses,
                      const TieList *later, const Tie *source)
{
    Spot *spot = &problem->spot[id];
    bool *member = ARENA_ARRAY(problem->arena, bool, spot->places.n);
    int members = 0;
    member[spot->whole] = true;
    for (int u = 0; u < uses->n; u++)
        for (int i = 0; i < uses->at[u].n; i++)
            member[uses->at[u].index[i]] = true;
    for (int i = 0; i < source->n; i++)
        member[source->index[i]] = true;
    for (int u = 0; later != NULL && u < later->n; u++)
        for (int i = 0; i < later->at[u].n; i++)
            if ((spot->places.at[later->at[u].index[i]].partial &
                 (problem->setup.width | problem->setup.rows)) == 0)
                member[later->at[u].index[i]] = true;
    for (int i = 0; i < spot->places.n; i++)
        members += member[i];
    vec_push(problem->arena, &problem->vars) = (Var){.kind = VAR_COPIES, .id = id, .seg = seg};
    copies_collect(problem, id, member, members <= 5 ? MAX_SET : 2);
    int var = problem->vars.n - 1;
    for (int u = 0; u < uses->n; u++) {
        const Tie *use = &uses->at[u];
        Factor *factor = factor_new(problem, var, use->var);
        for (int i = 0; i < problem->vars.at[var].n; i++)
            for (int j = 0; j < use->n; j++)
                if (!copies_serve(problem, id, &problem->vars.at[var].copies[i], use->index[j]))
                    factor->table[i * use->n + j] = forbidden;
    }
    return var;
}

/* Copies made from what the source gives, with a price for keeping that. */
static void deliver_factor(Problem *problem, ValueId id, int copies, const Tie *source, bool kept)
{
    Factor *factor = factor_new(problem, copies, source->var);
    const Var *var = &problem->vars.at[copies];
    for (int i = 0; i < var->n; i++) {
        for (int j = 0; j < source->n; j++) {
            Label *label = &factor->table[i * source->n + j];
            *label = deliver_label(problem, id, source->index[j], &var->copies[i]);
            if (kept)
                label->saved_bytes = problem->spot[id].size[source->index[j]];
        }
    }
}

/* What is kept for backward: any copy there is, or a free view of one that nobody has to add up. */
static void saved_factors(Problem *problem, ValueId id, int forward, const Tie *source,
                          int backward)
{
    Spot *spot = &problem->spot[id];
    AtomSet width = (AtomSet)(problem->setup.width | problem->setup.rows);
    const Value *value = &problem->setup.graph->values.at[id];
    VEC(Placement) list = {0};
    for (int i = 0; i < spot->places.n; i++) /* rows that come back ask for all the choices */
        if (value->number != NUM_INDEX ||
            place_routed(problem->setup.net, value, &spot->places.at[i]) == NONE)
            vec_push(problem->arena, &list) = spot->places.at[i];
    int var = problem->vars.n;
    vec_push(problem->arena, &problem->vars) =
        (Var){.kind = VAR_SAVED, .id = id, .n = list.n, .place = list.at};
    problem->saved_var[id] = var;
    Tie tie = tie_places(problem, id, var);

    Factor *factor = factor_new(problem, var, NONE);
    for (int i = 0; i < tie.n; i++)
        factor->table[i].saved_bytes = spot->size[tie.index[i]];
    int first = forward != NONE ? forward : source->var, n = problem->vars.at[first].n;
    factor = factor_new(problem, first, var);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < tie.n; j++) {
            int want = tie.index[j], have = forward == NONE ? source->index[i] : want;
            bool partial = (spot->places.at[want].partial & width) != 0;
            bool exists = have == want;
            if (forward != NONE) {
                const CopySet *set = &problem->vars.at[forward].copies[i];
                exists = false;
                for (int k = 0; k < set->n; k++)
                    exists |= set->at[k] == want;
                exists |= !partial && copies_serve(problem, id, set, want);
            } else {
                exists |= !partial && spot_view(problem, id, have, want);
            }
            if (!exists)
                factor->table[i * tie.n + j] = forbidden;
        }
    }
    deliver_factor(problem, id, backward, &tie, false);
}

/* A weight used where it lives: every use is a free view of its home. */
static void weight_factors(Problem *problem, ValueId id, const Tie *home, const TieList *uses)
{
    for (int u = 0; u < uses->n; u++) {
        const Tie *use = &uses->at[u];
        Factor *factor = factor_new(problem, home->var, use->var);
        for (int i = 0; i < home->n; i++)
            for (int j = 0; j < use->n; j++)
                if (!spot_view(problem, id, home->index[i], use->index[j]))
                    factor->table[i * use->n + j] = forbidden;
    }
}

static void value_factors(Problem *problem, ValueId id)
{
    const SolveSetup *setup = &problem->setup;
    ValueKind kind = setup->graph->values.at[id].kind;
    TieList forward = {0}, backward = {0};
    value_uses(problem, id, &forward, &backward);
    Tie source = value_source(problem, id);
    if (kind == VALUE_PARAM && !setup->gather_weights) {
        weight_factors(problem, id, &source, &forward);
        weight_factors(problem, id, &source, &backward);
        return;
    }
    int first = NONE, later = NONE;
    bool born_late = value_segment(setup->graph, id) == SEG_BACKWARD;
    bool saved =
        kind == VALUE_NODE && !born_late && !setup->recompute && !setup->graph->values.at[id].late;
    if (forward.n > 0) {
        first = copies_var(problem, id, SEG_FORWARD, &forward, saved ? &backward : NULL, &source);
        deliver_factor(problem, id, first, &source, false);
    }
    if (backward.n == 0)
        return;
    later = copies_var(problem, id, SEG_BACKWARD, &backward, NULL, &source);
    if (saved)
        saved_factors(problem, id, first, &source, later);
    else
        deliver_factor(problem, id, later, &source, kind == VALUE_CHAIN_IN);
}

static void node_factor(Problem *problem, NodeId id)
{
    const SolveSetup *setup = &problem->setup;
    const Node *node = &setup->graph->nodes.at[id];
    const Var *var = &problem->vars.at[problem->node_var[id]];
    Factor *factor = factor_new(problem, problem->node_var[id], NONE);
    for (int i = 0; i < var->n; i++) {
        Placement in[MAX_IN], out[MAX_OUT];
        for (int k = 0; k < node->ins; k++)
            in[k] = problem->spot[node->in[k]].places.at[var->option[i].in[k]];
        for (int k = 0; k < node->outs; k++)
            out[k] = problem->spot[node->out[k]].places.at[var->option[i].out[k]];
        int64_t ns = setup->model->node_ns(setup->model->context, setup->graph, node, in, out);
        ns = turns_ns(problem, node, &var->option[i].choice, in, out, ns);
        factor->table[i].micro_ns = ns * (problem->again[id] ? 2 : 1);
    }
}

/* State, and the gradient on its way to the accumulator and, once a step, home. */
static void param_factors(Problem *problem, int param)
{
    const SolveSetup *setup = &problem->setup;
    const Param *info = &setup->graph->params.at[param];
    int home = problem->home_var[param];
    Factor *factor = factor_new(problem, home, NONE);
    for (int i = 0; i < problem->vars.at[home].n; i++)
        factor->table[i].state_bytes = setup->model->state_bytes(
            setup->model->context, setup->graph, param, &problem->vars.at[home].place[i]);
    if (info->grad == NONE)
        return;
    const Value *value = &setup->graph->values.at[info->grad];
    Tie source = value_source(problem, info->grad);
    factor = factor_new(problem, home, source.var);
    for (int i = 0; i < problem->vars.at[home].n; i++) {
        const Placement *to = &problem->vars.at[home].place[i];
        for (int j = 0; j < source.n; j++) {
            const Placement *made = &problem->spot[info->grad].places.at[source.index[j]];
            Placement kept = *to;
            kept.partial = (AtomSet)(made->partial & ~place_sharded(to));
            kept.monoid = kept.partial != 0 ? MONOID_SUM : MONOID_NONE;
            Path now, later;
            Label *label = &factor->table[i * source.n + j];
            if (path_find(problem->paths, value, made, &kept, &now) &&
                path_find(problem->paths, value, &kept, to, &later))
                *label = (Label){.micro_ns = now.cost, .step_ns = later.cost};
            else
                *label = forbidden;
        }
    }
}

/* ---- values that no assignment can use ---- */

static bool value_supported(const Problem *problem, const Factor *factor, int side, int value,
                            bool *const *dead)
{
    if (factor->n == 1)
        return !label_forbidden(&factor->table[value]);
    int other = factor->var[1 - side], n1 = problem->vars.at[factor->var[1]].n;
    for (int i = 0; i < problem->vars.at[other].n; i++) {
        int64_t cell = side == 0 ? (int64_t)value * n1 + i : (int64_t)i * n1 + value;
        if (!dead[other][i] && !label_forbidden(&factor->table[cell]))
            return true;
    }
    return false;
}

static void factor_compact(const Problem *problem, Factor *factor, bool *const *dead)
{
    int n0 = problem->vars.at[factor->var[0]].n;
    int n1 = factor->n == 1 ? 1 : problem->vars.at[factor->var[1]].n;
    int64_t at = 0;
    for (int i = 0; i < n0; i++)
        for (int j = 0; j < n1; j++)
            if (!dead[factor->var[0]][i] && (factor->n == 1 || !dead[factor->var[1]][j]))
                factor->table[at++] = factor->table[(int64_t)i * n1 + j];
}

static void var_compact(Var *var, const bool *dead)
{
    int at = 0;
    for (int i = 0; i < var->n; i++) {
        if (dead[i])
            continue;
        if (var->option != NULL)
            var->option[at] = var->option[i];
        if (var->place != NULL)
            var->place[at] = var->place[i];
        if (var->copies != NULL)
            var->copies[at] = var->copies[i];
        at++;
    }
    var->n = at;
}

/* Removes values without support until none is left; false when a variable has none. */
static bool problem_prune(Problem *problem)
{
    bool **dead = ARENA_ARRAY(problem->arena, bool *, problem->vars.n);
    for (int v = 0; v < problem->vars.n; v++)
        dead[v] = ARENA_ARRAY(problem->arena, bool, problem->vars.at[v].n);
    for (bool changed = true; changed;) {
        changed = false;
        for (int f = 0; f < problem->factors.n; f++) {
            const Factor *factor = &problem->factors.at[f];
            for (int side = 0; side < factor->n; side++) {
                int v = factor->var[side];
                for (int i = 0; i < problem->vars.at[v].n; i++) {
                    if (dead[v][i] || value_supported(problem, factor, side, i, dead))
                        continue;
                    dead[v][i] = changed = true;
                }
            }
        }
    }
    for (int f = 0; f < problem->factors.n; f++)
        factor_compact(problem, &problem->factors.at[f], dead);
    bool full = true;
    for (int v = 0; v < problem->vars.n; v++) {
        var_compact(&problem->vars.at[v], dead[v]);
        full &= problem->vars.at[v].n > 0;
    }
    return full;
}

/* ---- all of it ---- */

/* Forward nodes that run again in backward: those that backward reads, and what they read. */
static void mark_again(Problem *problem)
{
    const Graph *graph = problem->setup.graph;
    for (int n = graph->nodes.n - 1; n >= 0; n--) {
        const Node *node = &graph->nodes.at[n];
        if (node->seg != SEG_BACKWARD && !problem->again[n])
            continue;
        for (int k = 0; k < node->ins; k++) {
            NodeId made = graph->values.at[node->in[k]].made;
            bool kept = !problem->setup.recompute && !graph->values.at[node->in[k]].late;
            if (made != NONE && graph->nodes.at[made].seg == SEG_FORWARD && !kept)
                problem->again[made] = true;
        }
    }
}

static void spots_freeze(Problem *problem)
{
    const SolveSetup *setup = &problem->setup;
    for (int v = 0; v < setup->graph->values.n; v++) {
        const Value *value = &setup->graph->values.at[v];
        Spot *spot = &problem->spot[v];
        int n = spot->places.n;
        int bytes = setup->model->price.element_bytes;
        if (value->number == NUM_INDEX || (value->wide && bytes < 4))
            bytes = 4;
        spot->path = ARENA_ARRAY(problem->arena, int64_t, (int64_t)n * n);
        spot->size = ARENA_ARRAY(problem->arena, int64_t, n);
        for (int i = 0; i < n * n; i++)
            spot->path[i] = -1;
        for (int i = 0; i < n; i++)
            spot->size[i] =
                bytes * place_elements(setup->mesh, setup->net, value, &spot->places.at[i]);
    }
}

Problem *problem_new(Arena *arena, const SolveSetup *setup)
{
    const Graph *graph = setup->graph;
    Problem *problem = ARENA_NEW(arena, Problem);
    problem->arena = arena;
    problem->setup = *setup;
    problem->paths = setup->paths;
    if (!problem->paths)
        problem->paths = path_table_new(arena, setup->mesh, setup->net, &setup->model->price);
    problem->spot = ARENA_ARRAY(arena, Spot, graph->values.n + 1);
    problem->node_var = ARENA_ARRAY(arena, int, graph->nodes.n + 1);
    problem->home_var = ARENA_ARRAY(arena, int, graph->params.n + 1);
    problem->saved_var = ARENA_ARRAY(arena, int, graph->values.n + 1);
    problem->again = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    for (int v = 0; v < graph->values.n; v++)
        problem->saved_var[v] = NONE;
    if (!problem_domains(problem))
        return NULL;
    mark_again(problem);
    spots_freeze(problem);
    for (int n = 0; n < graph->nodes.n; n++)
        node_factor(problem, n);
    for (int v = 0; v < graph->values.n; v++)
        value_factors(problem, v);
    for (int p = 0; p < graph->params.n; p++)
        param_factors(problem, p);
    return problem_prune(problem) ? problem : NULL;
}

Label problem_label(const Problem *problem, const uint16_t *value)
{
    Label sum = {0};
    for (int f = 0; f < problem->factors.n; f++) {
        const Factor *factor = &problem->factors.at[f];
        int64_t cell = value[factor->var[0]];
        if (factor->n == 2)
            cell = cell * problem->vars.at[factor->var[1]].n + value[factor->var[1]];
        sum = label_add(sum, factor->table[cell]);
    }
    return sum;
}
