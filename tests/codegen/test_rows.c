/* test_rows.c - every printed row kernel, compiled and run, against eval_node on the same blocks.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/rows.h"
#include "codegen/target.h"
#include "ir/base/rng.h"
#include "ir/eval.h"
#include "templates/host/math.h"
#include "tests/check.h"
#include "tests/codegen/bodies.h"
#include "tests/ir/tiny_models.h"

typedef void (*Kernel)(void *const *args, const long *bases, int first);

typedef struct Case {
    const Body *body;
    const Inst *inst;
    const RowProgram *program;
    const char *name;
} Case;

typedef VEC(Case) CaseList;

static bool is_rows(const Body *body, const Inst *inst)
{
    const Node *node = &body->graph->nodes.at[inst->node[0]];
    if (inst->kind != INST_KERNEL)
        return false;
    if (inst->nodes == 1 && node->op == OP_EINSUM)
        return einsum_is_rows(body, node);
    return inst->form == FORM_rows;
}

static void collect(Arena *arena, const Program *program, CaseList *ret)
{
    Diag *diag = diag_new(arena);
    for (int c = 0; c < program->net->classes.n; c++) {
        const Body *body = program->body[c];
        for (int way = 0; way < 2; way++) {
            const InstList *list = way ? &body->backward : &body->forward;
            for (int i = 0; i < list->n; i++) {
                if (!is_rows(body, &list->at[i]))
                    continue;
                RowProgram *rows = rows_build(arena, diag, body, &list->at[i]);
                diag_print(diag, stderr, false);
                assert_non_null(rows);
                const char *name = arena_printf(arena, "k%d", ret->n);
                vec_push(arena, ret) = (Case){body, &list->at[i], rows, name};
            }
        }
    }
}

/* A wrapper that unpacks arguments, so that one C type calls every kernel. */
static void put_wrapper(Str *text, const Case *c)
{
    str_putf(text,
             "void call_%s(void *const *args, const long *bases, int first)\n{\n    (void)bases;\n "
             "   (void)first;\n    %s(",
             c->name, c->name);
    for (int i = 0; i < c->program->args.n; i++)
        str_putf(text, "%sargs[%d]", i ? ", " : "", i);
    for (int i = 0; i < c->program->bases.n; i++)
        str_putf(text, ", bases[%d]", i);
    str_putf(text, "%s);\n}\n\n", c->program->adds ? ", first" : "");
}

/* The same for CUDA text: the call goes through the shim's blocks and threads. */
static void put_launcher(Str *text, const Case *c)
{
    str_putf(text, "struct Call_%s { void *const *args; const long *bases; int first; };\n",
             c->name);
    str_putf(
        text,
        "static void body_%s(void *argument)\n{\n    Call_%s *c = (Call_%s *)argument;\n    %s(",
        c->name, c->name, c->name, c->name);
    for (int i = 0; i < c->program->args.n; i++) {
        const RowArg *arg = &c->program->args.at[i];
        str_putf(text, "%s(%s *)c->args[%d]", i ? ", " : "", target_cuda.element[arg->dtype], i);
    }
    for (int i = 0; i < c->program->bases.n; i++)
        str_putf(text, ", c->bases[%d]", i);
    str_putf(text, "%s);\n}\n\n", c->program->adds ? ", c->first" : "");
    str_putf(text,
             "extern \"C\" void call_%s(void *const *args, const long *bases, int first)\n{\n"
             "    Call_%s c = {args, bases, first};\n    shim_launch(body_%s, &c);\n}\n\n",
             c->name, c->name, c->name);
}

static void *compile_cases(Arena *arena, const CaseList *cases, const Target *target)
{
    bool cuda = target == &target_cuda;
    Str text = str_new(arena);
    str_put(&text,
            cuda
                ? "#include \"tests/codegen/cuda_shim.hh\"\n\nstatic float lp_sigmoid(float x)\n{\n"
                  "    return 1.0f / (1.0f + expf(-x));\n}\n\n"
                : "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
                  "#include \"templates/host/math.h\"\n\n");
    for (int i = 0; i < cases->n; i++) {
        str_put(&text, rows_print(arena, cases->at[i].program, target, cases->at[i].name));
        str_putc(&text, '\n');
        if (cuda)
            put_launcher(&text, &cases->at[i]);
        else
            put_wrapper(&text, &cases->at[i]);
    }
    return compiled(arena, text.at, cuda);
}

