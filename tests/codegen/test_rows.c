/* test_rows.c - every printed row kernel, compiled and run, against eval_node on the same blocks.
 */
#include "codegen/gemm.h"
#include "tests/check.h"
#include "tests/codegen/bodies.h"
#include "tests/codegen/row_cases.h"
#include "tests/ir/tiny_models.h"

static bool is_rows(Arena *arena, const Body *body, const Inst *inst)
{
    const Node *node = &body->graph->nodes.at[inst->node[0]];
    Gemm gemm;
    if (inst->kind != INST_KERNEL)
        return false;
    if (inst->nodes == 1 && node->op == OP_EINSUM)
        return !gemm_build(arena, body, inst, &gemm);
    return inst->form == FORM_rows;
}

static void collect(Arena *arena, const Program *program, RowCaseList *ret)
{
    for (int c = 0; c < program->net->classes.n; c++) {
        const Body *body = program->body[c];
        for (int way = 0; way < 2; way++) {
            const InstList *list = way ? &body->backward : &body->forward;
            for (int i = 0; i < list->n; i++) {
                if (is_rows(arena, body, &list->at[i]))
                    row_cases_add(arena, body, &list->at[i], ret);
            }
        }
    }
}

static int run_recipe(const Target *target, const char *text, const char *recipe, int64_t batch,
                      int64_t sequence, int64_t pad, double tolerance)
{
    Arena *arena = arena_new("rows");
    const Program *program = program_in(arena, text, recipe, batch, sequence, pad);
    RowCaseList cases = {0};
    collect(arena, program, &cases);
    row_cases_run(arena, &cases, target, tolerance);
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

static void test_dropout(void **state)
{
    (void)state;
    assert_true(run_model(&target_host, tiny_dropout, 2, 8, 1, 2e-5) > 20);
    assert_true(run_model(&target_cuda, tiny_dropout, 3, 8, 1, 2e-5) > 20);
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

/* Elements in bf16, the arithmetic between in fp32: a rounding of each result and of each forward
 * value on the way. */
static void test_bf16(void **state)
{
    (void)state;
    const double bits = 1.0 / 64;
    assert_true(run_recipe(&target_cuda, every_op_model, "bf16", 1, 6, 32, bits) > 20);
    assert_true(run_recipe(&target_cuda, twin_gain_model, "bf16", 2, 8, 1, bits) > 6);
    assert_true(run_recipe(&target_host, every_op_model, "bf16", 1, 6, 32, bits) > 20);
    assert_true(run_recipe(&target_host, twin_gain_model, "bf16", 2, 8, 1, bits) > 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_cuda),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
