/* test_experts.c - models of experts, whole: the gradient of everything that is trained, the loss
 * and the terms beside it, against finite differences of an objective that is put together here. */
#include <math.h>
#include <string.h>

#include "tests/ir/nets.h"

#define NORM                                                                                       \
    "{\"op\":\"norm\",\"kind\":\"rms\",\"eps\":1e-2,\"in\":\"x\",\"out\":\"n\",\"gain\":\"g.{i}"   \
    "\"},"
#define GATE                                                                                       \
    "{\"op\":\"linear\",\"in\":\"n\",\"out\":\"l\",\"to\":[\"e\"],\"weight\":\"gate.{i}\"},"
#define ROUTER(attributes)                                                                         \
    "{\"op\":\"router\",\"in\":\"l\",\"out\":[\"c\",\"w\"],\"k\":\"k\"," attributes "},"
#define LINEAR(in, out, to, more)                                                                  \
    "{\"op\":\"expert_linear\",\"in\":\"" in "\",\"choice\":\"c\",\"out\":\"" out                  \
    "\",\"experts\":\"e\",\"to\":[\"" to "\"],\"weight\":\"" out ".{i}.{e}\"" more "},"
#define EXPERTS                                                                                    \
    LINEAR("n", "u", "f", ",\"bias\":\"ub.{i}.{e}\"")                                              \
    "{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"u\",\"out\":\"a\"}," LINEAR(                       \
        "a", "y", "h",                                                                             \
        ",\"transposed\":true") "{\"op\":\"combine\",\"in\":[\"y\",\"w\"],\"out\":\"m\"},"         \
                                "{\"op\":\"add\",\"in\":[\"x\",\"m\"],\"out\":\"z\"}"
#define MODEL(router, loss)                                                                        \
    "{\"format\":\"lplan-model/1\",\"name\":\"experts\",\"init_std\":0.3,"                         \
    "\"dims\":{\"h\":4,\"f\":3,\"v\":7,\"e\":4,\"k\":2},\"blocks\":{"                              \
    "\"embed\":{\"out\":\"x\",\"ops\":[{\"op\":\"embedding\",\"in\":\"ids\",\"out\":\"x\","        \
    "\"rows\":\"v\",\"cols\":[\"h\"],\"table\":\"wte\"}]},"                                        \
    "\"layer\":{\"in\":\"x\",\"out\":\"z\",\"ops\":[" NORM GATE                                    \
    ROUTER(router) EXPERTS                                                                         \
        "]},"                                                                                      \
        "\"head\":{\"in\":\"x\",\"ops\":[{\"op\":\"linear\",\"in\":\"x\",\"out\":\"logits\","      \
        "\"to\":[\"v\"],\"weight\":\"head\"},{\"op\":\"cross_entropy\",\"in\":\"logits\"" loss     \
        "}]}},\"chain\":[{\"block\":\"embed\"},{\"block\":\"layer\",\"repeat\":2},"                \
        "{\"block\":\"head\"}]}"

enum { BATCH = 2, SEQ = 5, TOKENS = BATCH * SEQ, EXPERTS_ = 4, CHOICES = 2, WORDS = 7 };

typedef struct Case {
    const char *text;
    double balance, z, head_z, smoothing; /* what the text says */
} Case;

static const Case cases[] = {
    {MODEL("\"score\":\"softmax\"", ""), 0, 0, 0, 0},
    {MODEL("\"score\":\"softmax\",\"renormalise\":true,\"balance\":0.3", ""), 0.3, 0, 0, 0},
    {MODEL("\"score\":\"softmax\",\"after\":true,\"z\":0.2", ",\"smoothing\":0.1"), 0, 0.2, 0, 0.1},
    {MODEL("\"score\":\"softmax\",\"balance\":0.3,\"z\":0.2,\"capacity\":0.8", ",\"z\":0.05"), 0.3,
     0.2, 0.05, 0},
    {MODEL("\"score\":\"sigmoid\",\"renormalise\":true,\"epsilon\":1e-20,\"scale\":2.5,"
           "\"groups\":2,\"kept\":1,\"by\":\"top2\",\"bias\":\"b.{i}\",\"balance\":0.1",
           ",\"z\":0.05,\"smoothing\":0.2"),
     0.1, 0, 0.05, 0.2},
    {MODEL("\"score\":\"sigmoid\",\"groups\":4,\"kept\":2,\"bias\":\"b.{i}\"", ""), 0, 0, 0, 0},
};

