/* test_rows_ops.c - one row kernel for every op, attribute and odd signature, on the host and as
 * CUDA text, against eval_node. */
#include <string.h>

#include "codegen/gemm.h"
#include "tests/check.h"
#include "tests/codegen/row_cases.h"

static const struct {
    char letter;
    DimKind kind;
    int64_t extent, used;
} dims[] = {
    {'b', DIM_BATCH, 2, 2}, {'s', DIM_SEQUENCE, 6, 6}, {'h', DIM_OTHER, 70, 70},
    {'g', DIM_OTHER, 4, 4}, {'r', DIM_OTHER, 3, 3},    {'d', DIM_OTHER, 8, 8},
    {'e', DIM_OTHER, 5, 5}, {'k', DIM_OTHER, 3, 3},    {'v', DIM_OTHER, 24, 21},
    {'o', DIM_OTHER, 1, 1}, {'f', DIM_OTHER, 7, 7},    {'p', DIM_OTHER, 12, 12},
};

static Net *net_with_dims(Arena *arena)
{
    Net *net = net_new(arena, "test");
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        char name[2] = {dims[i].letter, 0};
        DimId id = net_add_dim(net, arena_strdup(arena, name), dims[i].kind, dims[i].extent);
        net->dims.at[id].used = dims[i].used;
    }
    return net;
}

typedef struct OpCase {
    OpId op;
    const char *sig;
    Attrs attrs;
} OpCase;

/* What reads whole numbers: begins of documents, and labels. */
static bool reads_index(OpId op, int operand)
{
    return op == OP_PLACES || (op == OP_ROPE && operand == 1) || (op == OP_PICK && operand == 0) ||
           (op == OP_ONEHOT && operand == 0);
}

static void add_copies(Arena *arena, Body *body, const Node *node, DType real, bool accumulates)
{
    for (int v = 0; v < body->graph->values.n; v++) {
        const Value *value = &body->graph->values.at[v];
        Copy copy = {.name = value->name,
                     .value = v,
                     .dtype = value->number == NUM_INDEX ? DT_I32 : real,
                     .alias = NONE,
                     .elements = 1,
                     .home = v == node->out[0] && accumulates ? HOME_ACC : HOME_TEMP,
                     .param = NONE};
        for (int a = 0; a < value->axes; a++) {
            const Dim *dim = &body->net->dims.at[value->dim[a]];
            /* Heads, and what is dropped out, are a block of all. */
            bool part = (node->op == OP_SLOPES && dim->letter != 'r') ||
                        (op_draws(node->op) && dim->extent % 2 == 0);
            copy.local[a] = part ? dim->extent / 2 : dim->extent;
            copy.elements *= copy.local[a];
        }
        vec_push(arena, &body->copies) = copy;
    }
}

/* The signature's node over inputs of its letters, and an instruction that binds whole copies. */
/* runs: that the sequence is dealt out in. */
static Body *body_of(Arena *arena, const OpCase *c, int64_t runs, DType real, bool accumulates,
                     Inst *ret_inst)
{
    OpId op = c->op;
    const char *sig = c->sig;
    Net *net = net_with_dims(arena);
    net->runs = runs;
    Graph *graph = net_add_class(net, "test");
    ValueId in[MAX_IN];
    /* "->bs" makes something of nothing, or repeats one number. */
    int ins = *sig != '-' || op == OP_BROADCAST;
    for (const char *at = sig; *at; at++)
        ins += *at == ',';
    const char *at = sig;
    for (int k = 0; k < ins; k++) {
        size_t n = strcspn(at, ",-");
        DimId dim[MAX_AXES];
        for (size_t a = 0; a < n; a++)
            dim[a] = net_dim(net, (char[]){at[a], 0});
        in[k] = graph_value(graph, VALUE_INPUT, arena_printf(arena, "in%d", k), (int)n, dim);
        if (reads_index(op, k))
            graph->values.at[in[k]].number = NUM_INDEX;
        at += n + (at[n] == ',');
    }
    NodeId id = graph_node(graph, op, "out", sig, &c->attrs, in, ins);
    const Node *node = &graph->nodes.at[id];
    Body *body = ARENA_NEW(arena, Body);
    ClassPlan *plan = ARENA_NEW(arena, ClassPlan);
    plan->choice = ARENA_NEW(arena, NodeChoice);
    *body = (Body){.net = net, .graph = graph, .mesh = ARENA_NEW(arena, Mesh), .plan = plan};
    add_copies(arena, body, node, real, accumulates);
    *ret_inst = (Inst){.kind = INST_KERNEL, .nodes = 1, .ins = ins, .outs = 1, .form = FORM_rows};
    ret_inst->bind_in = arena_array(arena, 1, sizeof *ret_inst->bind_in);
    ret_inst->bind_out = arena_array(arena, 1, sizeof *ret_inst->bind_out);
    for (int k = 0; k < ins; k++)
        ret_inst->bind_in[0][k] = ret_inst->in[k] = in[k];
    ret_inst->bind_out[0][0] = ret_inst->out[0] = node->out[0];
    return body;
}

