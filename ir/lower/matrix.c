/* matrix.c - the step of a whole matrix: solved, lowered. */
#include "ir/lower/matrix.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/link.h"
#include "ir/lower/roofline.h"
#include "ir/lower/solve.h"

bool matrix_key(const Net *net, const Graph *graph, int param, const Placement *home,
                const Mesh *mesh, const Job *job, MatrixKey *ret_key, int64_t *ret_count,
                int64_t *ret_elements)
{
    MatrixShape shape;
    if (job->muon.steps == 0 || !param_is_matrix(graph, param, &shape))
        return false;
    const Value *value = &graph->values.at[graph->params.at[param].value];
    memset(ret_key, 0, sizeof *ret_key);
    ret_key->rows = shape.rows;
    ret_key->cols = shape.cols;
    *ret_count = *ret_elements = 1;
    for (int a = 0; a < value->axes; a++) {
        int64_t local = place_local(mesh, net, value, home, a);
        if (a < shape.stack) {
            *ret_count *= local;
            continue;
        }
        *ret_elements *= local;
        ret_key->extent[a - shape.stack] = net->dims.at[value->dim[a]].extent;
        ret_key->shard[a - shape.stack] = home->shard[a];
    }
    return true;
}

/* ---- choices ---- */

static int64_t step_node_ns(const void *roofline, const Graph *graph, const Node *node,
                            const Placement *in, const Placement *out)
{
    return node_ns(roofline, graph, node, in, out);
}

static int64_t state_bytes(const void *roofline, const Graph *graph, int param,
                           const Placement *home)
{
    const Roofline *roof = roofline;
    return dtype_bytes(roof->recipe->gradient) *
           place_elements(roof->mesh, roof->net, &graph->values.at[graph->params.at[param].value],
                          home);
}

static bool solve(Arena *arena, const Graph *graph, const ClassPlan *plan, AtomSet width,
                  const Roofline *roof, const MovePrice *moves, Solution *ret)
{
    const Placement **home = ARENA_ARRAY(arena, const Placement *, MATRIX_OPERANDS);
    for (int p = 0; p < MATRIX_OPERANDS; p++)
        home[p] = &plan->home[p];
    const SolveModel model = {roof, step_node_ns, state_bytes, *moves};
    const SolveSetup setup = {.net = graph->net,
                              .graph = graph,
                              .mesh = roof->mesh,
                              .width = width,
                              .model = &model,
                              .micro_batches = 1,
                              .live = 1,
                              .home = home};
    Solver *solver = solver_new(arena, &setup);
    return solver && solver_at(solver, 1, 0, ret);
}

static void fill_homes(const MatrixKey *key, ClassPlan *plan)
{
    for (int p = 0; p < MATRIX_COEF; p++)
        for (int a = 0; a < key->rows + key->cols; a++)
            plan->home[p].shard[a] = key->shard[a];
}

/* Rounds are alike: two are solved, the first stands for all but the last. */
static void fill_choices(const Graph *graph, const Graph *few, const Muon *muon,
                         const Muon *short_muon, const Solution *solution, ClassPlan *plan)
{
    int rounds = muon->steps, kept = short_muon->steps;
    int each = rounds == kept ? 0 : (graph->nodes.n - few->nodes.n) / (rounds - kept);
    int head = few->nodes.n - 1 - kept * each;
    for (int n = 0; n < graph->nodes.n; n++) {
        int from = n;
        if (each > 0 && n >= head) {
            int left = graph->nodes.n - 1 - n; /* nodes behind it */
            int round = left == 0 ? rounds : (n - head) / each;
            from = left == 0             ? few->nodes.n - 1
                   : round == rounds - 1 ? head + (kept - 1) * each + (n - head) % each
                                         : head + (n - head) % each;
        }
        plan->choice[n] = solution->plan.choice[from];
    }
}

AtomSet matrix_atoms(const MatrixKey *key)
{
    AtomSet atoms = 0;
    for (int a = 0; a < key->rows + key->cols; a++)
        atoms |= list_set(&key->shard[a]);
    return atoms;
}

/* Those who cut a matrix are the width of its step, whatever they do in a layer; those that its
 * home lists behind the others, though they are no minor atoms, are lent to it (place_node lists
 * lent atoms last). */
static const Mesh *step_mesh(Arena *arena, const Mesh *ranks, const MatrixKey *key)
{
    Mesh *mesh = ARENA_NEW(arena, Mesh);
    *mesh = *ranks;
    for (int a = 0; a < key->rows + key->cols; a++) {
        const AtomList *list = &key->shard[a];
        bool lent = false;
        for (int i = 0; i < list->n; i++) {
            lent = lent || (i > 0 && list->at[i] > list->at[i - 1]);
            mesh->atom[list->at[i]].role = lent ? ROLE_DP : ROLE_TP;
        }
    }
    return mesh;
}

Body *matrix_body(Arena *arena, const Net *net, const Graph *graph, int param, const MatrixKey *key,
                  const Mesh *ranks, const Recipe *recipe, const Cluster *cluster, const Job *job)
{
    Graph *step = matrix_step(arena, net, graph, param, &job->muon);
    ClassPlan *plan = ARENA_NEW(arena, ClassPlan);
    class_plan_alloc(arena, step, plan);
    fill_homes(key, plan);
    MovePrice moves = link_price(cluster, recipe);
    moves.element_bytes = dtype_bytes(recipe->gradient);
    AtomSet width = matrix_atoms(key);
    const Mesh *mesh = step_mesh(arena, ranks, key);
    if (width != 0) {
        Arena *scratch = arena_new("matrix");
        Muon few = job->muon;
        few.steps = few.steps > 2 ? 2 : few.steps;
        Graph *small = matrix_step(scratch, net, graph, param, &few);
        ClassPlan homes;
        class_plan_alloc(scratch, small, &homes);
        fill_homes(key, &homes);
        Roofline roof = {cluster, small->net, mesh, recipe};
        Solution solution;
        if (!solve(scratch, small, &homes, width, &roof, &moves, &solution))
            BUG("no placement of the step of %s", graph->params.at[param].name);
        fill_choices(step, small, &job->muon, &few, &solution, plan);
        arena_free(scratch);
    }
    return body_lower(arena, step->net, step, plan, mesh, recipe, &moves, false);
}

int64_t matrix_unit(int64_t count, int64_t elements)
{
    return count == 1 ? (elements + 15) / 16 * 16 : elements;
}
