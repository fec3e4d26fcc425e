/* eval_net.c - the oracle: a whole chain, forward and backward, with a buffer of its own for every
 * value. */
#include <math.h>
#include <string.h>

#include "ir/eval.h"

static const Value *param_value(const Net *net, int i)
{
    const Graph *graph = net->classes.at[net->params.at[i].class];
    return &graph->values.at[graph->params.at[net->params.at[i].param].value];
}

int64_t eval_param_elements(const Net *net, int i)
{
    return value_elements(net, param_value(net, i));
}

bool eval_param_decays(const Net *net, int i)
{
    const NetParam *param = &net->params.at[i];
    return net->classes.at[param->class]->params.at[param->param].decay;
}

double eval_param_rate(const Net *net, int i)
{
    const NetParam *param = &net->params.at[i];
    return net->classes.at[param->class]->params.at[param->param].rate;
}

/* Which NetParam a parameter of a link is. */
static int **find_uses(const Net *net, Arena *arena)
{
    int **use = ARENA_ARRAY(arena, int *, net->chain.n);
    for (int l = 0; l < net->chain.n; l++)
        use[l] = ARENA_ARRAY(arena, int, net->classes.at[net->chain.at[l].class]->params.n);
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        for (int u = 0; u < param->uses; u++)
            use[param->link[u]][param->use_param[u]] = i;
    }
    return use;
}

/* Runs the nodes of one segment. A value's buffer appears when it is made. */
static void run_segment(const Net *net, const Graph *graph, Segment seg, double **value,
                        const EvalDraw *draw, Arena *arena)
{
    static const int64_t origin[MAX_LETTERS] = {0};
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (node->seg != seg)
            continue;
        const double *in[MAX_IN] = {0};
        double *out[MAX_OUT] = {0};
        int64_t extent[MAX_LETTERS] = {0};
        for (int i = 0; i < node->ins; i++)
            in[i] = value[node->in[i]];
        for (int o = 0; o < node->outs; o++)
            out[o] = value[node->out[o]] =
                ARENA_ARRAY(arena, double, value_elements(net, &graph->values.at[node->out[o]]));
        for (int l = 0; l < node->sig.letters; l++)
            extent[l] = letter_extent(net, node, l);
        eval_node(net, graph, node, in, out, extent, origin, draw);
    }
}

/* Inputs are only read: the buffers of parameters and data are the caller's. */
static void bind(double **value, ValueId id, const double *data)
{
    if (id != NONE)
        value[id] = (double *)(uintptr_t)data;
}

static void add_gradients(const Net *net, const Graph *graph, const int *use, double *const *value,
                          double *const *grad)
{
    for (int p = 0; p < graph->params.n; p++) {
        ValueId id = graph->params.at[p].grad;
        if (id == NONE)
            continue;
        int64_t n = value_elements(net, &graph->values.at[id]);
        for (int64_t i = 0; i < n; i++)
            grad[use[p]][i] += value[id][i];
    }
}

static void run_batch(const Net *net, const double *const *param, const EvalBatch *batch,
                      int *const *use, double *const *grad, double *losses, Arena *arena)
{
    double ***value = ARENA_ARRAY(arena, double **, net->chain.n);
    const double *handed = NULL;
    for (int l = 0; l < net->chain.n; l++) {
        const Graph *graph = net->classes.at[net->chain.at[l].class];
        value[l] = ARENA_ARRAY(arena, double *, graph->values.n);
        for (int d = 0; d < DATA_COUNT; d++)
            bind(value[l], graph->data[d], batch->data[d]);
        for (int p = 0; p < graph->params.n; p++)
            bind(value[l], graph->params.at[p].value, param[use[l][p]]);
        bind(value[l], graph->chain_in, handed);
        EvalDraw draw = {batch->seed, l, batch->sample, batch->evaluates};
        run_segment(net, graph, SEG_FORWARD, value[l], &draw, arena);
        handed = graph->chain_out == NONE ? NULL : value[l][graph->chain_out];
        for (int k = 0; k < graph_losses(graph); k++)
            losses[k] += value[l][graph_loss(graph, k)][0];
    }
    const double *back = NULL;
    for (int l = net->chain.n - 1; grad && l >= 0; l--) {
        const Graph *graph = net->classes.at[net->chain.at[l].class];
        bind(value[l], graph->grad_in, back);
        EvalDraw draw = {batch->seed, l, batch->sample, batch->evaluates};
        run_segment(net, graph, SEG_BACKWARD, value[l], &draw, arena);
        back = graph->grad_out == NONE ? NULL : value[l][graph->grad_out];
        add_gradients(net, graph, use[l], value[l], grad);
    }
}