static void add_case(Arena *arena, const OpCase *c, int64_t runs, DType real, bool accumulates,
                     RowCaseList *ret)
{
    Inst *inst = ARENA_NEW(arena, Inst);
    Body *body = body_of(arena, c, runs, real, accumulates, inst);
    Gemm gemm;
    if (c->op == OP_EINSUM)
        assert_false(gemm_build(arena, body, inst, &gemm));
    row_cases_add(arena, body, inst, ret);
}

/* Each case once, those that may accumulate once more; for both targets and types of elements. In
 * bf16 the arithmetic between is fp32: one rounding of each result. */
static void run_cases(const OpCase *list, const int64_t *runs, size_t n, bool accumulates)
{
    for (int variant = 0; variant < 4; variant++) {
        Arena *arena = arena_new("rows");
        RowCaseList cases = {0};
        DType real = variant / 2 ? DT_BF16 : DT_F32;
        for (size_t i = 0; i < n; i++) {
            /* Sums that need row numbers are added up by blocks, into cleared memory. */
            if (list[i].op != OP_NORM_DG)
                add_case(arena, &list[i], runs ? runs[i] : 0, real, false, &cases);
            if (accumulates || list[i].op == OP_NORM_DG)
                add_case(arena, &list[i], runs ? runs[i] : 0, real, true, &cases);
        }
        row_cases_run(arena, &cases, variant % 2 ? &target_cuda : &target_host,
                      real == DT_BF16 ? 1.0 / 256 : 2e-5);
        arena_free(arena);
    }
}

static void run_list(const OpCase *list, size_t n, bool accumulates)
{
    run_cases(list, NULL, n, accumulates);
}

static void test_functions(void **state)
{
    (void)state;
    OpCase list[2 * (ACT_KIND_COUNT + CURVE_KIND_COUNT)];
    size_t n = 0;
    static const double a[CURVE_KIND_COUNT] = {1.702, 0.7, 0.3, -0.4, 0.2, 0.5};
    static const double b[CURVE_KIND_COUNT] = {[CURVE_CLAMP] = 0.8, [CURVE_RSQRT] = 0.3};
    for (int kind = 0; kind < ACT_KIND_COUNT; kind++) {
        Attrs attrs = {.act = {.kind = (ActKind)kind}};
        list[n++] = (OpCase){OP_ACT, "bsh->bsh", attrs};
        list[n++] = (OpCase){OP_ACT_GRAD, "bsh,bsh->bsh", attrs};
    }
    for (int kind = 0; kind < CURVE_KIND_COUNT; kind++) {
        Attrs attrs = {.curve = {.kind = (CurveKind)kind, .a = a[kind], .b = b[kind]}};
        list[n++] = (OpCase){OP_CURVE, "bsh->bsh", attrs};
        list[n++] = (OpCase){OP_CURVE_GRAD, "bsh,bsh->bsh", attrs};
    }
    run_list(list, n, false);
}

