/* test_eval_net.c - whole chains: gradients against finite differences, sums over micro-batches,
 * AdamW. */
#include <math.h>
#include <string.h>

#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

static double loss_at(const Net *net, double **param, const EvalBatch *batch, int micro_batches)
{
    return eval_net(net, (const double *const *)param, batch, micro_batches, NULL);
}

/* What gradients are of: the loss, and those of tiny_further beside it by their factors. */
static double objective_at(const Net *net, double **param, const EvalBatch *batch)
{
    static const double factor[1 + MOST_AHEAD] = {1, 0.3, 0.5};
    double losses[1 + MOST_AHEAD], sum = 0;
    eval_net_losses(net, (const double *const *)param, batch, 2, losses);
    for (int k = 0; k < net_losses(net); k++)
        sum += factor[k] * losses[k];
    return sum;
}

/* Central differences of fourth order: norms of small rows bend too much for the second. */
static double slope(const Net *net, double *x, double **param, const EvalBatch *batch)
{
    double keep = *x, step = 1e-4, near, far;
    *x = keep + step;
    near = objective_at(net, param, batch);
    *x = keep - step;
    near -= objective_at(net, param, batch);
    *x = keep + 2 * step;
    far = objective_at(net, param, batch);
    *x = keep - 2 * step;
    far -= objective_at(net, param, batch);
    *x = keep;
    return (8 * near - far) / (12 * step);
}

/* Every element of every parameter of a small model, or each so many-th. */
static void check_gradients(const char *text, int64_t pad, int64_t each)
{
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, text, 2, 5, pad);
    double **param = net_random_params(arena, net, 1), **grad = net_zero_params(arena, net);
    EvalBatch *batch = net_random_batches(arena, net, 2, 7);
    double loss = eval_net(net, (const double *const *)param, batch, 2, grad);
    assert_near(loss, loss_at(net, param, batch, 2), 1, 0, "loss");
    assert_true(loss > 0.5 && loss < 20);
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *use = &net->params.at[i];
        bool frozen = net->classes.at[use->class]->params.at[use->param].frozen;
        double largest = 0;
        int64_t n = eval_param_elements(net, i);
        for (int64_t e = 0; e < n; e++)
            largest = fmax(largest, fabs(grad[i][e]));
        assert_true(frozen ? largest == 0 : largest > 1e-5);
        if (frozen) /* it chooses, by steps */
            continue;
        for (int64_t e = i % each; e < n; e += each) {
            assert_near(slope(net, &param[i][e], param, batch), grad[i][e], fmax(largest, 1e-3),
                        1e-6, net->params.at[i].name);
        }
    }
    arena_free(arena);
}

static void test_llama(void **state)
{
    (void)state;
    check_gradients(tiny_llama, 1, 1);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_gradients(tiny_gpt2, 8, 1);
}

static void test_everything(void **state)
{
    (void)state;
    check_gradients(tiny_everything, 8, 1);
}

static void test_further(void **state)
{
    (void)state;
    check_gradients(tiny_further, 8, 5);
}

/* A linear model of four words and two columns, and what it says of the token after the next, by
 * hand: logits of a place from its token's row, and from that row and the row of the next token. */
static const char by_hand[] =
    "{\"format\":\"lplan-model/1\",\"name\":\"hand\",\"init_std\":0.5,"
    "\"dims\":{\"h\":2,\"v\":4,\"hh\":4},\"blocks\":{"
    "\"embed\":{\"out\":\"x\",\"ops\":[{\"op\":\"embedding\",\"in\":\"ids\",\"out\":\"x\","
    "\"rows\":\"v\",\"cols\":[\"h\"],\"table\":\"table\"}]},"
    "\"head\":{\"in\":\"x\",\"ops\":[{\"op\":\"linear\",\"in\":\"x\",\"out\":\"near\","
    "\"to\":[\"v\"],\"weight\":\"head\"},{\"op\":\"cross_entropy\",\"in\":\"near\"},"
    "{\"op\":\"embedding\",\"in\":\"ids\",\"ahead\":1,\"out\":\"e\",\"rows\":\"v\","
    "\"cols\":[\"h\"],\"table\":\"table\"},{\"op\":\"concat\",\"in\":[\"e\",\"x\"],"
    "\"dim\":\"hh\",\"parts\":[[\"h\"],[\"h\"]],\"out\":\"pair\"},"
    "{\"op\":\"linear\",\"in\":\"pair\",\"out\":\"far\",\"to\":[\"v\"],\"weight\":\"join\"},"
    "{\"op\":\"cross_entropy\",\"in\":\"far\",\"ahead\":1,\"factor\":0.25}]}},"
    "\"chain\":[{\"block\":\"embed\"},{\"block\":\"head\"}]}";

