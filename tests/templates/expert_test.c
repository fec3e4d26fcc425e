/* expert_test.c - linears of experts against the meaning of their ops. */
#include "templates/host/expert.c"

#include <math.h>
#include <stdlib.h>

#include "ir/base/rng.h"
#include "ir/graph.h"
#include "tests/check.h"
#include "tests/templates/eval_one.h"

/* Tokens enough for several tiles of one expert. */
enum { N = 301, K = 3, E = 5, F = 19, T = 23, CHOICES = N * K };

static const NamedDim all_dims[] = {{"n", N}, {"k", K}, {"e", E}, {"f", F}, {"m", T}};

typedef struct Case {
    LpExpert e;
    NamedDim dims[5];
    int32_t *choice;
    float *x, *y, *w;
    double *exact_choice, *exact_x, *exact_y, *exact_w;
} Case;

static float *numbers(Arena *arena, uint64_t seed, int64_t n, double **ret_exact)
{
    float *x = ARENA_ARRAY(arena, float, n);
    *ret_exact = ARENA_ARRAY(arena, double, n);
    for (int64_t i = 0; i < n; i++)
        (*ret_exact)[i] = x[i] = (float)rng_normal(seed, 9, (uint64_t)i);
    return x;
}

/* Experts [base, base + experts) of E; expert 2 has no token, expert 0 has half of them, some
 * choices are nobody's. */
static Case case_new(Arena *arena, bool shared, bool to_first, int base, int experts)
{
    Case c = {.e = {.tokens = N,
                    .k = K,
                    .shared = shared,
                    .experts = experts,
                    .base = base,
                    .from = F,
                    .to = T,
                    .to_first = to_first}};
    memcpy(c.dims, all_dims, sizeof c.dims);
    c.dims[2].extent = experts;
    c.choice = ARENA_ARRAY(arena, int32_t, CHOICES);
    c.exact_choice = ARENA_ARRAY(arena, double, CHOICES);
    for (int i = 0; i < CHOICES; i++) {
        double unit = rng_unit(3, 1, (uint64_t)i);
        int id = unit < 0.5 ? 0 : (int)floor(unit * 14) - 8;
        c.exact_choice[i] = c.choice[i] = id == 2 ? -1 : id;
    }
    c.x = numbers(arena, 11, shared ? N * F : CHOICES * F, &c.exact_x);
    c.y = numbers(arena, 12, CHOICES * T, &c.exact_y);
    c.w = numbers(arena, 13, (int64_t)experts * F * T, &c.exact_w);
    return c;
}

static void *scratch_new(const LpExpert *e)
{
    void *scratch = malloc(LP_EXPERT_BYTES(e->tokens * e->k, e->experts, e->from, e->to));
    assert_non_null(scratch);
    return scratch;
}

static void compare(const float *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double scale = fabs(want[i]) > 1 ? fabs(want[i]) : 1;
        assert_true(fabs(got[i] - want[i]) <= 1e-4 * scale);
    }
}

static void check_forward(bool shared, bool to_first, int base, int experts)
{
    Arena *arena = arena_new("expert");
    Case c = case_new(arena, shared, to_first, base, experts);
    const char *sig =
        arena_printf(arena, "nk,%s,%s->nkm", shared ? "nf" : "nkf", to_first ? "emf" : "efm");
    int64_t origin = base;
    eval_one(OP_EXPERT, sig, NULL, c.dims, 5,
             (const double *[]){c.exact_choice, c.exact_x, c.exact_w}, (double *[]){c.exact_y},
             &origin);
    void *scratch = scratch_new(&c.e);
    lp_expert_forward(&c.e, c.choice, c.x, c.w, c.y, scratch);
    compare(c.y, c.exact_y, CHOICES * T);
    for (int i = 0; i < CHOICES; i++) {
        bool mine = c.choice[i] >= base && c.choice[i] < base + experts;
        for (int t = 0; !mine && t < T; t++)
            assert_true(c.y[i * T + t] == 0.0f);
    }
    free(scratch);
    arena_free(arena);
}