static bool is_sequence(const Body *body, DimId dim)
{
    return body->net->dims.at[dim].kind == DIM_SEQUENCE;
}

/* Blocks that begin somewhere inside: positions from 5, rows of a padded vocabulary from 3. */
static long origin_of_dim(const Body *body, DimId dim)
{
    const Dim *at = &body->net->dims.at[dim];
    return is_sequence(body, dim) ? 5 : at->used < at->extent ? 3 : 0;
}

static double random_value(const Body *body, const Copy *copy, uint64_t seed, int64_t i)
{
    double unit = rng_unit(seed, 7, (uint64_t)i);
    if (body->graph->values.at[copy->value].number == NUM_INDEX)
        return floor(unit * 11);
    return 0.1 + unit; /* positive: divisors, sums of exponentials */
}

static double rounded(DType dtype, double x)
{
    return dtype == DT_BF16 ? (double)lp_float_of_bf16(lp_bf16_of_float((float)x)) : x;
}

static double *fill(Arena *arena, const Body *body, int id, uint64_t seed)
{
    const Copy *copy = &body->copies.at[id];
    double *x = ARENA_ARRAY(arena, double, copy->elements + 1);
    for (int64_t i = 0; i < copy->elements; i++)
        x[i] = rounded(copy->dtype, random_value(body, copy, seed, i));
    return x;
}

/* The instruction by its nodes' meanings. */
static double **evaluate(Arena *arena, const Case *c, uint64_t seed)
{
    const Body *body = c->body;
    double **value = ARENA_ARRAY(arena, double *, body->copies.n);
    for (int i = 0; i < c->inst->ins; i++)
        value[c->inst->in[i]] = fill(arena, body, c->inst->in[i], seed + (uint64_t)i);
    for (int n = 0; n < c->inst->nodes; n++) {
        const Node *node = &body->graph->nodes.at[c->inst->node[n]];
        const double *in[MAX_IN] = {NULL};
        double *out[MAX_OUT] = {NULL};
        int64_t extent[MAX_LETTERS] = {0}, origin[MAX_LETTERS] = {0};
        for (int l = 0; l < node->sig.letters; l++) {
            extent[l] = letter_extent(body->net, node, l);
            origin[l] = node->sig.base >> l & 1 ? origin_of_dim(body, node->sig.dim[l]) : 0;
        }
        for (int k = 0; k < node->ins; k++)
            in[k] = value[c->inst->bind_in[n][k]];
        for (int k = 0; k < node->outs; k++) {
            int id = c->inst->bind_out[n][k];
            out[k] = value[id] = ARENA_ARRAY(arena, double, body->copies.at[id].elements + 1);
        }
        eval_node(body->net, body->graph, node, in, out, extent, origin);
    }
    return value;
}

static long base_of(const Case *c, int base)
{
    const RowBase *b = &c->program->bases.at[base];
    const Copy *copy = &c->body->copies.at[b->copy];
    return origin_of_dim(c->body, c->body->graph->values.at[copy->value].dim[b->axis]);
}

static void put(void *array, DType dtype, int64_t i, double x)
{
    if (dtype == DT_I32)
        ((int32_t *)array)[i] = isnan(x) ? -1 : (int32_t)x;
    else if (dtype == DT_BF16)
        ((uint16_t *)array)[i] = lp_bf16_of_float((float)x);
    else
        ((float *)array)[i] = (float)x;
}

static double get(const void *array, DType dtype, int64_t i)
{
    return dtype == DT_I32    ? ((const int32_t *)array)[i]
           : dtype == DT_BF16 ? (double)lp_float_of_bf16(((const uint16_t *)array)[i])
                              : (double)((const float *)array)[i];
}

