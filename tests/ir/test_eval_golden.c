/* test_eval_golden.c - the oracle against the oracle we did not write: five steps of tests/golden
 * in fp64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

enum { ROWS = 4, SEQ = 16, STEPS = 5, MICRO = 2 };

typedef struct Golden {
    Arena *arena;
    const char *folder;
    Net *net;
    double **param, **first; /* now, and before the first step */
} Golden;

/* ---- the models, as edits of the tiny ones ---- */

static char *replaced(Arena *arena, const char *text, const char *from, const char *to)
{
    Str out = str_new(arena);
    int found = 0;
    for (const char *at; (at = strstr(text, from)) != NULL; found++) {
        str_putn(&out, text, (size_t)(at - text));
        str_put(&out, to);
        text = at + strlen(from);
    }
    assert_true(found > 0);
    str_put(&out, text);
    return out.at;
}

static const char *gpt2_model(Arena *arena)
{
    return replaced(arena, tiny_gpt2, "\"h\":6,\"f\":8,\"v\":11,\"p\":9,\"c\":3,\"g\":2,\"d\":3",
                    "\"h\":48,\"f\":192,\"v\":96,\"p\":32,\"c\":3,\"g\":4,\"d\":12");
}

static const char *llama_model(Arena *arena, const char *dims, const char *theta)
{
    char *text =
        replaced(arena, tiny_llama, "\"h\":6,\"f\":5,\"v\":11,\"g\":2,\"r\":2,\"d\":4", dims);
    text = replaced(arena, text,
                    ",\"scaling\":{\"kind\":\"llama3\",\"factor\":8.0,\"low\":1.0,\"high\":4.0,"
                    "\"original\":16}",
                    "");
    return replaced(arena, text, "\"theta\":100.0", theta);
}

#define BIAS_OF(p) ",\"bias\":\"model.layers.{i}.self_attn." p "_proj.bias\""
#define WEIGHT_OF(p) "\"weight\":\"model.layers.{i}.self_attn." p "_proj.weight\""
#define GROUPED "\"h\":48,\"f\":80,\"v\":96,\"g\":2,\"r\":2,\"d\":12"

static const char *plain_llama(Arena *arena)
{
    return replaced(arena, llama_model(arena, GROUPED, "\"theta\":10000.0"), BIAS_OF("q"), "");
}

static const char *tied_llama(Arena *arena)
{
    const char *text = llama_model(arena, "\"h\":48,\"f\":80,\"v\":96,\"g\":4,\"r\":1,\"d\":12",
                                   "\"theta\":500.0");
    text = replaced(arena, text, BIAS_OF("q"), "");
    return replaced(arena, text, "\"lm_head.weight\"", "\"model.embed_tokens.weight\"");
}

static const char *qwen2(Arena *arena)
{
    const char *text = llama_model(arena, GROUPED, "\"theta\":1000.0");
    text = replaced(arena, text, WEIGHT_OF("k"), WEIGHT_OF("k") BIAS_OF("k"));
    text = replaced(arena, text, WEIGHT_OF("v"), WEIGHT_OF("v") BIAS_OF("v"));
    return replaced(arena, text, "\"eps\":1e-5", "\"eps\":1e-6");
}

/* ---- the files ---- */

static const char *golden_path(const Golden *g, const char *file)
{
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    return arena_printf(g->arena, "%s/tests/golden/%s/%s", root ? root : ".", g->folder, file);
}

static unsigned char *read_bytes(const Golden *g, const char *file, size_t *ret_length)
{
    FILE *in = fopen(golden_path(g, file), "rb");
    if (!in)
        fail_msg("cannot read %s", golden_path(g, file));
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    *ret_length = (size_t)ftell(in);
    rewind(in);
    unsigned char *bytes = arena_alloc(g->arena, *ret_length);
    assert_int_equal(fread(bytes, 1, *ret_length, in), *ret_length);
    fclose(in);
    return bytes;
}

/* fp32 tensors of a safetensors file by the name of each parameter of the net. */
static double **read_tensors(const Golden *g, const char *file)
{
    size_t length;
    unsigned char *bytes = read_bytes(g, file, &length);
    uint64_t head = 0;
    memcpy(&head, bytes, sizeof head);
    json_error_t error;
    json_t *table = json_loadb((const char *)bytes + 8, head, 0, &error);
    assert_non_null(table);
    double **tensor = net_zero_params(g->arena, g->net);
    for (int i = 0; i < g->net->params.n; i++) {
        json_t *entry = json_object_get(table, g->net->params.at[i].name);
        if (!entry)
            fail_msg("%s has no tensor %s", file, g->net->params.at[i].name);
        json_t *span = json_object_get(entry, "data_offsets");
        size_t begin = (size_t)json_integer_value(json_array_get(span, 0));
        size_t end = (size_t)json_integer_value(json_array_get(span, 1));
        int64_t n = eval_param_elements(g->net, i);
        assert_int_equal(end - begin, n * 4);
        for (int64_t e = 0; e < n; e++) {
            float value;
            memcpy(&value, bytes + 8 + head + begin + 4 * (size_t)e, sizeof value);
            tensor[i][e] = value;
        }
    }
    json_decref(table);
    return tensor;
}

/* Rows of step k: windows of 17 tokens 16 apart; the first 16 are the input, the last 16 the
 * labels. */