static void test_norms(void **state)
{
    (void)state;
    OpCase list[6];
    for (int kind = 0; kind < NORM_KIND_COUNT; kind++) {
        Attrs attrs = {.norm = {.kind = (NormKind)kind, .eps = 1e-3, .shift = 1}};
        list[3 * kind] = (OpCase){OP_NORM, "bsh,h->bsh", attrs};
        list[3 * kind + 1] = (OpCase){OP_NORM_DX, "bsh,h,bsh->bsh", attrs};
        list[3 * kind + 2] = (OpCase){OP_NORM_DG, "bsh,bsh->h", attrs};
    }
    run_list(list, 6, false);
}

/* Rows of few and of many columns, and the sums of a vocabulary that is padded. */
static void test_softmax(void **state)
{
    (void)state;
    static const OpCase list[] = {
        {.op = OP_SOFTMAX, .sig = "bse->bse"},
        {.op = OP_SOFTMAX, .sig = "bsh->bsh"},
        {.op = OP_SOFTMAX, .sig = "bso->bso"},
        {.op = OP_SOFTMAX_GRAD, .sig = "bse,bse->bse"},
        {.op = OP_SOFTMAX_GRAD, .sig = "bsh,bsh->bsh"},
        {.op = OP_VSUM, .sig = "bsv->bs"},
        {.op = OP_VFILL, .sig = "bs->bsv"},
        {.op = OP_VMAX, .sig = "bsv->bs"},
        {.op = OP_SUMEXP, .sig = "bsv,bs->bs"},
        {.op = OP_PICK, .sig = "bs,bsv->bs"},
        {.op = OP_EXPMUL, .sig = "bsv,bs,bs->bsv"},
        {.op = OP_ONEHOT, .sig = "bs,bs->bsv"},
    };
    run_list(list, sizeof list / sizeof *list, false);
}

static void test_positions(void **state)
{
    (void)state;
    static const OpCase list[] = {
        {OP_ROPE, "bsgd->bsgd", {.rope = {.theta = 100, .rotary = 8, .gain = 1.3}}},
        {OP_ROPE, "bsgd,bs->bsgd", {.rope = {.theta = 100, .rotary = 8}}},
        {OP_ROPE,
         "bsgrd,bs->bsgrd",
         {.rope = {.theta = 100, .rotary = 6, .interleaved = 1, .inverse = 1, .gain = 0.8}}},
        {OP_ROPE,
         "bsd,bs->bsd",
         {.rope = {.theta = 100,
                   .rotary = 8,
                   .scaling = ROPE_YARN,
                   .factor = 4,
                   .low = 1,
                   .high = 32,
                   .original = 64,
                   .gain = 1.1}}},
        {OP_ROPE,
         "bsgd->bsgd",
         {.rope = {.theta = 100, .rotary = 4, .scaling = ROPE_LONG, .factors = "1.05,2"}}},
        {OP_TEMPER, "bsgrd->bsgrd", {.temper = {.scale = 0.3, .length = 4}}},
        {OP_TEMPER, "bsh->bsh", {.temper = {.scale = 0.1, .length = 3, .ahead = 1}}},
        {OP_TEMPER, "bs->bs", {.temper = {.scale = 0.1, .length = 3, .ahead = 1}}},
        {OP_IOTA, "->s", {.iota = {.offset = 2}}},
        {.op = OP_IOTA, .sig = "->s"},
        {OP_PLACES, "bs->bs", {.iota = {.offset = 2}}},
        {.op = OP_PLACES, .sig = "bs->bs"},
        {.op = OP_SLOPES, .sig = "->g"},
        {.op = OP_SLOPES, .sig = "->p"},
        {.op = OP_SLOPES, .sig = "->gr"},
        {.op = OP_SLOPES, .sig = "->pr"},
        {OP_DROPOUT, "->bsh", {.dropout = {.rate = 0.3, .site = 2}}},
        {OP_DROPOUT, "->gbsd", {.dropout = {.rate = 0.6, .site = 5}}},
        {OP_DRAW, "->bsg", {.draw = {.site = 4}}},
        {OP_DROPOUT, "->bs", {.dropout = {.rate = 0.999}}},
        {OP_DROPOUT, "->b", {.dropout = {.rate = 0.5}}},
        {.op = OP_ONES, .sig = "->h"},
        {.op = OP_ONES, .sig = "->bse"},
        {.op = OP_ONES, .sig = "->"},
    };
    /* All of them once more with the sequence dealt out. */
    enum { CASES = sizeof list / sizeof *list };
    OpCase both[2 * CASES];
    int64_t runs[2 * CASES];
    for (int i = 0; i < 2 * CASES; i++) {
        both[i] = list[i % CASES];
        runs[i] = i < CASES ? 0 : i % 2 ? 2 : 6;
    }
    run_cases(both, runs, 2 * CASES, false);
}

