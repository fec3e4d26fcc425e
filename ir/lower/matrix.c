/* matrix.c - the step of a whole matrix: solved, lowered. */
#include "ir/lower/matrix.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/link.h"
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

typedef struct StepPrice {
    const Cluster *cluster;
    const Net *net;
    const Mesh *mesh;
    int element_bytes;
} StepPrice;

/* Products at the device's rate, everything else at its memory's. */
static int64_t node_ns(const void *context, const Graph *graph, const Node *node,
                       const Placement *in, const Placement *out)
{
    const StepPrice *price = context;
    const Device *device = &price->cluster->device;
    int64_t extent[MAX_LETTERS] = {0}, bytes = 0;
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool read = k < node->ins;
        const Value *value = &graph->values.at[read ? node->in[k] : node->out[k - node->ins]];
        const Placement *place = read ? &in[k] : &out[k - node->ins];
        const int8_t *letters = read ? node->sig.in[k] : node->sig.out[k - node->ins];
        for (int a = 0; a < value->axes; a++)
            extent[letters[a]] = place_local(price->mesh, price->net, value, place, a);
        bytes += price->element_bytes * place_elements(price->mesh, price->net, value, place);
    }
    int64_t ns = num_scale_up(bytes, 1000000000, device->memory_bytes_per_s);
    if (op_info[node->op].form == FORM_gemm)
        ns = num_larger(ns, num_scale_up(node_flops_local(price->net, node, extent), 1000000000,
                                         device->flops_f32));
    return ns + device->launch_ns;
}

static int64_t state_bytes(const void *context, const Graph *graph, int param,
                           const Placement *home)
{
    const StepPrice *price = context;
    return price->element_bytes * place_elements(price->mesh, price->net,
                                                 &graph->values.at[graph->params.at[param].value],
                                                 home);
}

static bool solve(Arena *arena, const Graph *graph, const ClassPlan *plan, AtomSet width,
                  const StepPrice *price, const MovePrice *moves, Solution *ret)
{
    const Placement **home = ARENA_ARRAY(arena, const Placement *, MATRIX_OPERANDS);
    for (int p = 0; p < MATRIX_OPERANDS; p++)
        home[p] = &plan->home[p];
    const SolveModel model = {price, node_ns, state_bytes, *moves};
    const SolveSetup setup = {.net = graph->net,
                              .graph = graph,
                              .mesh = price->mesh,
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

static AtomSet atoms_of(const MatrixKey *key)
{
    AtomSet atoms = 0;
    for (int a = 0; a < key->rows + key->cols; a++)
        atoms |= list_set(&key->shard[a]);
    return atoms;
}

Body *matrix_body(Arena *arena, const Net *net, const Graph *graph, int param, const MatrixKey *key,
                  const Mesh *mesh, const Recipe *recipe, const Cluster *cluster, const Job *job)
{
    Graph *step = matrix_step(arena, net, graph, param, &job->muon);
    ClassPlan *plan = ARENA_NEW(arena, ClassPlan);
    class_plan_alloc(arena, step, plan);
    fill_homes(key, plan);
    MovePrice moves = link_price(cluster, recipe);
    moves.element_bytes = dtype_bytes(recipe->gradient);
    AtomSet width = atoms_of(key);
    if (width != 0) {
        Arena *scratch = arena_new("matrix");
        Muon few = job->muon;
        few.steps = few.steps > 2 ? 2 : few.steps;
        Graph *small = matrix_step(scratch, net, graph, param, &few);
        ClassPlan homes;
        class_plan_alloc(scratch, small, &homes);
        fill_homes(key, &homes);
        StepPrice price = {cluster, small->net, mesh, dtype_bytes(recipe->gradient)};
        Solution solution;
        if (!solve(scratch, small, &homes, width, &price, &moves, &solution))
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