static double surprise(const double logits[4], int label)
{
    double sum = 0;
    for (int w = 0; w < 4; w++)
        sum += exp(logits[w]);
    return log(sum) - logits[label];
}

static void test_further_by_hand(void **state)
{
    (void)state;
    enum { LENGTH = 5 };
    static const int token[LENGTH + 2] = {2, 0, 3, 3, 1, 0, 2};
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, by_hand, 1, LENGTH, 1);
    double **param = net_random_params(arena, net, 8), *data[DATA_COUNT];
    assert_int_equal(net->params.n, 3);
    assert_string_equal(net->params.at[1].name, "head");
    EvalBatch batch = {0};
    for (int d = 0; d < DATA_COUNT; d++)
        batch.data[d] = data[d] = ARENA_ARRAY(arena, double, LENGTH);
    double want[2] = {0}, got[2];
    for (int i = 0; i < LENGTH; i++) {
        data[DATA_IDS][i] = token[i];
        data[DATA_LABELS][i] = token[i + 1];
        data[data_labels(1)][i] = token[i + 2];
        data[DATA_WEIGHT][i] = 0.2;
        data[data_weight(1)][i] = i + 1 < LENGTH ? 0.2 : 0; /* behind the last one is no label */
        const double *mine = param[0] + (ptrdiff_t)2 * token[i],
                     *next = param[0] + (ptrdiff_t)2 * token[i + 1];
        double near[4], far[4];
        for (int w = 0; w < 4; w++) {
            const double *head = param[1] + (ptrdiff_t)2 * w, *join = param[2] + (ptrdiff_t)4 * w;
            near[w] = head[0] * mine[0] + head[1] * mine[1];
            far[w] = join[0] * next[0] + join[1] * next[1] + join[2] * mine[0] + join[3] * mine[1];
        }
        want[0] += 0.2 * surprise(near, token[i + 1]);
        want[1] += i + 1 < LENGTH ? 0.2 * surprise(far, token[i + 2]) : 0;
    }
    eval_net_losses(net, (const double *const *)param, &batch, 1, got);
    assert_near(got[0], want[0], 1, 1e-14, "the next token");
    assert_near(got[1], want[1], 1, 1e-14, "the token after it");
    arena_free(arena);
}

static void test_dropout(void **state)
{
    (void)state;
    check_gradients(tiny_dropout, 1, 1);
}

/* Padding rows change nothing and get no gradient. */
static void test_padding(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *plain = net_from(arena, tiny_llama, 2, 5, 1),
        *padded = net_from(arena, tiny_llama, 2, 5, 8);
    double **param = net_random_params(arena, plain, 3), **grad = net_zero_params(arena, padded);
    double **more = net_random_params(arena, padded, 4);
    for (int i = 0; i < plain->params.n; i++)
        memcpy(more[i], param[i], (size_t)eval_param_elements(plain, i) * sizeof(double));
    EvalBatch *batch = net_random_batches(arena, plain, 1, 7);
    double a = loss_at(plain, param, batch, 1);
    double b = eval_net(padded, (const double *const *)more, batch, 1, grad);
    assert_near(a, b, 1, 1e-14, "loss");
    for (int i = 0; i < plain->params.n; i++) {
        for (int64_t e = eval_param_elements(plain, i); e < eval_param_elements(padded, i); e++)
            assert_true(grad[i][e] == 0);
    }
    assert_int_equal(net_param_count(plain), net_param_count(padded));
    arena_free(arena);
}

/* Two micro-batches of two rows are one of four, when the rows are laid out in order; what is
 * dropped too. */