/* Values of one forward run, per link. */
static double ***run_forward(Arena *arena, const Net *net, double **param, const EvalBatch *batch)
{
    double ***value = ARENA_ARRAY(arena, double **, net->chain.n);
    const double *handed = NULL;
    for (int l = 0; l < net->chain.n; l++) {
        const Graph *graph = net->classes.at[net->chain.at[l].class];
        value[l] = ARENA_ARRAY(arena, double *, graph->values.n);
        for (int d = 0; d < DATA_COUNT; d++) {
            if (graph->data[d] != NONE)
                value[l][graph->data[d]] = (double *)(uintptr_t)batch->data[d];
        }
        for (int i = 0; i < net->params.n; i++) {
            const NetParam *use = &net->params.at[i];
            for (int u = 0; u < use->uses; u++) {
                if (use->link[u] == l)
                    value[l][graph->params.at[use->use_param[u]].value] = param[i];
            }
        }
        if (graph->chain_in != NONE)
            value[l][graph->chain_in] = (double *)(uintptr_t)handed;
        graph_run(arena, graph, SEG_FORWARD, value[l]);
        handed = graph->chain_out != NONE ? value[l][graph->chain_out] : NULL;
    }
    return value;
}

static const double *named(const Net *net, int link, double ***value, const char *name)
{
    const Graph *graph = net->classes.at[net->chain.at[link].class];
    ValueId id = graph_find(graph, name);
    if (id == NONE)
        fail_msg("no value %s", name);
    return value[link][id];
}

static double log_sum_exp(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(x[i]);
    return log(sum);
}

/* From the definitions, out of logits and choices. Scores of routers are made again here. */
static double router_terms(const Net *net, const Case *of, int link, double ***value,
                           const double *weight)
{
    const double *logits = named(net, link, value, "l");
    /* What a capacity refuses was chosen all the same. */
    bool bounded = strstr(of->text, "capacity") != NULL;
    const double *choice = named(net, link, value, bounded ? "w.best" : "c");
    bool sigmoid = strstr(of->text, "sigmoid") != NULL;
    double load[EXPERTS_] = {0}, mean[EXPERTS_] = {0}, all = 0, z = 0, balance = 0;
    for (int t = 0; t < TOKENS; t++)
        all += weight[t];
    for (int i = 0; i < TOKENS * CHOICES; i++) {
        if (choice[i] >= 0) /* padding has no weight */
            load[(int)choice[i]] += weight[i / CHOICES] / (all * CHOICES);
    }
    for (int t = 0; t < TOKENS; t++) {
        double lse = log_sum_exp(logits + t * EXPERTS_, EXPERTS_);
        for (int e = 0; e < EXPERTS_; e++) {
            double x = logits[t * EXPERTS_ + e];
            mean[e] += (sigmoid ? 1 / (1 + exp(-x)) : exp(x - lse)) * weight[t] / all;
        }
        z += weight[t] * lse * lse;
    }
    for (int e = 0; e < EXPERTS_; e++)
        balance += EXPERTS_ * load[e] * mean[e];
    return of->balance * all * balance + of->z * z;
}

static double head_terms(const Net *net, const Case *of, int link, double ***value,
                         const EvalBatch *batch)
{
    const double *logits = named(net, link, value, "logits"), *weight = batch->data[DATA_WEIGHT];
    double sum = 0;
    for (int t = 0; t < TOKENS; t++) {
        const double *x = logits + t * WORDS;
        double lse = log_sum_exp(x, WORDS), target = 0;
        for (int v = 0; v < WORDS; v++) {
            double share = of->smoothing / WORDS;
            share += v == (int)batch->data[DATA_LABELS][t] ? 1 - of->smoothing : 0;
            target += share * x[v];
        }
        sum += weight[t] * (lse - target + of->head_z * lse * lse);
    }
    return sum;
}

static double objective(const Net *net, const Case *of, double **param, const EvalBatch *batch)
{
    double sum = 0;
    for (int mb = 0; mb < 2; mb++) {
        Arena *arena = arena_new("forward");
        double ***value = run_forward(arena, net, param, &batch[mb]);
        for (int l = 1; l < net->chain.n - 1; l++)
            sum += router_terms(net, of, l, value, batch[mb].data[DATA_WEIGHT]);
        sum += head_terms(net, of, net->chain.n - 1, value, &batch[mb]);
        arena_free(arena);
    }
    return sum;
}

static double slope(const Net *net, const Case *of, double *x, double **param,
                    const EvalBatch *batch)
{
    static const double at[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1};
    double keep = *x, step = 1e-4, sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = keep + at[i] * step;
        sum += weight[i] * objective(net, of, param, batch);
    }
    *x = keep;
    return sum / (12 * step);
}

