/* test_packed.c - packed documents: rows of several documents are the documents run one by one. */
#include <string.h>

#include "ir/base/rng.h"
#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

enum { LENGTH = 8, ROWS = 2, DOCUMENTS = 5 };

/* Row and place of each document: three in one row, two in the other. */
static const struct {
    int row, at, length;
} documents[DOCUMENTS] = {{0, 0, 3}, {0, 3, 1}, {0, 4, 4}, {1, 0, 6}, {1, 6, 2}};

/* The model with `to` in place of `from`. */
static char *changed(Arena *arena, const char *model, const char *from, const char *to)
{
    const char *at = strstr(model, from);
    assert_non_null(at);
    return arena_printf(arena, "%.*s%s%s", (int)(at - model), model, to, at + strlen(from));
}

static EvalBatch batch_of(Arena *arena, int rows, int length, double **ret)
{
    EvalBatch batch = {.seed = 0};
    for (int d = 0; d < DATA_COUNT; d++)
        batch.data[d] = ret[d] = ARENA_ARRAY(arena, double, rows *length);
    return batch;
}

static void check_packed(const char *model)
{
    Arena *arena = arena_new("test");
    const char *packed =
        changed(arena, model, "\"init_std\":0.3", "\"init_std\":0.3,\"packed\":true");
    Net *net = net_from(arena, packed, ROWS, LENGTH, 1);
    Diag *diag = diag_new(arena);
    assert_true(net_verify(net, diag));
    double **param = net_random_params(arena, net, 3), **grad = net_zero_params(arena, net);
    double **sum = net_zero_params(arena, net), *whole[DATA_COUNT], *part[DATA_COUNT];
    EvalBatch all = batch_of(arena, ROWS, LENGTH, whole);
    double total = 0, one_by_one = 0;
    for (int i = 0; i < ROWS * LENGTH; i++) {
        whole[DATA_IDS][i] = (double)(rng_u64(5, 0, (uint64_t)i) % 11);
        whole[DATA_LABELS][i] = (double)(rng_u64(5, 1, (uint64_t)i) % 11);
        total += whole[DATA_WEIGHT][i] = (double)(rng_u64(5, 2, (uint64_t)i) % 4);
    }
    for (int i = 0; i < ROWS * LENGTH; i++)
        whole[DATA_WEIGHT][i] /= total;
    for (int d = 0; d < DOCUMENTS; d++) {
        for (int i = 0; i < documents[d].length; i++)
            whole[DATA_STARTS][documents[d].row * LENGTH + documents[d].at + i] = documents[d].at;
    }
    for (int d = 0; d < DOCUMENTS; d++) {
        int length = documents[d].length, from = documents[d].row * LENGTH + documents[d].at;
        Net *alone = net_from(arena, model, 1, length, 1);
        assert_int_equal(alone->params.n, net->params.n);
        EvalBatch batch = batch_of(arena, 1, length, part);
        for (int k = 0; k < DATA_STARTS; k++)
            memcpy(part[k], whole[k] + from, (size_t)length * sizeof(double));
        double **mine = net_zero_params(arena, alone);
        one_by_one += eval_net(alone, (const double *const *)param, &batch, 1, mine);
        for (int i = 0; i < net->params.n; i++) {
            for (int64_t e = 0; e < eval_param_elements(net, i); e++)
                sum[i][e] += mine[i][e];
        }
    }
    double loss = eval_net(net, (const double *const *)param, &all, 1, grad);
    assert_near(loss, one_by_one, loss, 1e-13, "loss");
    for (int i = 0; i < net->params.n; i++) {
        for (int64_t e = 0; e < eval_param_elements(net, i); e++)
            assert_near(grad[i][e], sum[i][e], 1, 1e-12, net->params.at[i].name);
    }
    /* And the documents do matter. */
    memset(whole[DATA_STARTS], 0, ROWS * LENGTH * sizeof(double));
    double other = eval_net(net, (const double *const *)param, &all, 1, NULL);
    assert_true(other - loss > 1e-4 || loss - other > 1e-4);
    arena_free(arena);
}

static void test_rotations(void **state)
{
    (void)state;
    check_packed(tiny_llama);
}

static void test_learned_positions(void **state)
{
    (void)state;
    check_packed(tiny_gpt2);
}

/* Latent keys, sinks, linear biases, a window, soft caps, experts; neither chunks nor queries that
 * grow with their position, which count from the beginning of the sequence. */
static const char *without(Arena *arena, const char *temper, const char *chunk)
{
    char *text =
        changed(arena, tiny_everything,
                "{\"op\":\"temper\",\"in\":\"qc\",\"out\":\"q\",\"scale\":0.3,\"length\":2,"
                "\"ahead\":1}",
                temper);
    return changed(arena, text, "\"chunk\":4,", chunk);
}

#define NO_TEMPER "{\"op\":\"scale\",\"in\":\"qc\",\"out\":\"q\",\"factor\":1.5}"

static void test_everything(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    check_packed(without(arena, NO_TEMPER, ""));
    arena_free(arena);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *temper, *chunk, *says;
    } cases[] = {
        {NO_TEMPER, "\"chunk\":4,", "chunks count from"},
        {"{\"op\":\"temper\",\"in\":\"qc\",\"out\":\"q\",\"scale\":0.3,\"length\":2}", "",
         "temper counts positions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("test");
        Diag *diag = diag_new(arena);
        const char *text = changed(arena, without(arena, cases[i].temper, cases[i].chunk),
                                   "\"init_std\":0.3", "\"init_std\":0.3,\"packed\":true");
        JsonDoc *doc = json_parse(arena, diag, "packed.json", text, strlen(text));
        assert_null(model_read(arena, diag, json_root(doc), ROWS, LENGTH, 1));
        assert_true(diag_count(diag) > 0);
        assert_non_null(strstr(diag_item(diag, 0)->text, cases[i].says));
        assert_non_null(diag_item(diag, 0)->help);
        json_doc_free(doc);
        arena_free(arena);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_rotations),
    cmocka_unit_test(test_learned_positions),
    cmocka_unit_test(test_everything),
    cmocka_unit_test(test_refused),
};

RUN(tests)