static EvalBatch *read_batches(const Golden *g, int step)
{
    size_t length;
    unsigned char *bytes = read_bytes(g, "tokens.bin", &length);
    EvalBatch *batch = ARENA_ARRAY(g->arena, EvalBatch, MICRO);
    int rows = ROWS / MICRO;
    for (int mb = 0; mb < MICRO; mb++) {
        double *data[DATA_COUNT];
        for (int d = 0; d < DATA_COUNT; d++)
            batch[mb].data[d] = data[d] = ARENA_ARRAY(g->arena, double, rows *SEQ);
        for (int i = 0; i < rows * SEQ; i++) {
            size_t at = (size_t)((ROWS * step + mb * rows) * SEQ + i);
            uint16_t pair[2];
            memcpy(pair, bytes + 1024 + 2 * at, sizeof pair);
            data[DATA_IDS][i] = pair[0];
            data[DATA_LABELS][i] = pair[1];
            data[DATA_WEIGHT][i] = 1.0 / (ROWS * SEQ);
        }
    }
    return batch;
}

static double number_at(Json list, int i)
{
    double value = 0;
    assert_true(json_num(json_at(list, i), -1e300, 1e300, &value));
    return value;
}

/* Rows whose gradient is zero by mathematics: rounding noise in the recorded run. [begin, end] */
static bool undetermined(Json ranges, const char *name, double row)
{
    Json range = json_get(ranges, name);
    return json_len(range) == 2 && row >= number_at(range, 0) && row < number_at(range, 1);
}

/* Largest ||x - y|| / ||y - base|| over tensors; base NULL is zero. */
static double worst(const Golden *g, double **x, double **y, double **base, Json ranges)
{
    double most = 0;
    for (int i = 0; i < g->net->params.n; i++) {
        const NetParam *use = &g->net->params.at[i];
        const Graph *graph = g->net->classes.at[use->class];
        const Param *param = &graph->params.at[use->param];
        const Value *value = &graph->values.at[param->value];
        int64_t n = eval_param_elements(g->net, i), rows = 1;
        for (int a = 0; a < param->group[0]; a++)
            rows *= g->net->dims.at[value->dim[a]].extent;
        double off = 0, size = 0;
        for (int64_t e = 0; e < n; e++) {
            if (undetermined(ranges, use->name, (double)(e / (n / rows))))
                continue;
            double d = x[i][e] - y[i][e], z = y[i][e] - (base ? base[i][e] : 0);
            off += d * d;
            size += z * z;
        }
        assert_true(size > 0);
        most = fmax(most, sqrt(off / size));
    }
    return most;
}

static void check_golden(const char *folder, const char *(*model)(Arena *))
{
    Golden g = {.arena = arena_new("golden"), .folder = folder};
    Diag *diag = diag_new(g.arena);
    JsonDoc *doc = json_load(g.arena, diag, golden_path(&g, "expected.json"));
    assert_non_null(doc);
    Json want = json_root(doc), ranges = json_get(want, "undetermined");
    Json bound = json_get(want, "tolerance");
    g.net = net_from(g.arena, model(g.arena), ROWS / MICRO, SEQ, 1);
    int64_t total = 0;
    assert_true(json_int(json_get(want, "params_total"), 1, INT64_MAX, &total));
    assert_int_equal(net_param_count(g.net), total);
    g.first = read_tensors(&g, "model.safetensors");
    g.param = read_tensors(&g, "model.safetensors");
    double **grad = net_zero_params(g.arena, g.net), **m = net_zero_params(g.arena, g.net);
    double **v = net_zero_params(g.arena, g.net), tolerance = 0;
    const EvalAdam adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1};
    for (int step = 0; step < STEPS; step++) {
        EvalBatch *batch = read_batches(&g, step);
        double loss = eval_net(g.net, (const double *const *)g.param, batch, MICRO, grad);
        assert_near(loss, number_at(json_get(want, "losses_fp64"), step), loss, 1e-12, "loss");
        if (step == 0) {
            assert_true(json_num(json_get(bound, "grad_step0"), 0, 1, &tolerance));
            double off = worst(&g, grad, read_tensors(&g, "grads_step0.safetensors"), NULL, ranges);
            assert_true(off <= tolerance);
        }
        double norm =
            eval_step(g.net, &adam, 1e-3, step + 1, g.param, m, v, (const double *const *)grad);
        assert_near(norm, number_at(json_get(want, "grad_norms_fp64"), step), norm, 1e-12, "norm");
    }
    double **last = read_tensors(&g, "model_step5.safetensors");
    assert_true(json_num(json_get(bound, "update_step4"), 0, 1, &tolerance));
    assert_true(worst(&g, g.param, last, g.first, ranges) <= tolerance);
    json_doc_free(doc);
    arena_free(g.arena);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_golden("gpt2", gpt2_model);
}

static void test_llama(void **state)
{
    (void)state;
    check_golden("llama", plain_llama);
}

static void test_llama_tied(void **state)
{
    (void)state;
    check_golden("llama_tied", tied_llama);
}

static void test_qwen2(void **state)
{
    (void)state;
    check_golden("qwen2", qwen2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gpt2),
    cmocka_unit_test(test_llama),
    cmocka_unit_test(test_llama_tied),
    cmocka_unit_test(test_qwen2),
};

RUN(tests)
