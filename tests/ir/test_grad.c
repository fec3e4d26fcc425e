/* test_grad.c - every gradient rule against finite differences, and no row or attribute without a
 * case. */
#include <math.h>
#include <string.h>

#include "tests/ir/op_cases.h"

/* Enough for a rule that is right, at fourth order and this step: 1e-8 of the largest. */
static const double step = 1e-3, tolerance = 1e-8;

/* The weighted sum of the results, forward run anew. */
static double objective(const OpBench *b)
{
    Arena *arena = arena_new("run");
    double **copy = ARENA_ARRAY(arena, double *, b->graph->values.n);
    memcpy(copy, b->value, (size_t)b->graph->values.n * sizeof *copy);
    graph_run(arena, b->graph, SEG_FORWARD, copy);
    double sum = copy[b->graph->chain_out][0] * b->value[b->graph->grad_in][0];
    arena_free(arena);
    return sum;
}

static double difference(const OpBench *b, double *x)
{
    static const double at[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1};
    double keep = *x, sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = keep + at[i] * step;
        sum += weight[i] * objective(b);
    }
    *x = keep;
    return sum / (12 * step);
}

/* Kinks and steps between two samples have no derivative there. */
static bool smooth_at(const OpBench *b, double x)
{
    const Node *node = &b->graph->nodes.at[b->node];
    double room = 2 * step;
    if (node->op == OP_ACT &&
        (node->attrs.act.kind == ACT_RELU || node->attrs.act.kind == ACT_RELU2))
        return fabs(x) > room;
    if (node->op == OP_CURVE && node->attrs.curve.kind == CURVE_CLAMP)
        return fabs(x - node->attrs.curve.a) > room && fabs(x - node->attrs.curve.b) > room;
    return true;
}

static void test_differences(void **state)
{
    (void)state;
    for (int i = 0; i < op_case_count; i++) {
        if (!op_has_gradient(op_cases[i].op))
            continue;
        OpBench b = op_bench(&op_cases[i]);
        Graph *graph = b.graph;
        graph_run(b.arena, graph, SEG_FORWARD, b.value);
        graph_run(b.arena, graph, SEG_BACKWARD, b.value);
        const char *what = op_case_text(&b);
        int compared = 0;
        double most = 0;
        for (int p = 0; p < graph->params.n; p++) {
            const Param *of = &graph->params.at[p];
            if (of->grad == NONE)
                fail_msg("%s: no gradient of %s", what, of->name);
            const double *grad = b.value[of->grad];
            double *x = b.value[of->value], largest = 1;
            int64_t n = value_elements(b.net, &graph->values.at[of->value]);
            for (int64_t e = 0; e < n; e++)
                largest = fmax(largest, fabs(grad[e]));
            for (int64_t e = 0; e < n; e++) {
                if (!smooth_at(&b, x[e]))
                    continue;
                assert_near(difference(&b, &x[e]), grad[e], largest, tolerance, what);
                most = fmax(most, fabs(grad[e]));
                compared++;
            }
        }
        if (compared == 0 || most == 0)
            fail_msg("%s: nothing was compared", what);
        arena_free(b.arena);
    }
}

/* ---- nothing is left out ---- */

static void test_all_ops(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        bool backward = strcmp(op_info[op].grad, "none") == 0;
        int cases = 0;
        for (int i = 0; i < op_case_count; i++)
            cases += (int)op_cases[i].op == op;
        if (!backward && cases == 0)
            fail_msg("no case of %s", op_info[op].text);
    }
}

enum { MOST_CASES = 256 };

/* Different values that one field has over the cases of one op. */
typedef struct Seen {
    OpId op;
    int n;
    double value[MOST_CASES];
} Seen;

static void see(Seen *seen, double value)
{
    for (int i = 0; i < seen->n; i++) {
        if (seen->value[i] == value)
            return;
    }
    seen->value[seen->n++] = value;
}

static int fields_lacking;

static void want_words(const Seen *seen, const char *field, int words)
{
    if (seen->n == words)
        return;
    fprintf(stderr, "%s: %d of %d kinds of %s\n", op_info[seen->op].text, seen->n, words, field);
    fields_lacking++;
}

static void want_number(const Seen *seen, const char *field)
{
    for (int i = 0; i < seen->n; i++) {
        if (seen->value[i] != 0)
            return;
    }
    fprintf(stderr, "%s: no case with %s\n", op_info[seen->op].text, field);
    fields_lacking++;
}

enum {
    WORDS_NormKind = NORM_KIND_COUNT,
    WORDS_ActKind = ACT_KIND_COUNT,
    WORDS_CurveKind = CURVE_KIND_COUNT,
    WORDS_RopeScaling = ROPE_SCALING_COUNT,
    WORDS_GroupScore = GROUP_SCORE_COUNT
};

enum { MOST_FIELDS = 16 };

/* Two readings of attrs.def: the values of one case's fields, and what they must have been. */
#define I(name) see(&seen[f++], (double)a->name);
#define N(name) see(&seen[f++], a->name);
#define E(Enum, name) see(&seen[f++], (double)a->name);
#define OI(name) I(name)
#define ON(name) N(name)
#define OS(name) see(&seen[f++], a->name != NULL);
#define ATTRS(kind, fields)                                                                        \
    case ATTRS_##kind: {                                                                           \
        const Attr_##kind *a = &attrs->kind;                                                       \
        (void)a;                                                                                   \
        fields break;                                                                              \
    }
static void see_fields(Seen *seen, AttrKind kind, const Attrs *attrs)
{
    int f = 0;
    switch (kind) {
#include "ir/attrs.def"
    case ATTRS_COUNT:
        break;
    }
    assert_true(f <= MOST_FIELDS);
}
#undef I
#undef N
#undef E
#undef OS
#undef ATTRS

#define I(name) want_number(&seen[f++], #name);
#define N(name) I(name)
#define OS(name) I(name)
#define E(Enum, name) want_words(&seen[f++], #name, WORDS_##Enum);
#define ATTRS(kind, fields)                                                                        \
    case ATTRS_##kind:                                                                             \
        fields break;
static void want_fields(const Seen *seen, AttrKind kind)
{
    int f = 0;
    switch (kind) {
#include "ir/attrs.def"
    case ATTRS_COUNT:
        break;
    }
    assert_true(f <= MOST_FIELDS);
}
#undef I
#undef N
#undef E
#undef OI
#undef ON
#undef OS
#undef ATTRS

/* Each field of attrs.def is used by a case of each op that has it. */
static void test_all_attributes(void **state)
{
    (void)state;
    assert_true(op_case_count <= MOST_CASES);
    fields_lacking = 0;
    static Seen seen[MOST_FIELDS];
    for (int op = 0; op < OP_COUNT; op++) {
        int cases = 0;
        for (int f = 0; f < MOST_FIELDS; f++)
            seen[f] = (Seen){.op = (OpId)op};
        for (int i = 0; i < op_case_count; i++) {
            if ((int)op_cases[i].op != op)
                continue;
            see_fields(seen, op_info[op].attrs, &op_cases[i].attrs);
            cases++;
        }
        if (cases > 0)
            want_fields(seen, op_info[op].attrs);
    }
    assert_int_equal(fields_lacking, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_differences),
    cmocka_unit_test(test_all_ops),
    cmocka_unit_test(test_all_attributes),
};

RUN(tests)
