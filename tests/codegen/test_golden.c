/* test_golden.c - printed kernels as text, host and CUDA, against the files of golden/;
 * LPLAN_BLESS=1 rewrites them. The same program printed twice is the same text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/build.h"
#include "codegen/emit.h"
#include "ir/base/str.h"
#include "tests/check.h"
#include "tests/codegen/bodies.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/tiny_models.h"

static char *golden_path(Arena *arena, const char *name)
{
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    return arena_printf(arena, "%s/tests/codegen/golden/%s", root ? root : ".", name);
}

static void compare(Arena *arena, const char *name, const char *text)
{
    const char *path = golden_path(arena, name);
    size_t n = 0;
    if (getenv("LPLAN_BLESS")) {
        assert_true(file_write(path, text, strlen(text)));
        return;
    }
    const char *want = file_read(arena, path, &n);
    if (!want || !str_eq(want, text))
        fprintf(stderr, "%s differs: LPLAN_BLESS=1 rewrites it, then read git diff\n", path);
    assert_non_null(want);
    assert_string_equal(text, want);
}

static TrainerText *text_of(Arena *arena, const char *model, int64_t pad)
{
    Diag *diag = diag_new(arena);
    TrainerText *text = trainer_print(arena, diag, program_from(arena, model, 2, 8, pad),
                                      &(TrainerOptions){.plan_hash = "0123456789abcdef"});
    diag_print(diag, stderr, false);
    assert_non_null(text);
    return text;
}

static void test_kernels(void **state)
{
    (void)state;
    Arena *arena = arena_new("golden");
    TrainerText *text = text_of(arena, every_op_model, 32);
    compare(arena, "every_op.host.golden", text->kernels);
    compare(arena, "every_op.cuda.golden", text->cuda);
    arena_free(arena);
}

/* One whole file, of the smallest model: how it reads is part of the product. The hash of the
 * templates is left out. */
static void test_trainer(void **state)
{
    (void)state;
    Arena *arena = arena_new("golden");
    const char *text = text_of(arena, tiny_gpt2, 1)->trainer, *includes = strstr(text, "#include");
    assert_non_null(includes);
    compare(arena, "tiny_gpt2.trainer.golden", includes);
    arena_free(arena);
}

/* Tables of four stages folded into warm-up, steady state and cool-down. */
static void test_pipeline(void **state)
{
    (void)state;
    Arena *arena = arena_new("golden");
    Diag *diag = diag_new(arena);
    const Program *program = pipeline_from(arena, every_op_model, 4, 12);
    const char *text =
        trainer_print(arena, diag, program, &(TrainerOptions){.plan_hash = "0"})->trainer;
    Str steps = str_new(arena);
    for (const char *at = strstr(text, "/* One optimizer step"); at;
         at = strstr(at + 1, "/* One optimizer step")) {
        const char *end = strstr(at, "\n}\n");
        str_putn(&steps, at, (size_t)(end + 3 - at));
        str_putc(&steps, '\n');
    }
    compare(arena, "every_op.pipeline.golden", steps.at);
    arena_free(arena);
}

static void test_same_twice(void **state)
{
    (void)state;
    Arena *arena = arena_new("golden");
    TrainerText *a = text_of(arena, tiny_llama, 1), *b = text_of(arena, tiny_llama, 1);
    assert_string_equal(a->trainer, b->trainer);
    assert_string_equal(a->kernels, b->kernels);
    assert_string_equal(a->cuda, b->cuda);
    arena_free(arena);
}

/* Rows are on their way to their experts while the shared expert runs: its product stands between
 * the call and the wait. */
