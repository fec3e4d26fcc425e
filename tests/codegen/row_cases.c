/* row_cases.c - printed row kernels compiled and run against eval_node on the same blocks. */
#include "tests/codegen/row_cases.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/eval.h"
#include "templates/host/math.h"
#include "tests/check.h"
#include "tests/codegen/bodies.h"

/* Of ops that draw: nothing that fits in 32 bits but what must. */
static const EvalDraw draw = {0x9e3779b97f4a7c15u, 3, INT64_C(5000000000), false};

typedef void (*Kernel)(void *const *args, const long *bases, int first);

void row_cases_add(Arena *arena, const Body *body, const Inst *inst, RowCaseList *cases)
{
    Diag *diag = diag_new(arena);
    RowProgram *rows = rows_build(arena, diag, body, inst);
    diag_print(diag, stderr, false);
    assert_non_null(rows);
    const char *name = arena_printf(arena, "k%d", cases->n);
    vec_push(arena, cases) = (RowCase){body, inst, rows, name};
}

/* A wrapper that unpacks arguments, so that one C type calls every kernel. */
static void put_wrapper(Str *text, const RowCase *c)
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
static void put_launcher(Str *text, const RowCase *c)
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

static void *compile_cases(Arena *arena, const RowCaseList *cases, const Target *target)
{
    bool cuda = target == &target_cuda;
    Str text = str_new(arena);
    str_put(&text, cuda ? "#include \"tests/codegen/cuda_shim.hh\"\n#include "
                          "\"templates/cuda/draw.cuh\"\n\nstatic float lp_sigmoid(float x)\n{\n"
                          "    return 1.0f / (1.0f + expf(-x));\n}\n\n"
                        : "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
                          "#include \"templates/host/math.h\"\n"
                          "#include \"templates/host/draw.h\"\n\n");
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

/* Blocks that begin somewhere inside: positions from 5, rows of a padded vocabulary from 3, of any
 * other dim the last block. */
static long origin_of_axis(const Body *body, const Copy *copy, int axis)
{
    const Dim *dim = &body->net->dims.at[body->graph->values.at[copy->value].dim[axis]];
    if (dim->kind == DIM_SEQUENCE)
        return 5;
    return dim->used < dim->extent ? 3 : (long)(dim->extent - copy->local[axis]);
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

/* Extents and origins of the letters of one operand (results count on behind the operands). */
static void read_block(const Body *body, const Inst *inst, int n, int operand, int64_t *ret_extent,
                       int64_t *ret_origin)
{
    const Node *node = &body->graph->nodes.at[inst->node[n]];
    bool in = operand < node->ins;
    int k = in ? operand : operand - node->ins;
    const Copy *copy = &body->copies.at[in ? inst->bind_in[n][k] : inst->bind_out[n][k]];
    const int8_t *letter = in ? node->sig.in[k] : node->sig.out[k];
    for (int a = 0; a < body->graph->values.at[copy->value].axes; a++) {
        ret_extent[letter[a]] = copy->local[a];
        if (node->sig.base >> letter[a] & 1)
            ret_origin[letter[a]] = origin_of_axis(body, copy, a);
    }
}

/* The instruction by its nodes' meanings. */
static double **evaluate(Arena *arena, const RowCase *c, uint64_t seed)
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
        for (int k = 0; k < node->ins + node->outs; k++)
            read_block(body, c->inst, n, k, extent, origin);
        for (int k = 0; k < node->ins; k++)
            in[k] = value[c->inst->bind_in[n][k]];
        for (int k = 0; k < node->outs; k++) {
            int id = c->inst->bind_out[n][k];
            out[k] = value[id] = ARENA_ARRAY(arena, double, body->copies.at[id].elements + 1);
        }
        eval_node(body->net, body->graph, node, in, out, extent, origin, &draw);
    }
    return value;
}

static long base_of(const RowCase *c, int base)
{
    const RowBase *b = &c->program->bases.at[base];
    switch (b->kind) {
    case BASE_ORIGIN:
    case BASE_SAMPLE:
        break;
    case BASE_SEED:
        return (long)draw.seed;
    case BASE_STREAM:
        return draw_stream(draw.layer, b->site);
    }
    return origin_of_axis(c->body, &c->body->copies.at[b->copy], b->axis) +
           (b->kind == BASE_SAMPLE ? draw.sample : 0);
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
static void run_once(Arena *arena, const RowCase *c, Kernel kernel, bool first, double tolerance,
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

void row_cases_run(Arena *arena, const RowCaseList *cases, const Target *target, double tolerance)
{
    bool cuda = target == &target_cuda;
    void *library = compile_cases(arena, cases, target);
    for (int i = 0; i < cases->n; i++) {
        const RowCase *c = &cases->at[i];
        void *symbol = dlsym(library, arena_printf(arena, "call_%s", c->name));
        Kernel kernel;
        assert_non_null(symbol);
        memcpy(&kernel, &symbol, sizeof symbol);
        run_once(arena, c, kernel, true, tolerance, cuda);
        if (c->program->adds)
            run_once(arena, c, kernel, false, tolerance, cuda);
    }
}
