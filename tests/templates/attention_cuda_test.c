/* attention_cuda_test.c - the text of cuda/attention.cu, run on the CPU, against the definition in
 * double. */
#include "tests/templates/attention_cases.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

typedef void (*Cuda)(const LpAttention *a, const float *q, const float *k, const float *v,
                     const float *dout, float *o, float *l, float *delta, float *dq, float *dk,
                     float *dv);
static Cuda kernels; /* of the width under test */

static void run_cuda(Case *c)
{
    kernels(&c->a, c->x[Q], c->x[K], c->x[V], c->x[DOUT], c->x[O], c->x[L], c->x[DELTA], c->x[DQ],
            c->x[DK], c->x[DV]);
}

/* Compiles an instance and opens it. */
static void open_kernels(const char *defines)
{
    const char *cxx = getenv("CXX"), *root = getenv("LPLAN_SOURCE_ROOT"), *tmp = getenv("TMPDIR");
    char folder[256], command[1024], object[300];
    snprintf(folder, sizeof folder, "%s/lplan-attention-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(object, sizeof object, "%s/attention.so", folder);
    snprintf(command, sizeof command,
             "%s -std=c++17 -O2 -w -fno-strict-aliasing -shared -fPIC -I'%s' %s "
             "-DLP_ATTENTION_T=float -DLP_GRADIENT_T=float -x c++ "
             "'%s/tests/templates/attention_cuda.hh' -o '%s'",
             cxx && *cxx ? cxx : "c++", root ? root : ".", defines, root ? root : ".", object);
    assert_int_equal(system(command), 0);
    void *library = dlopen(object, RTLD_NOW);
    assert_non_null(library);
    void *symbol = dlsym(library, "attention_cuda");
    assert_non_null(symbol);
    memcpy(&kernels, &symbol, sizeof symbol);
    unlink(object);
    rmdir(folder);
}

static void check(LpAttention a)
{
    Case c = {.a = a, .gap = 3};
    case_check(&c, run_cuda, 1e-5);
}

static void test_plain(void **state)
{
    (void)state;
    open_kernels("-DLP_D=20");
    check((LpAttention){2, 70, 70, 1, 2, 20, .causal = 1});
    check((LpAttention){1, 65, 90, 2, 1, 20, .causal = 1, .window = 30, .base_q = 25});
    check((LpAttention){1, 40, 100, 1, 1, 20, .base_q = 3});
    check((LpAttention){1, 40, 70, 1, 1, 20, .causal = 1, .base_k = 20});
    for (int other = 0; other < 3; other++)
        check((LpAttention){1, 100, 100, 1, 2, 20, .causal = 1, .window = other == 2 ? 45 : 0,
                            .base_q = 100, .base_k = 100 * other, .run = 50, .runs = 6});
}

static void test_bent(void **state)
{
    (void)state;
    static const float slopes[] = {0.25f, 0.0625f, 0.0f, -0.125f};
    int starts[2 * 80];
    uint64_t seed = 5;
    for (int i = 0; i < 2 * 80; i++)
        starts[i] = i < 80 ? i / 30 * 30 : (int)((uniform(&seed) + 1) * 50);
    open_kernels("-DLP_D=24 -DLP_DV=40 -DLP_BENT=1");
    check((LpAttention){1, 70, 70, 2, 2, 24, 40, .causal = 1});
    check((LpAttention){1, 70, 70, 2, 2, 24, 40, .causal = 1, .softcap = 0.8f, .scale = 0.5f});
    check((LpAttention){1, 70, 80, 2, 2, 24, 40, .causal = 1, .slopes = slopes, .base_q = 10});
    check((LpAttention){1, 70, 140, 1, 2, 24, 40, .causal = 1, .chunk = 50, .base_q = 70});
    check((LpAttention){1, 70, 140, 1, 2, 24, 40, .chunk = 9, .base_q = 33, .base_k = 4});
    check((LpAttention){2, 80, 100, 1, 2, 24, 40, .causal = 1, .starts = starts, .base_q = 20});
    check((LpAttention){2, 80, 100, 2, 2, 24, 40, .causal = 1, .window = 60, .softcap = 2.0f,
                        .chunk = 70, .slopes = slopes, .starts = starts, .base_q = 20});
    check((LpAttention){1, 70, 140, 2, 2, 24, 40, .causal = 1, .chunk = 60, .slopes = slopes,
                        .starts = starts, .base_q = 70, .run = 35, .runs = 4});
}

/* Wide heads: tiles of half the rows. */
static void test_wide(void **state)
{
    (void)state;
    open_kernels("-DLP_D=96 -DLP_DV=65 -DLP_BENT=1");
    check((LpAttention){1, 70, 70, 1, 2, 96, 65, .causal = 1, .softcap = 3.0f});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_bent),
        cmocka_unit_test(test_wide),
    };
    return cmocka_run_group_tests_name("attention on CUDA", tests, NULL, NULL);
}