static void check_backward(bool shared, bool to_first, int base, int experts)
{
    Arena *arena = arena_new("expert");
    Case c = case_new(arena, shared, to_first, base, experts);
    const char *sig =
        arena_printf(arena, "nk,nkm,%s->%s", shared ? "nf" : "nkf", to_first ? "emf" : "efm");
    int64_t origin = base, n = (int64_t)experts * F * T;
    double *want = ARENA_ARRAY(arena, double, n);
    float *before = ARENA_ARRAY(arena, float, n);
    memcpy(before, c.w, (size_t)n * sizeof *before);
    eval_one(OP_EXPERT_DW, sig, NULL, c.dims, 5,
             (const double *[]){c.exact_choice, c.exact_y, c.exact_x}, (double *[]){want}, &origin);
    void *scratch = scratch_new(&c.e);
    lp_expert_backward(&c.e, c.choice, c.y, c.x, c.w, 0, scratch);
    for (int64_t i = 0; i < n; i++)
        want[i] += before[i];
    compare(c.w, want, n);
    for (int64_t i = 0; i < n; i++) {
        want[i] -= before[i];
        c.w[i] = NAN;
    }
    lp_expert_backward(&c.e, c.choice, c.y, c.x, c.w, 1, scratch);
    compare(c.w, want, n);
    if (base <= 2 && base + experts > 2) {
        for (int i = 0; i < F * T; i++)
            assert_true(c.w[(2 - base) * F * T + i] == 0.0f);
    }
    free(scratch);
    arena_free(arena);
}

static void test_every_form(void **state)
{
    (void)state;
    static const int blocks[][2] = {{0, E}, {0, 2}, {2, 3}, {4, 1}};
    for (int form = 0; form < 4; form++) {
        for (int b = 0; b < 4; b++) {
            check_forward(form & 1, form & 2, blocks[b][0], blocks[b][1]);
            check_backward(form & 1, form & 2, blocks[b][0], blocks[b][1]);
        }
    }
}

static void set_threads(int threads)
{
#if defined(_OPENMP)
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
}

/* The bits of one thread. */
static void test_threads(void **state)
{
    (void)state;
    Arena *arena = arena_new("expert");
    enum { WEIGHTS = E * F * T };
    float *y = ARENA_ARRAY(arena, float, CHOICES *T), *w = ARENA_ARRAY(arena, float, WEIGHTS);
    for (int threads = 1; threads <= 4; threads++) {
        Case c = case_new(arena, true, true, 0, E);
        void *scratch = scratch_new(&c.e);
        set_threads(threads);
        lp_expert_backward(&c.e, c.choice, c.y, c.x, c.w, 0, scratch);
        lp_expert_forward(&c.e, c.choice, c.x, c.w, c.y, scratch);
        if (threads == 1) {
            memcpy(y, c.y, CHOICES * T * sizeof *y);
            memcpy(w, c.w, WEIGHTS * sizeof *w);
        }
        assert_memory_equal(c.y, y, CHOICES * T * sizeof *y);
        assert_memory_equal(c.w, w, WEIGHTS * sizeof *w);
        free(scratch);
    }
    arena_free(arena);
}

/* What the compiler reserves is what the template takes. */
static void check_workspace(bool shared, bool backward)
{
    Arena *arena = arena_new("expert");
    Net *net = net_new(arena, "one");
    DimId d[5];
    for (int i = 0; i < 5; i++)
        d[i] = net_add_dim(net, all_dims[i].name, DIM_OTHER, all_dims[i].extent);
    enum { n, k, e, f, m };
    Graph *graph = net_add_class(net, "one");
    ValueId choice = graph_value(graph, VALUE_INPUT, "choice", 2, (DimId[]){d[n], d[k]});
    graph->values.at[choice].number = NUM_INDEX;
    ValueId x = shared ? graph_value(graph, VALUE_INPUT, "x", 2, (DimId[]){d[n], d[f]})
                       : graph_value(graph, VALUE_INPUT, "x", 3, (DimId[]){d[n], d[k], d[f]});
    ValueId w = graph_value(graph, VALUE_INPUT, "w", 3, (DimId[]){d[e], d[m], d[f]});
    ValueId y = graph_value(graph, VALUE_INPUT, "y", 3, (DimId[]){d[n], d[k], d[m]});
    const char *rows = shared ? "nf" : "nkf";
    NodeId id =
        backward
            ? graph_node(graph, OP_EXPERT_DW, "dw", arena_printf(arena, "nk,nkm,%s->emf", rows),
                         NULL, (ValueId[]){choice, y, x}, 3)
            : graph_node(graph, OP_EXPERT, "made", arena_printf(arena, "nk,%s,emf->nkm", rows),
                         NULL, (ValueId[]){choice, x, w}, 3);
    const Node *node = &graph->nodes.at[id];
    int64_t extent[MAX_LETTERS] = {0};
    for (int l = 0; l < node->sig.letters; l++)
        extent[l] = letter_extent(net, node, l);
    assert_int_equal(node_workspace_bytes(graph, node, extent, 2),
                     LP_EXPERT_BYTES(CHOICES, E, F, T));
    arena_free(arena);
}

static void test_workspace(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++)
        check_workspace(form & 1, form & 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_workspace),
    };
    return cmocka_run_group_tests_name("expert", tests, NULL, NULL);
}
