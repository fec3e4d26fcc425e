/* test_gemm.c - einsums as products of matrices: what gemm_build says, done by plain loops, against
 * eval_node. */
#include "codegen/gemm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

enum { RING = 3 };

/* The signature's node over inputs of its letters, and an instruction that binds whole copies. */
static Body *body_of(Arena *arena, const char *sig, Inst *ret_inst)
{
    Mesh *mesh = ARENA_NEW(arena, Mesh);
    *mesh = (Mesh){.n = 1, .atom = {{.extent = RING}}};
    ClassPlan *plan = ARENA_NEW(arena, ClassPlan);
    plan->choice = ARENA_NEW(arena, NodeChoice);
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
    *body = (Body){.net = net, .graph = graph, .mesh = mesh, .plan = plan};
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

static void multiply(const Gemm *g, bool add, const double *a, const double *b, double *c)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < g->k; k++)
                sum += element(a, g->trans_a, g->lda, i, k) * element(b, g->trans_b, g->ldb, k, j);
            c[i * g->ldc + j] = add ? c[i * g->ldc + j] + sum : sum;
        }
    }
}

static void run_loops(const Gemm *g, int depth, bool add, const double *a, const double *b,
                      double *c)
{
    if (depth == g->loops) {
        multiply(g, add, a, b, c);
        return;
    }
    const GemmLoop *loop = &g->loop[depth];
    for (int64_t i = 0; i < loop->extent; i++)
        run_loops(g, depth + 1, add || (loop->sums && i > 0), a + i * loop->stride[0],
                  b + i * loop->stride[1], c + i * loop->stride[2]);
}

static void check_einsum(const char *sig, int want_loops)
{
    Arena *arena = arena_new("gemm");
    Inst inst;
    Body *body = body_of(arena, sig, &inst);
    const Node *node = &body->graph->nodes.at[inst.node[0]];
    assert_true(node_is_product(body->graph, node));
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
    run_loops(&gemm, 0, false, value[gemm.a], value[gemm.b], value[gemm.c]);
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

typedef struct Turns {
    Body *body;
    const int8_t *letters[3];
    int at[3]; /* axis of which a turn sees one block, or NONE */
} Turns;

/* Is this element of a copy in the block of the turn? */
static bool sees(const Turns *t, int copy, int64_t element, int turn)
{
    const Copy *c = &t->body->copies.at[copy];
    for (int a = t->body->graph->values.at[copy].axes - 1; a > t->at[copy]; a--)
        element /= t->at[copy] == NONE ? 1 : c->local[a];
    return t->at[copy] == NONE ||
           element % c->local[t->at[copy]] / (c->local[t->at[copy]] / RING) == turn;
}

/* The elements of a turn, dense, or back. Returns how many. */
static int64_t gather(const Turns *t, int copy, int turn, const double *from, double *to)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t->body->copies.at[copy].elements; i++)
        if (sees(t, copy, i, turn))
            to[n++] = from[i];
    return n;
}

/* In a turn of a ring products are those of one block along the passing letter: of what has the
 * staying one too, where it lies; of all else the copy is the block. */
static void check_turns_of(const char *sig, char stay, char pass)
{
    Arena *arena = arena_new("gemm");
    Inst inst;
    Turns t = {.body = body_of(arena, sig, &inst)};
    const Node *node = &t.body->graph->nodes.at[inst.node[0]];
    NodeChoice *choice = t.body->plan->choice;
    int64_t extent[MAX_LETTERS], origin[MAX_LETTERS] = {0};
    for (int l = 0; l < node->sig.letters; l++) {
        extent[l] = letter_extent(t.body->net, node, l);
        if (node->sig.letter[l] == stay)
            choice->atom[0] = (Choice)(CHOICE_LETTER + l);
        if (node->sig.letter[l] == pass)
            choice->travel[0] = (Choice)(CHOICE_LETTER + l);
    }
    AtomList ring = node_ring(t.body->mesh, choice);
    double *x[3], *block[3];
    for (int v = 0; v < 3; v++) {
        Copy *copy = &t.body->copies.at[v];
        t.letters[v] = v < 2 ? node->sig.in[v] : node->sig.out[0];
        t.at[v] = ring_block_axis(&ring, choice, t.letters[v], t.body->graph->values.at[v].axes);
        copy->local[t.at[v] == NONE ? 0 : t.at[v]] *= t.at[v] == NONE ? 1 : RING;
        copy->elements *= t.at[v] == NONE ? 1 : RING;
        x[v] = ARENA_ARRAY(arena, double, copy->elements);
        block[v] = ARENA_ARRAY(arena, double, copy->elements);
        for (int64_t i = 0; i < copy->elements; i++)
            x[v][i] = (double)(i % 11) - 5;
    }
    Gemm gemm;
    assert_true(gemm_build(arena, t.body, &inst, &gemm));
    for (int turn = 0; turn < RING; turn++) {
        gather(&t, 0, turn, x[0], block[0]);
        gather(&t, 1, turn, x[1], block[1]);
        double *want = ARENA_ARRAY(arena, double, t.body->copies.at[2].elements),
               *got = ARENA_ARRAY(arena, double, t.body->copies.at[2].elements);
        eval_node(t.body->net, t.body->graph, node, (const double *const[]){block[0], block[1]},
                  (double *const[]){want}, extent, origin, NULL);
        run_loops(&gemm, 0, false, x[gemm.a] + turn * gemm.block[0],
                  x[gemm.b] + turn * gemm.block[1], got + turn * gemm.block[2]);
        int64_t n = gather(&t, 2, turn, got, block[2]);
        for (int64_t i = 0; i < n; i++)
            assert_true(block[2][i] == want[i]);
        for (int64_t i = 0; i < t.body->copies.at[2].elements; i++)
            assert_true(sees(&t, 2, i, turn) || got[i] == 0);
    }
    arena_free(arena);
}

static void test_turns(void **state)
{
    (void)state;
    check_turns_of("bsh,gh->bsg", 'g', 's'); /* x passes by, its products lie side by side */
    check_turns_of("bsg,hg->bsh", 'g', 's'); /* sums pass by */
    check_turns_of("bsg,bsh->gh", 'g', 's'); /* the gradient of weights: over sequences too */
    check_turns_of("bsh,bsg->hg", 'g', 's');
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
        assert_false(node_is_product(body->graph, &body->graph->nodes.at[inst.node[0]]));
        Gemm gemm;
        assert_false(gemm_build(arena, body, &inst, &gemm));
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linears), cmocka_unit_test(test_loops),
                                       cmocka_unit_test(test_transposed_output),
                                       cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_not_a_product)};
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
