/* test_gemm.c - einsums as products of matrices: what gemm_build says, done by plain loops, against
 * eval_node. */
#include "codegen/gemm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codegen/rows.h"
#include "ir/base/rng.h"
#include "ir/eval.h"
#include "tests/check.h"

static const char dim_letters[] = "bshgrdfvc";
static const int64_t dim_extents[] = {2, 3, 5, 2, 3, 4, 7, 6, 3};

static Net *net_with_dims(Arena *arena)
{
    Net *net = ARENA_NEW(arena, Net);
    net->arena = arena;
    net->name = "test";
    for (int i = 0; dim_letters[i]; i++) {
        char name[2] = {dim_letters[i], 0};
        net_add_dim(net, arena_strdup(arena, name), DIM_OTHER, dim_extents[i]);
    }
    return net;
}

/* The signature's node over inputs of its letters, and an instruction that binds whole copies. */
static Body *body_of(Arena *arena, const char *sig, Inst *ret_inst)
{
    Net *net = net_with_dims(arena);
    Graph *graph = net_add_class(net, "test");
    const char *comma = strchr(sig, ','), *arrow = strstr(sig, "->");
    const char *begin[2] = {sig, comma + 1};
    ValueId in[2];
    for (int k = 0; k < 2; k++) {
        DimId dim[MAX_AXES];
        int n = (int)((k ? arrow : comma) - begin[k]);
        for (int a = 0; a < n; a++)
            dim[a] = (DimId)(strchr(dim_letters, begin[k][a]) - dim_letters);
        in[k] = graph_value(graph, VALUE_INPUT, k ? "y" : "x", n, dim);
    }
    NodeId node = graph_node(graph, OP_EINSUM, "z", sig, NULL, in, 2);
    Body *body = ARENA_NEW(arena, Body);
    *body = (Body){.net = net, .graph = graph};
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        Copy copy = {.name = value->name,
                     .value = v,
                     .dtype = DT_F32,
                     .alias = NONE,
                     .elements = 1,
                     .param = NONE};
        for (int a = 0; a < value->axes; a++)
            copy.elements *= copy.local[a] = net->dims.at[value->dim[a]].extent;
        vec_push(arena, &body->copies) = copy;
    }
    *ret_inst = (Inst){.kind = INST_KERNEL, .nodes = 1, .node = {node}, .ins = 2, .outs = 1};
    ret_inst->bind_in = arena_array(arena, 1, sizeof *ret_inst->bind_in);
    ret_inst->bind_out = arena_array(arena, 1, sizeof *ret_inst->bind_out);
    ret_inst->bind_in[0][0] = ret_inst->in[0] = in[0];
    ret_inst->bind_in[0][1] = ret_inst->in[1] = in[1];
    ret_inst->bind_out[0][0] = ret_inst->out[0] = graph->nodes.at[node].out[0];
    return body;
}

static double element(const double *x, bool trans, int64_t ld, int64_t row, int64_t col)
{
    return trans ? x[col * ld + row] : x[row * ld + col];
}

static void multiply(const Gemm *g, const double *a, const double *b, double *c)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < g->k; k++)
                sum += element(a, g->trans_a, g->lda, i, k) * element(b, g->trans_b, g->ldb, k, j);
            c[i * g->ldc + j] = sum;
        }
    }
}

static void run_loops(const Gemm *g, int depth, const double *a, const double *b, double *c)
{
    if (depth == g->loops) {
        multiply(g, a, b, c);
        return;
    }
    const GemmLoop *loop = &g->loop[depth];
    for (int64_t i = 0; i < loop->extent; i++)
        run_loops(g, depth + 1, a + i * loop->stride[0], b + i * loop->stride[1],
                  c + i * loop->stride[2]);
}