static void test_exchange_under_shared_expert(void **state)
{
    (void)state;
    Arena *arena = arena_new("exchange");
    Diag *diag = diag_new(arena);
    const PlanCase what = {"tests/e2e/models/moe.json", NULL, 2, 8, 64,
                           "dp=2,ep=2,zero=1,mbs=4",    NULL, 0};
    const TrainerText *text =
        trainer_print(arena, diag, program_of(arena, &what), &(TrainerOptions){.plan_hash = "0"});
    assert_non_null(text);
    const char *begin = strstr(text->trainer, "lp_all_to_all_v(&s->layer_n2_each_at1,");
    assert_non_null(begin);
    const char *product = strstr(begin, "shared_up_weight"),
               *wait = strstr(begin, "lp_wait(&s->layer_n2_each_at1)");
    assert_true(product && wait && product < wait);
    arena_free(arena);
}

static void test_width(void **state)
{
    (void)state;
    Arena *arena = arena_new("golden");
    TrainerText *text = text_of(arena, every_op_model, 32);
    const char *texts[] = {text->trainer, text->kernels, text->cuda};
    for (int i = 0; i < 3; i++) {
        for (const char *line = texts[i]; *line;) {
            const char *end = strchr(line, '\n');
            assert_non_null(end);
            if (end - line > EMIT_WIDTH)
                fprintf(stderr, "%.*s\n", (int)(end - line), line);
            assert_true(end - line <= EMIT_WIDTH);
            line = end + 1;
        }
    }
    arena_free(arena);
}

/* Both printed texts are what libclang calls correct; NVRTC where there is one. */
static void test_checked(void **state)
{
    (void)state;
    Arena *arena = arena_new("golden");
    TrainerText *text = text_of(arena, every_op_model, 32);
    Diag *diag = diag_new(arena);
    const char *by;
    int problems = check_cuda_text(arena, diag, "kernels.cu", text->cuda, &by);
    problems += check_cuda_nvrtc(arena, diag, "kernels.cu", text->cuda, &by);
    diag_print(diag, stderr, false);
    assert_int_equal(problems, 0);
    char *broken = arena_strdup(arena, text->cuda);
    memcpy(strstr(broken, "blockIdx.x"), "blockIdx.q", strlen("blockIdx.q"));
    problems = check_cuda_text(arena, diag_new(arena), "kernels.cu", broken, &by);
    assert_true(problems > 0 || strncmp(by, "none", 4) == 0);
    arena_free(arena);
}

/* Weights and activations in bf16: as trainer, and as kernels. A recipe for proofs is no trainer.
 */
static void test_bf16(void **state)
{
    (void)state;
    Arena *arena = arena_new("golden");
    Diag *diag = diag_new(arena);
    const Program *program = program_in(arena, every_op_model, "bf16", 2, 8, 32);
    const TrainerOptions options = {.plan_hash = "0"};
    const Program *proof = program_in(arena, every_op_model, "fp64", 2, 8, 32);
    assert_null(trainer_print(arena, diag_new(arena), proof, &options));
    TrainerText *text = trainer_print(arena, diag, program, &options);
    assert_non_null(text);
    assert_non_null(strstr(text->trainer, "#define LP_REAL_BF16 1"));
    assert_non_null(strstr(text->trainer, "LP_ELEMENT_BF16"));
    assert_non_null(strstr(text->trainer, ".master = "));
    assert_null(strstr(text->trainer, "lp_gemm("));
    text = kernels_print(arena, diag, program);
    assert_non_null(text);
    assert_null(text->trainer);
    assert_non_null(strstr(text->cuda, "lp_bf16 *__restrict__"));
    const char *by;
    int problems = check_cuda_text(arena, diag, "kernels.cu", text->cuda, &by);
    problems += check_cuda_nvrtc(arena, diag, "kernels.cu", text->cuda, &by);
    diag_print(diag, stderr, false);
    assert_int_equal(problems, 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels),
                                       cmocka_unit_test(test_trainer),
                                       cmocka_unit_test(test_pipeline),
                                       cmocka_unit_test(test_same_twice),
                                       cmocka_unit_test(test_exchange_under_shared_expert),
                                       cmocka_unit_test(test_width),
                                       cmocka_unit_test(test_checked),
                                       cmocka_unit_test(test_bf16)};
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