static void run_net(const Net *net, const double *const *param, const EvalBatch *batch,
                    int micro_batches, double *const *grad, double losses[1 + MOST_AHEAD])
{
    Arena *keep = arena_new("eval uses"), *arena = arena_new("eval values");
    int **use = find_uses(net, keep);
    Net plain = *net;
    plain.runs = 0;
    for (int i = 0; grad && i < net->params.n; i++)
        memset(grad[i], 0, (size_t)eval_param_elements(net, i) * sizeof(double));
    for (int mb = 0; mb < micro_batches; mb++) {
        run_batch(&plain, param, &batch[mb], use, grad, losses, arena);
        arena_reset(arena);
    }
    arena_free(arena);
    arena_free(keep);
}

double eval_net(const Net *net, const double *const *param, const EvalBatch *batch,
                int micro_batches, double *const *grad)
{
    double losses[1 + MOST_AHEAD] = {0};
    run_net(net, param, batch, micro_batches, grad, losses);
    return losses[0];
}

void eval_net_losses(const Net *net, const double *const *param, const EvalBatch *batch,
                     int micro_batches, double *ret)
{
    double losses[1 + MOST_AHEAD] = {0};
    run_net(net, param, batch, micro_batches, NULL, losses);
    memcpy(ret, losses, (size_t)net_losses(net) * sizeof *ret);
}

/* What one matrix of a parameter's stack becomes: the step's graph, node by node. */
static void step_matrix(const Graph *step, double *const operand[MATRIX_OPERANDS])
{
    Arena *arena = arena_new("matrix");
    double **value = ARENA_ARRAY(arena, double *, step->values.n);
    for (int p = 0; p < MATRIX_OPERANDS; p++)
        value[step->params.at[p].value] = operand[p];
    run_segment(step->net, step, SEG_BACKWARD, value, NULL, arena);
    for (int p = 0; p < MATRIX_OPERANDS; p++) {
        ValueId made = step->params.at[p].grad;
        if (made != NONE)
            memcpy(operand[p], value[made],
                   (size_t)value_elements(step->net, &step->values.at[made]) * sizeof(double));
    }
    arena_free(arena);
}

/* All matrices of a parameter; false when it has none that the job moves so. */
static bool step_matrices(const Net *net, int i, const EvalAdam *adam, double lr, double coef,
                          double *param, double *m, const double *grad)
{
    const NetParam *info = &net->params.at[i];
    const Graph *graph = net->classes.at[info->class];
    MatrixShape shape;
    if (adam->muon.steps == 0 || !param_is_matrix(graph, info->param, &shape))
        return false;
    Arena *arena = arena_new("matrices");
    const Graph *step = matrix_step(arena, net, graph, info->param, &adam->muon);
    int64_t each = value_elements(step->net, &step->values.at[step->params.at[0].value]);
    double decay = adam->decay;
    for (int64_t at = 0; at < eval_param_elements(net, i); at += each) {
        double *operand[MATRIX_OPERANDS] = {param + at, m + at, (double *)(uintptr_t)(grad + at),
                                            &coef,      &lr,    &decay};
        step_matrix(step, operand);
    }
    arena_free(arena);
    return true;
}

double eval_step(const Net *net, const EvalAdam *adam, double lr, int64_t step,
                 double *const *param, double *const *m, double *const *v,
                 const double *const *grad)
{
    double square = 0;
    for (int i = 0; i < net->params.n; i++) {
        for (int64_t e = 0; eval_param_rate(net, i) == 0 && e < eval_param_elements(net, i); e++)
            square += grad[i][e] * grad[i][e];
    }
    double norm = sqrt(square);
    double coef = adam->clip > 0 ? adam->clip / (norm + 1e-6) : 1;
    coef = coef > 1 ? 1 : coef;
    double c1 = 1 - pow(adam->beta1, (double)step), c2 = 1 - pow(adam->beta2, (double)step);
    for (int i = 0; i < net->params.n; i++) {
        double decay = eval_param_decays(net, i) ? adam->decay : 0, rate = eval_param_rate(net, i);
        for (int64_t e = 0; rate > 0 && e < eval_param_elements(net, i); e++)
            param[i][e] -= adam->linear     ? rate * grad[i][e]
                           : grad[i][e] > 0 ? rate
                           : grad[i][e] < 0 ? -rate
                                            : 0;
        if (rate > 0 || step_matrices(net, i, adam, lr, coef, param[i], m[i], grad[i]))
            continue;
        for (int64_t e = 0; e < eval_param_elements(net, i); e++) {
            double g = grad[i][e] * coef;
            m[i][e] = adam->beta1 * m[i][e] + (1 - adam->beta1) * g;
            v[i][e] = adam->beta2 * v[i][e] + (1 - adam->beta2) * g * g;
            param[i][e] *= 1 - lr * decay;
            param[i][e] -= lr * (m[i][e] / c1) / (sqrt(v[i][e] / c2) + adam->eps);
        }
    }
    return norm;
}
