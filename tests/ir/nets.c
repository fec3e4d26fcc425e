/* nets.c - nets for tests. */
#include "tests/ir/nets.h"

#include <math.h>
#include <string.h>

#include "ir/base/rng.h"

Net *net_from(Arena *arena, const char *text, int64_t batch, int64_t sequence, int64_t pad)
{
    Diag *diag = diag_new(arena);
    JsonDoc *doc = json_parse(arena, diag, "model.json", text, strlen(text));
    Net *net = doc ? model_read(arena, diag, json_root(doc), batch, sequence, pad) : NULL;
    json_doc_free(doc);
    if (!net) {
        diag_print(diag, stderr, false);
        fail_msg("the model does not read");
    }
    return net;
}

double **net_zero_params(Arena *arena, const Net *net)
{
    double **param = ARENA_ARRAY(arena, double *, net->params.n);
    for (int i = 0; i < net->params.n; i++)
        param[i] = ARENA_ARRAY(arena, double, eval_param_elements(net, i));
    return param;
}

double **net_random_params(Arena *arena, const Net *net, uint64_t seed)
{
    double **param = net_zero_params(arena, net);
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *use = &net->params.at[i];
        double mean = net->classes.at[use->class]->params.at[use->param].init == INIT_ONES;
        for (int64_t e = 0; e < eval_param_elements(net, i); e++)
            param[i][e] = mean + 0.5 * rng_normal(seed, (uint64_t)i, (uint64_t)e);
    }
    return param;
}

EvalBatch *net_random_batches(Arena *arena, const Net *net, int micro_batches, uint64_t seed)
{
    int64_t tokens = net->dims.at[net->batch].extent * net->dims.at[net->sequence].extent;
    DimId words = net_dim(net, "v");
    double total = 0;
    double ***data = ARENA_ARRAY(arena, double **, micro_batches);
    EvalBatch *batch = ARENA_ARRAY(arena, EvalBatch, micro_batches);
    for (int mb = 0; mb < micro_batches; mb++) {
        data[mb] = ARENA_ARRAY(arena, double *, DATA_COUNT);
        for (int d = 0; d < DATA_COUNT; d++) {
            data[mb][d] = ARENA_ARRAY(arena, double, tokens);
            for (int64_t i = 0; i < tokens; i++) {
                uint64_t r = rng_u64(seed, (uint64_t)(mb * DATA_COUNT + d), (uint64_t)i);
                data[mb][d][i] = data_is_weight(d)
                                     ? (double)(r % 5)
                                     : (double)(r % (uint64_t)net->dims.at[words].used);
                total += d == DATA_WEIGHT ? data[mb][d][i] : 0;
            }
            batch[mb].data[d] = data[mb][d];
        }
    }
    for (int mb = 0; mb < micro_batches; mb++) {
        for (int64_t i = 0; i < tokens; i++)
            for (int ahead = 0; ahead <= MOST_AHEAD; ahead++)
                data[mb][data_weight(ahead)][i] /= total;
    }
    return batch;
}

double **graph_random_inputs(Arena *arena, const Graph *graph, uint64_t seed)
{
    const Net *net = graph->net;
    double **value = ARENA_ARRAY(arena, double *, graph->values.n);
    for (int v = 0; v < graph->values.n; v++) {
        const Value *x = &graph->values.at[v];
        if (x->kind == VALUE_NODE)
            continue;
        int64_t n = value_elements(net, x);
        value[v] = ARENA_ARRAY(arena, double, n);
        for (int64_t i = 0; i < n; i++)
            value[v][i] = x->number == NUM_INDEX
                              ? (double)(rng_u64(seed, (uint64_t)v, (uint64_t)i) % 5)
                              : rng_normal(seed, (uint64_t)v, (uint64_t)i);
    }
    return value;
}

void graph_run(Arena *arena, const Graph *graph, Segment seg, double **value)
{
    const int64_t origin[MAX_LETTERS] = {0};
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (node->seg != seg)
            continue;
        const double *in[MAX_IN] = {0};
        double *out[MAX_OUT] = {0};
        int64_t extent[MAX_LETTERS] = {0};
        for (int l = 0; l < node->sig.letters; l++)
            extent[l] = letter_extent(graph->net, node, l);
        for (int i = 0; i < node->ins; i++)
            in[i] = value[node->in[i]];
        for (int o = 0; o < node->outs; o++)
            out[o] = value[node->out[o]] = ARENA_ARRAY(
                arena, double, value_elements(graph->net, &graph->values.at[node->out[o]]));
        eval_node(graph->net, graph, node, in, out, extent, origin, NULL);
    }
}

void assert_near(double a, double b, double scale, double tolerance, const char *what)
{
    if (fabs(a - b) <= tolerance * scale)
        return;
    fail_msg("%s: %.17g against %.17g, off by %.3g of %.3g", what, a, b, fabs(a - b), scale);
}