static void check_micro_batches(const char *text)
{
    Arena *arena = arena_new("test");
    Net *two = net_from(arena, text, 2, 5, 1), *four = net_from(arena, text, 4, 5, 1);
    double **param = net_random_params(arena, two, 5);
    double **grad2 = net_zero_params(arena, two), **grad4 = net_zero_params(arena, four);
    EvalBatch *halves = net_random_batches(arena, two, 2, 9), whole = {.seed = 0};
    for (int d = 0; d < DATA_COUNT; d++) {
        double *joined = ARENA_ARRAY(arena, double, 20);
        memcpy(joined, halves[0].data[d], 10 * sizeof(double));
        memcpy(joined + 10, halves[1].data[d], 10 * sizeof(double));
        whole.data[d] = joined;
    }
    for (int i = 0; i < 2; i++) {
        halves[i].seed = whole.seed = 12;
        halves[i].sample = 100 + 2 * i;
    }
    whole.sample = 100;
    double a = eval_net(two, (const double *const *)param, halves, 2, grad2);
    double b = eval_net(four, (const double *const *)param, &whole, 1, grad4);
    assert_near(a, b, 1, 1e-13, "loss");
    for (int i = 0; i < two->params.n; i++) {
        for (int64_t e = 0; e < eval_param_elements(two, i); e++)
            assert_near(grad2[i][e], grad4[i][e], 1, 1e-13, two->params.at[i].name);
    }
    arena_free(arena);
}

static void test_micro_batches(void **state)
{
    (void)state;
    check_micro_batches(tiny_gpt2);
    check_micro_batches(tiny_dropout);
}

/* Every part of the key counts: seed, sample of the run (so the step), layer and site. */
static void test_draws(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, tiny_dropout, 2, 5, 1);
    double **param = net_random_params(arena, net, 5);
    EvalBatch *batch = net_random_batches(arena, net, 1, 9);
    batch->seed = 1;
    batch->sample = 64;
    double loss = loss_at(net, param, batch, 1);
    assert_true(loss == loss_at(net, param, batch, 1));
    batch->seed = 2;
    assert_true(loss != loss_at(net, param, batch, 1));
    batch->seed = 1;
    batch->sample = 66;
    assert_true(loss != loss_at(net, param, batch, 1));
    batch->sample = 64;
    Graph *layer = net->classes.at[1];
    for (int n = 0; n < layer->nodes.n; n++) {
        Node *node = &layer->nodes.at[n];
        if (node->op != OP_DROPOUT)
            continue;
        int64_t site = node->attrs.dropout.site;
        node->attrs.dropout.site = 77;
        assert_true(loss != loss_at(net, param, batch, 1));
        node->attrs.dropout.site = site;
    }
    /* two layers of one class draw otherwise */
    assert_int_equal(net->chain.at[1].class, net->chain.at[2].class);
    assert_true(draw_stream(1, 0) != draw_stream(2, 0) && draw_stream(1, 0) != draw_stream(0, 1));
    arena_free(arena);
}

/* A tied matrix is one parameter whose gradient has both uses. */
static void test_tied(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, tiny_gpt2, 2, 5, 1);
    int tied = 0;
    for (int i = 0; i < net->params.n; i++) {
        if (net->params.at[i].uses != 2)
            continue;
        tied++;
        assert_string_equal(net->params.at[i].name, "wte.weight");
        assert_int_equal(net->params.at[i].link[0], 0);
        assert_int_equal(net->params.at[i].link[1], net->chain.n - 1);
    }
    assert_int_equal(tied, 1);
    arena_free(arena);
}

static void test_step(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, tiny_llama, 2, 5, 1);
    double **param = net_random_params(arena, net, 5), **grad = net_zero_params(arena, net);
    double **m = net_zero_params(arena, net), **v = net_zero_params(arena, net);
    EvalBatch *batch = net_random_batches(arena, net, 1, 9);
    const EvalAdam adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 0.01};
    double first = eval_net(net, (const double *const *)param, batch, 1, grad), last = first;
    double w0 = param[0][0], square = 0;
    for (int i = 0; i < net->params.n; i++) {
        for (int64_t e = 0; e < eval_param_elements(net, i); e++)
            square += grad[i][e] * grad[i][e];
    }
    double norm = eval_step(net, &adam, 1e-2, 1, param, m, v, (const double *const *)grad);
    assert_near(norm, sqrt(square), 1, 1e-14, "norm");
    /* The first step is lr * sign(g), whatever the scale of g, beside the decay. */
    double g = grad[0][0] * 0.01 / (norm + 1e-6);
    assert_near(param[0][0], w0 * (1 - 1e-3) - 1e-2 * g / (fabs(g) + 1e-8), 1, 1e-15, "first step");
    for (int step = 2; step <= 30; step++) {
        last = eval_net(net, (const double *const *)param, batch, 1, grad);
        eval_step(net, &adam, 1e-2, step, param, m, v, (const double *const *)grad);
    }
    assert_true(last < 0.8 * first);
    arena_free(arena);
}

