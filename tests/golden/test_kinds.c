/* test_kinds.c - imported models of every kind against transformers in double precision: logits,
 * losses, gradients, five AdamW steps. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/import_hf.h"
#include "tests/ir/nets.h"

enum { ROWS = 4, MICRO = 2, SEQ = 16, STEPS = 5 };

typedef struct Golden {
    Arena *arena;
    const char *folder;
    Net *net;
} Golden;

/* ---- files ---- */

typedef struct Tensors {
    const char *file;
    const unsigned char *bytes;
    json_t *table;
    uint64_t head;
} Tensors;

static const char *path_of(const Golden *g, const char *file)
{
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    return arena_printf(g->arena, "%s/tests/golden/kinds/%s/%s", root ? root : ".", g->folder,
                        file);
}

static unsigned char *read_bytes(const Golden *g, const char *file, size_t *ret_length)
{
    FILE *in = fopen(path_of(g, file), "rb");
    if (!in)
        fail_msg("cannot read %s", path_of(g, file));
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    *ret_length = (size_t)ftell(in);
    rewind(in);
    unsigned char *bytes = arena_alloc(g->arena, *ret_length);
    assert_int_equal(fread(bytes, 1, *ret_length, in), *ret_length);
    fclose(in);
    return bytes;
}

static Tensors tensors_open(const Golden *g, const char *file)
{
    size_t length;
    Tensors t = {.file = file, .bytes = read_bytes(g, file, &length)};
    memcpy(&t.head, t.bytes, sizeof t.head);
    json_error_t error;
    t.table = json_loadb((const char *)t.bytes + 8, t.head, 0, &error);
    assert_non_null(t.table);
    return t;
}

/* Rows [from, to) of a tensor (to 0: all of it), `n` elements, from the file to *to_. false when
 * the file has no such tensor. Checkpoints of a model with a head may call the body "transformer".
 */
static bool tensor_read(const Golden *g, const Tensors *t, const char *name, int64_t from,
                        int64_t to, double *ret, int64_t n)
{
    json_t *entry = json_object_get(t->table, name);
    if (!entry)
        entry = json_object_get(t->table, arena_printf(g->arena, "transformer.%s", name));
    if (!entry)
        return false;
    json_t *shape = json_object_get(entry, "shape"), *span = json_object_get(entry, "data_offsets");
    int64_t begin = json_integer_value(json_array_get(span, 0));
    int64_t have = (json_integer_value(json_array_get(span, 1)) - begin) / 4;
    if (to > 0) {
        int64_t rows = json_integer_value(json_array_get(shape, 0));
        assert_true(to <= rows);
        begin += 4 * from * (have / rows);
        have = (to - from) * (have / rows);
    }
    if (have != n)
        fail_msg("%s of %s has %lld elements, the model %lld", name, t->file, (long long)have,
                 (long long)n);
    for (int64_t e = 0; e < n; e++) {
        float value;
        memcpy(&value, t->bytes + 8 + t->head + begin + 4 * e, sizeof value);
        ret[e] = value;
    }
    return true;
}

/* One parameter: whole, or tensor by tensor along its first axis ({e}), or some rows ([a:b]). */
static bool param_read(const Golden *g, const Tensors *t, int i, double *ret)
{
    const NetParam *use = &g->net->params.at[i];
    const Graph *graph = g->net->classes.at[use->class];
    const Value *value = &graph->values.at[graph->params.at[use->param].value];
    int64_t n = eval_param_elements(g->net, i), parts = 1;
    long long from = 0, to = 0;
    char *name = arena_strdup(g->arena, use->name), *rows = strchr(name, '[');
    if (rows) {
        assert_int_equal(sscanf(rows, "[%lld:%lld]", &from, &to), 2);
        *rows = '\0';
    }
    char *each = strstr(name, "{e}");
    if (each)
        parts = g->net->dims.at[value->dim[0]].extent;
    for (int64_t e = 0; e < parts; e++) {
        const char *mine = each ? arena_printf(g->arena, "%.*s%lld%s", (int)(each - name), name,
                                               (long long)e, each + 3)
                                : name;
        if (!tensor_read(g, t, mine, from, to, ret + e * (n / parts), n / parts))
            return false;
    }
    return true;
}