/* On CUDA an accumulator is clear before the first micro-batch; on the host nobody reads it. */
static void run_case(Arena *arena, const Case *c, Kernel kernel, bool first, double tolerance,
                     bool cuda)
{
    enum { MAX_ARGS = 2 * MAX_OPERANDS };
    const double before = 0.25; /* in accumulators */
    uint64_t seed = 1000;
    double **value = evaluate(arena, c, seed);
    void *args[MAX_ARGS];
    long bases[MAX_ARGS];
    for (int i = 0; i < c->program->args.n; i++) {
        const RowArg *arg = &c->program->args.at[i];
        const Copy *copy = &c->body->copies.at[arg->copy];
        args[i] = ARENA_ARRAY(arena, float, copy->elements + 1);
        for (int64_t e = 0; e < copy->elements; e++)
            put(args[i], arg->dtype, e,
                arg->out ? first ? cuda && arg->add ? 0 : NAN : before : value[arg->copy][e]);
    }
    for (int i = 0; i < c->program->bases.n; i++)
        bases[i] = base_of(c, i);
    kernel(args, bases, first);
    for (int i = 0; i < c->program->args.n; i++) {
        const RowArg *arg = &c->program->args.at[i];
        const Copy *copy = &c->body->copies.at[arg->copy];
        for (int64_t e = 0; arg->out && e < copy->elements; e++) {
            double want = value[arg->copy][e] + (arg->add && !first ? before : 0);
            double got = get(args[i], arg->dtype, e);
            double scale = fabs(want) > 1 ? fabs(want) : 1;
            bool near = got == want || fabs(got - want) <= tolerance * scale;
            if (!near)
                fprintf(stderr, "%s (%s of %s)[%lld]: %.9g, want %.9g\n", c->program->name,
                        copy->name, c->body->graph->name, (long long)e, got, want);
            assert_true(near);
        }
    }
}

static int run_recipe(const Target *target, const char *text, const char *recipe, int64_t batch,
                      int64_t sequence, int64_t pad, double tolerance)
{
    Arena *arena = arena_new("rows");
    const Program *program = program_in(arena, text, recipe, batch, sequence, pad);
    CaseList cases = {0};
    collect(arena, program, &cases);
    void *library = compile_cases(arena, &cases, target);
    for (int i = 0; i < cases.n; i++) {
        void *symbol = dlsym(library, arena_printf(arena, "call_%s", cases.at[i].name));
        Kernel kernel;
        assert_non_null(symbol);
        memcpy(&kernel, &symbol, sizeof symbol);
        run_case(arena, &cases.at[i], kernel, true, tolerance, target == &target_cuda);
        if (cases.at[i].program->adds)
            run_case(arena, &cases.at[i], kernel, false, tolerance, target == &target_cuda);
    }
    int n = cases.n;
    arena_free(arena);
    return n;
}

static int run_model(const Target *target, const char *text, int64_t batch, int64_t sequence,
                     int64_t pad, double tolerance)
{
    return run_recipe(target, text, "fp32", batch, sequence, pad, tolerance);
}

static void test_llama(void **state)
{
    (void)state;
    assert_true(run_model(&target_host, tiny_llama, 2, 8, 1, 2e-5) > 12);
}

static void test_gpt2(void **state)
{
    (void)state;
    assert_true(run_model(&target_host, tiny_gpt2, 2, 8, 1, 2e-5) > 12);
}

static void test_every_op(void **state)
{
    (void)state;
    assert_true(run_model(&target_host, every_op_model, 2, 8, 1, 2e-5) > 20);
}

/* 21 vocabulary rows in 32: the last columns are padding, and the block begins at row 3. */
static void test_padded_vocabulary(void **state)
{
    (void)state;
    assert_true(run_model(&target_host, every_op_model, 1, 6, 32, 2e-5) > 20);
}

/* Rows beyond one block of row numbers, columns that fill no tile. Sums of 2400 terms that cancel:
 * a looser bound. */
static void test_many_rows(void **state)
{
    (void)state;
    assert_true(run_model(&target_host, tiny_gpt2, 300, 8, 1, 2e-4) > 12);
}

/* The CUDA text of every program, on the CPU. */
static void test_cuda(void **state)
{
    (void)state;
    assert_true(run_model(&target_cuda, tiny_llama, 2, 8, 1, 2e-5) > 12);
    assert_true(run_model(&target_cuda, tiny_gpt2, 2, 8, 1, 2e-5) > 12);
    assert_true(run_model(&target_cuda, every_op_model, 1, 6, 32, 2e-5) > 20);
}

/* Elements in bf16, the arithmetic between in fp32: one rounding of each result. */
static void test_bf16(void **state)
{
    (void)state;
    const double half_bit = 1.0 / 256;
    assert_true(run_recipe(&target_cuda, every_op_model, "bf16", 1, 6, 32, half_bit) > 20);
    assert_true(run_recipe(&target_cuda, twin_gain_model, "bf16", 2, 8, 1, half_bit) > 6);
    assert_true(run_recipe(&target_host, every_op_model, "bf16", 1, 6, 32, half_bit) > 20);
    assert_true(run_recipe(&target_host, twin_gain_model, "bf16", 2, 8, 1, half_bit) > 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),     cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_every_op),  cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_many_rows), cmocka_unit_test(test_cuda),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