/* With zero gradients and moments only matrices shrink. */
static void test_decay(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, tiny_gpt2, 2, 5, 1);
    double **param = net_random_params(arena, net, 5), **zero = net_zero_params(arena, net);
    double **m = net_zero_params(arena, net), **v = net_zero_params(arena, net);
    double **before = net_random_params(arena, net, 5);
    const EvalAdam adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    eval_step(net, &adam, 1e-2, 1, param, m, v, (const double *const *)zero);
    for (int i = 0; i < net->params.n; i++) {
        const char *name = net->params.at[i].name;
        bool matrix = !strstr(name, "bias") && !strstr(name, "ln_");
        assert_int_equal(eval_param_decays(net, i), matrix);
        for (int64_t e = 0; e < eval_param_elements(net, i); e++)
            assert_near(param[i][e], before[i][e] * (matrix ? 1 - 1e-3 : 1), 1, 1e-15, name);
    }
    arena_free(arena);
}

/* The optimizer's ops mean the same step. */
static void test_step_is_ops(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = net_new(arena, "adam");
    net_add_dim(net, "b", DIM_BATCH, 1);
    net_add_dim(net, "s", DIM_SEQUENCE, 1);
    DimId h = net_add_dim(net, "h", DIM_OTHER, 4);
    Graph *graph = net_add_class(net, "step");
    ValueId in[7];
    static const char *const names[] = {"w", "m", "v", "g", "coef", "lr", "step"};
    for (int i = 0; i < 7; i++)
        in[i] = graph_value(graph, VALUE_PARAM, names[i], i < 4, &h);
    ValueId norm2 = graph_out(graph, graph_node(graph, OP_SUMSQ, "norm2", "h->", NULL, &in[3], 1));
    Attrs clip = {.clip = {.max_norm = 0.5}};
    in[4] = graph_out(graph, graph_node(graph, OP_CLIP, "clip", "->", &clip, &norm2, 1));
    Attrs adamw = {.adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1}};
    graph_node(graph, OP_ADAMW, "adamw", "h,h,h,h,,,->h,h,h", &adamw, in, 7);
    double **value = graph_random_inputs(arena, graph, 1);
    for (int i = 0; i < 4; i++) {
        value[in[1]][i] = fabs(value[in[1]][i]);
        value[in[2]][i] = fabs(value[in[2]][i]);
    }
    value[in[5]][0] = 0.01;
    value[in[6]][0] = 3;
    graph_run(arena, graph, SEG_FORWARD, value);

    double square = 0;
    for (int i = 0; i < 4; i++)
        square += value[in[3]][i] * value[in[3]][i];
    double coef = 0.5 / (sqrt(square) + 1e-6);
    assert_true(coef < 1);
    assert_near(value[in[4]][0], coef, 1, 1e-15, "coef");
    const Node *node = &graph->nodes.at[2];
    for (int i = 0; i < 4; i++) {
        double g = value[in[3]][i] * coef, w = value[in[0]][i];
        double m = 0.9 * value[in[1]][i] + (1 - 0.9) * g;
        double v = 0.95 * value[in[2]][i] + (1 - 0.95) * g * g;
        double mean = m / (1 - 0.9 * 0.9 * 0.9), square2 = v / (1 - 0.95 * 0.95 * 0.95);
        assert_near(value[node->out[0]][i], w - 0.001 * w - 0.01 * mean / (sqrt(square2) + 1e-8), 1,
                    1e-14, "w");
        assert_near(value[node->out[1]][i], m, 1, 1e-15, "m");
        assert_near(value[node->out[2]][i], v, 1, 1e-15, "v");
    }
    arena_free(arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_llama),
    cmocka_unit_test(test_gpt2),
    cmocka_unit_test(test_everything),
    cmocka_unit_test(test_further),
    cmocka_unit_test(test_further_by_hand),
    cmocka_unit_test(test_padding),
    cmocka_unit_test(test_micro_batches),
    cmocka_unit_test(test_tied),
    cmocka_unit_test(test_step),
    cmocka_unit_test(test_step_is_ops),
    cmocka_unit_test(test_decay),
    cmocka_unit_test(test_dropout),
    cmocka_unit_test(test_draws),
};

RUN(tests)