static double **params_read(const Golden *g, const char *file, bool frozen_too)
{
    Tensors t = tensors_open(g, file);
    double **tensor = net_zero_params(g->arena, g->net);
    for (int i = 0; i < g->net->params.n; i++) {
        const NetParam *use = &g->net->params.at[i];
        bool frozen = g->net->classes.at[use->class]->params.at[use->param].frozen;
        if (!param_read(g, &t, i, tensor[i]) && (frozen_too || !frozen))
            fail_msg("%s has no tensor %s", file, use->name);
    }
    json_decref(t.table);
    return tensor;
}

/* ---- the job ---- */

/* Rows of step k: windows of 17 tokens 16 apart; the first 16 are the input, the last 16 the
 * labels. */
static EvalBatch *read_batches(const Golden *g, int step, int rows)
{
    size_t length;
    unsigned char *bytes = read_bytes(g, "tokens.bin", &length);
    int micro = ROWS / rows;
    EvalBatch *batch = ARENA_ARRAY(g->arena, EvalBatch, micro);
    for (int mb = 0; mb < micro; mb++) {
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

static Net *import_net(const Golden *g)
{
    Diag *diag = diag_new(g->arena);
    JsonDoc *doc = import_model(g->arena, diag, path_of(g, "config.json"), NULL);
    Net *net = doc ? model_read(g->arena, diag, json_root(doc), ROWS / MICRO, SEQ, 1) : NULL;
    json_doc_free(doc);
    if (!net) {
        diag_print(diag, stderr, false);
        fail_msg("%s does not import", g->folder);
    }
    if (!net_verify(net, diag)) {
        diag_print(diag, stderr, false);
        fail_msg("%s is no valid net", g->folder);
    }
    Str first = str_new(g->arena), second = str_new(g->arena);
    net_put_text(&first, net);
    Net *again = net_parse_text(g->arena, diag, g->folder, first.at, strlen(first.at));
    if (!again)
        diag_print(diag, stderr, false);
    assert_non_null(again);
    net_put_text(&second, again);
    assert_string_equal(first.at, second.at);
    return net;
}

/* The operand of the maximum over the vocabulary, of one micro-batch. */
static const double *logits_of(const Golden *g, double *const *param, const EvalBatch *batch,
                               int64_t *ret_n)
{
    const Net *net = g->net;
    const double *handed = NULL;
    for (int l = 0; l < net->chain.n; l++) {
        const Graph *graph = net->classes.at[net->chain.at[l].class];
        double **value = ARENA_ARRAY(g->arena, double *, graph->values.n);
        for (int d = 0; d < DATA_COUNT; d++) {
            if (graph->data[d] != NONE)
                value[graph->data[d]] = (double *)(uintptr_t)batch->data[d];
        }
        for (int i = 0; i < net->params.n; i++) {
            const NetParam *use = &net->params.at[i];
            for (int u = 0; u < use->uses; u++) {
                if (use->link[u] == l)
                    value[graph->params.at[use->use_param[u]].value] = param[i];
            }
        }
        if (graph->chain_in != NONE)
            value[graph->chain_in] = (double *)(uintptr_t)handed;
        graph_run(g->arena, graph, SEG_FORWARD, value);
        if (graph->chain_out != NONE) {
            handed = value[graph->chain_out];
            continue;
        }
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (node->op != OP_VMAX)
                continue;
            *ret_n = value_elements(net, &graph->values.at[node->in[0]]);
            return value[node->in[0]];
        }
    }
    fail_msg("%s has no logits", g->folder);
    return NULL;
}

static void check_logits(const Golden *g, double *const *param, const EvalBatch *batch, double most)
{
    Tensors t = tensors_open(g, "logits_step0.safetensors");
    double *want = NULL, largest = 0, off = 0;
    int64_t n = 0;
    for (int mb = 0; mb < MICRO; mb++) {
        const double *got = logits_of(g, param, &batch[mb], &n);
        if (!want) {
            want = ARENA_ARRAY(g->arena, double, n *MICRO);
            assert_true(tensor_read(g, &t, "logits", 0, 0, want, n * MICRO));
        }
        for (int64_t i = 0; i < n; i++) {
            largest = fmax(largest, fabs(want[mb * n + i]));
            off = fmax(off, fabs(want[mb * n + i] - got[i]));
        }
    }
    json_decref(t.table);
    assert_near(off, 0, largest, most, "logits");
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Each tensor's ||x - y|| / ||y||. One that is zero by mathematics has the scale of the whole. */
static void check_grads(const Golden *g, double *const *got, double most)
{
    double **want = params_read(g, "grads_step0.safetensors", false), all = 0;
    for (int i = 0; i < g->net->params.n; i++)
        all = fmax(all, norm_of(want[i], eval_param_elements(g->net, i)));
    for (int i = 0; i < g->net->params.n; i++) {
        int64_t n = eval_param_elements(g->net, i);
        double *off = ARENA_ARRAY(g->arena, double, n);
        for (int64_t e = 0; e < n; e++)
            off[e] = got[i][e] - want[i][e];
        double scale = fmax(norm_of(want[i], n), 1e-6 * all);
        assert_near(norm_of(off, n), 0, scale, most, g->net->params.at[i].name);
    }
}

static double number_at(Json list, int i)
{
    double value = 0;
    assert_true(json_num(json_at(list, i), -1e300, 1e300, &value));
    return value;
}

/* The recorded tensors are fp32: rounding of 6e-8 an element. */
static const double rounding = 2e-7;

static void check_kind(const char *folder)
{
    Golden g = {.arena = arena_new("golden"), .folder = folder};
    Diag *diag = diag_new(g.arena);
    JsonDoc *doc = json_load(g.arena, diag, path_of(&g, "expected.json"));
    assert_non_null(doc);
    Json want = json_root(doc);
    g.net = import_net(&g);
    int64_t total = 0;
    double tolerance = 0;
    assert_true(json_int(json_get(want, "params_total"), 1, INT64_MAX, &total));
    assert_true(json_num(json_get(want, "tolerance"), 0, 1, &tolerance));
    assert_int_equal(net_param_count(g.net), total);
    double **param = params_read(&g, "model.safetensors", true);
    double **grad = net_zero_params(g.arena, g.net), **m = net_zero_params(g.arena, g.net);
    double **v = net_zero_params(g.arena, g.net);
    const EvalAdam adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1};
    Json losses = json_get(want, "losses_fp64"), norms = json_get(want, "grad_norms_fp64");
    for (int step = 0; step <= STEPS; step++) {
        EvalBatch *batch = read_batches(&g, step % STEPS, ROWS / MICRO);
        if (step == 0)
            check_logits(&g, param, batch, fmax(tolerance, rounding));
        double loss = eval_net(g.net, (const double *const *)param, batch, MICRO, grad);
        assert_near(loss, number_at(losses, step), loss, tolerance,
                    arena_printf(g.arena, "%s: loss of step %d", folder, step));
        if (step == 0)
            check_grads(&g, grad, fmax(tolerance, rounding));
        if (step == STEPS)
            break;
        double norm =
            eval_step(g.net, &adam, 1e-3, step + 1, param, m, v, (const double *const *)grad);
        assert_near(norm, number_at(norms, step), norm, tolerance,
                    arena_printf(g.arena, "%s: norm of step %d", folder, step));
    }
    json_doc_free(doc);
    arena_free(g.arena);
}

#define KIND(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        check_kind(#name);                                                                         \
    }
KIND(neox)
KIND(bloom)
KIND(falcon)
KIND(falcon_new)
KIND(gemma2)
KIND(qwen3)
KIND(mixtral)
KIND(deepseek_v3)
KIND(gpt_oss)
KIND(olmo2)
KIND(llama4)
KIND(phi3)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_neox),    cmocka_unit_test(test_bloom),
    cmocka_unit_test(test_falcon),  cmocka_unit_test(test_falcon_new),
    cmocka_unit_test(test_gemma2),  cmocka_unit_test(test_qwen3),
    cmocka_unit_test(test_mixtral), cmocka_unit_test(test_deepseek_v3),
    cmocka_unit_test(test_gpt_oss), cmocka_unit_test(test_olmo2),
    cmocka_unit_test(test_llama4),  cmocka_unit_test(test_phi3),
};

RUN(tests)