static void check_case(const Case *of)
{
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, of->text, BATCH, SEQ, 1);
    Diag *diag = diag_new(arena);
    assert_true(net_verify(net, diag));
    double **param = net_random_params(arena, net, 2), **grad = net_zero_params(arena, net);
    EvalBatch *batch = net_random_batches(arena, net, 2, 7);
    double loss = eval_net(net, (const double *const *)param, batch, 2, grad);
    Case plain = *of;
    plain.balance = plain.z = plain.head_z = 0;
    assert_near(objective(net, &plain, param, batch), loss, loss, 1e-13, "loss");
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *use = &net->params.at[i];
        const Param *p = &net->classes.at[use->class]->params.at[use->param];
        int64_t n = eval_param_elements(net, i);
        double largest = 1e-3;
        for (int64_t e = 0; e < n; e++) {
            assert_true(!p->frozen || grad[i][e] == 0);
            largest = fmax(largest, fabs(grad[i][e]));
        }
        for (int64_t e = 0; !p->frozen && e < n; e++)
            assert_near(slope(net, of, &param[i][e], param, batch), grad[i][e], largest, 1e-7,
                        arena_printf(arena, "case %d, %s", (int)(of - cases), use->name));
    }
    arena_free(arena);
}

static void test_objective(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i]);
}

/* A bias with a rate goes down by it where its expert has more than its share, up where it has
 * less; neither the norm nor AdamW sees it. */
static void test_bias_moves(void **state)
{
    (void)state;
    static const char text[] =
        MODEL("\"score\":\"sigmoid\",\"bias\":\"b.{i}\",\"bias_rate\":0.25", "");
    static const char still[] = MODEL("\"score\":\"sigmoid\",\"bias\":\"b.{i}\"", "");
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, text, BATCH, SEQ, 1), *other = net_from(arena, still, BATCH, SEQ, 1);
    double **param = net_random_params(arena, net, 2), **grad = net_zero_params(arena, net);
    double **same = net_random_params(arena, other, 2), **grad2 = net_zero_params(arena, other);
    double **m = net_zero_params(arena, net), **v = net_zero_params(arena, net);
    EvalBatch *batch = net_random_batches(arena, net, 2, 7);
    const EvalAdam adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1};
    eval_net(net, (const double *const *)param, batch, 2, grad);
    eval_net(other, (const double *const *)same, batch, 2, grad2);
    double over[2][EXPERTS_] = {{0}};
    for (int mb = 0; mb < 2; mb++) {
        double ***value = run_forward(arena, net, param, &batch[mb]);
        for (int l = 0; l < 2; l++) {
            const double *choice = named(net, l + 1, value, "c");
            for (int i = 0; i < TOKENS * CHOICES; i++)
                over[l][(int)choice[i]] += EXPERTS_;
            for (int e = 0; e < EXPERTS_; e++)
                over[l][e] -= TOKENS * CHOICES;
        }
    }
    double **before = net_random_params(arena, net, 2);
    double norm = eval_step(net, &adam, 1e-3, 1, param, m, v, (const double *const *)grad);
    double norm2 = eval_step(other, &adam, 1e-3, 1, same, net_zero_params(arena, other),
                             net_zero_params(arena, other), (const double *const *)grad2);
    assert_near(norm, norm2, norm, 1e-14, "norm");
    int moved = 0;
    for (int i = 0; i < net->params.n; i++) {
        bool bias = strncmp(net->params.at[i].name, "b.", 2) == 0;
        for (int64_t e = 0; e < eval_param_elements(net, i); e++) {
            if (!bias) {
                assert_near(param[i][e], same[i][e], 1, 1e-14, net->params.at[i].name);
                continue;
            }
            double beyond = over[net->params.at[i].link[0] - 1][e];
            double want = before[i][e] - 0.25 * (beyond > 0) + 0.25 * (beyond < 0);
            assert_near(grad[i][e], beyond, 1, 1e-12, "load of an expert beyond its share");
            assert_near(param[i][e], want, 1, 1e-15, "bias");
            assert_true(same[i][e] == before[i][e]);
            moved += beyond != 0;
        }
    }
    assert_true(moved > 2);
    arena_free(arena);
}

/* Every case as text reads back as the same net, seeds and rates included. */
static void test_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("test");
        Diag *diag = diag_new(arena);
        Str first = str_new(arena), second = str_new(arena);
        net_put_text(&first, net_from(arena, cases[i].text, BATCH, SEQ, 1));
        Net *again = net_parse_text(arena, diag, "experts", first.at, strlen(first.at));
        if (!again)
            diag_print(diag, stderr, false);
        assert_non_null(again);
        net_put_text(&second, again);
        assert_string_equal(first.at, second.at);
        assert_true(net_verify(again, diag));
        arena_free(arena);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_objective),
    cmocka_unit_test(test_text),
    cmocka_unit_test(test_bias_moves),
};

RUN(tests)