/* Axes that come and go at any place. */
static void test_repeat_and_reduce(void **state)
{
    (void)state;
    static const char *const wide[] = {"bsd->bsgd", "sd->bsd",   "bs->bsh", "bd->bsd",
                                       "->bs",      "d->bsgd",   "b->bsg",  "gd->bsgrd",
                                       "bsd->obsd", "bsd->dbgs", "bh->bh"};
    static const char *const slim[] = {"bsh->bs",   "bsh->h",    "bsh->bh",   "bsh->",
                                       "bsgrd->gr", "bsgrd->sd", "bsgrd->rb", "bsgrd->bsrd",
                                       "obs->bs",   "bsgrd->dg", "bso->bs",   "bsh->s"};
    OpCase list[sizeof wide / sizeof *wide + sizeof slim / sizeof *slim];
    size_t n = 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        list[n++] = (OpCase){.op = OP_BROADCAST, .sig = wide[i]};
    for (size_t i = 0; i < sizeof slim / sizeof *slim; i++)
        list[n++] = (OpCase){.op = OP_REDUCE, .sig = slim[i]};
    run_list(list, n, true);
}

/* Products that are no product of matrices: broadcasts, sums over any axes of one operand, outer
 * products, transpositions, and depths that are no single index of both operands. */
static void test_einsums(void **state)
{
    (void)state;
    static const char *const sigs[] = {
        "bsgrd,bsgr->bsgrd",
        "bsgrd,grd->bsgrd",
        "bsgrd,bsgrd->bs",
        "bskh,bsk->bsh",
        "bsh,bsk->bskh",
        "bskh,bsh->bsk",
        "e,->e",
        ",e->e",
        "bs->",
        "bs,->bs",
        "bsgrd,bsgrd->grd",
        "bsgrd,bsgrd->gd",
        "bsgrd,bsgrd->rs",
        "bsgrd,gr->bsd",
        "bsh,sh->h",
        "bse->eb",
        "bse,e->b",
        "bse->bse",
        "bse->seb",
        "gd,d->dg",
        "bsgd,gbdh->sh",
        "bsgd,dgsh->hb",
        "bsgo,gboh->sh",
        "bsgrd,bsr->bsgd",
        "bsgd,bsrd->bsgr",
        "bs,e->ebs",
        "o,o->o",
        "bsf,fe->e",
        "bsgrk,drgkh->bsdh",
        "b,s->",
        "bs,bs->",
    };
    OpCase list[sizeof sigs / sizeof *sigs];
    size_t n = 0;
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) {
        Arena *arena = arena_new("rows");
        Inst inst;
        Gemm gemm;
        OpCase c = {.op = OP_EINSUM, .sig = sigs[i]};
        Body *body = body_of(arena, &c, 0, DT_F32, false, &inst);
        if (!gemm_build(arena, body, &inst, &gemm))
            list[n++] = c;
        arena_free(arena);
    }
    assert_true(n > 25);
    run_list(list, n, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_softmax),   cmocka_unit_test(test_positions),
        cmocka_unit_test(test_einsums),   cmocka_unit_test(test_repeat_and_reduce),
    };
    return cmocka_run_group_tests_name("rows of ops", tests, NULL, NULL);
}