static void check_einsum(const char *sig, int want_loops)
{
    Arena *arena = arena_new("gemm");
    Inst inst;
    Body *body = body_of(arena, sig, &inst);
    const Node *node = &body->graph->nodes.at[inst.node[0]];
    assert_false(einsum_is_rows(body, node));
    Gemm gemm;
    assert_true(gemm_build(arena, body, &inst, &gemm));
    assert_int_equal(gemm.loops, want_loops);
    double *value[3];
    for (int v = 0; v < 3; v++) {
        value[v] = ARENA_ARRAY(arena, double, body->copies.at[v].elements);
        for (int64_t i = 0; i < body->copies.at[v].elements; i++)
            value[v][i] = rng_normal(1, (uint64_t)v, (uint64_t)i);
    }
    int out = inst.out[0];
    double *want = ARENA_ARRAY(arena, double, body->copies.at[out].elements);
    int64_t extent[MAX_LETTERS], origin[MAX_LETTERS] = {0};
    for (int l = 0; l < node->sig.letters; l++)
        extent[l] = letter_extent(body->net, node, l);
    eval_node(body->net, body->graph, node, (const double *const[]){value[0], value[1]},
              (double *const[]){want}, extent, origin, NULL);
    for (int64_t i = 0; i < body->copies.at[out].elements; i++)
        value[out][i] = NAN;
    run_loops(&gemm, 0, value[gemm.a], value[gemm.b], value[gemm.c]);
    for (int64_t i = 0; i < body->copies.at[out].elements; i++) {
        if (!(fabs(value[out][i] - want[i]) < 1e-9))
            fprintf(stderr, "%s: element %lld is %g, want %g\n", sig, (long long)i, value[out][i],
                    want[i]);
        assert_true(fabs(value[out][i] - want[i]) < 1e-9);
    }
    arena_free(arena);
}

/* Forward, both gradients, and both ways to store a weight. */
static void test_linears(void **state)
{
    (void)state;
    static const char *const sigs[] = {
        "bsh,fh->bsf",     "bsh,hf->bsf",     "bsf,fh->bsh",     "bsf,hf->bsh",
        "bsf,bsh->fh",     "bsh,bsf->hf",     "bsh,grdh->bsgrd", "bsgrd,grdh->bsh",
        "bsgrd,bsh->grdh", "bsh,hcgd->bscgd", "bscgd,hcgd->bsh", "bsh,bscgd->hcgd",
        "bsgrd,hgrd->bsh", "bsh,hgrd->bsgrd", "bsh,bsgrd->hgrd", "bsh,vh->bsv",
        "bsv,vh->bsh",     "bsv,bsh->vh",
    };
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++)
        check_einsum(sigs[i], 0);
}

/* Letters of all three operands are loops, and so are groups that are not dense everywhere. */
static void test_loops(void **state)
{
    (void)state;
    check_einsum("bsh,bhf->bsf", 1);
    check_einsum("bsgd,bvgd->bgsv", 2);
    check_einsum("bgsv,bvgd->bsgd", 2);
    check_einsum("bsh,hf->sbf", 1);
}

/* The output lies transposed: the operands change places. */
static void test_transposed_output(void **state)
{
    (void)state;
    check_einsum("sh,fh->fs", 0);
    check_einsum("bsh,fh->fbs", 0);
}

/* What has no two matrices in it belongs to row programs. */
static void test_not_a_product(void **state)
{
    (void)state;
    static const char *const sigs[] = {"bsgrd,bsgrd->bsgr", "bs,bs->",      "bsh,h->bs",
                                       "bs,bsh->h",         "bsh,bsh->bsh", "bsh,bsd->bsdh",
                                       "bsdh,bsd->bsh"};
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) {
        Arena *arena = arena_new("gemm");
        Inst inst;
        Body *body = body_of(arena, sigs[i], &inst);
        assert_true(einsum_is_rows(body, &body->graph->nodes.at[inst.node[0]]));
        Gemm gemm;
        assert_false(gemm_build(arena, body, &inst, &gemm));
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linears), cmocka_unit_test(test_loops),
                                       cmocka_unit_test(test_transposed_output),
                                       cmocka_unit_test(test_not_a_product)};
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
