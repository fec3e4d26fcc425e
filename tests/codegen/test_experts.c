/* test_experts.c - the CUDA texts of routing and of experts, run on the CPU, against those of the
 * host. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "templates/host/expert.c"
#include "templates/host/route.c"

#include "ir/base/rng.h"
#include "templates/templates.h"
#include "tests/check.h"
#include "tests/codegen/bodies.h"

enum { B = 2, S = 13, N = B * S, K = 3, E = 8, CHOICES = N * K, F = 5, T = 7, WEIGHTS = E * F * T };

typedef void (*Call)(const void *const *in, void *out, const long *number);

typedef struct Launch {
    const char *name;
    const char *arguments; /* in, out and number of the call's C type */
} Launch;

static const Launch launches[] = {
    {"lp_topk", "number[0], number[1], number[2], number[3], number[4], number[5], "
                "(const float *)in[0], (int *)out"},
    {"lp_capacity", "number[0], number[1], number[2], number[3], number[4], (const int *)in[0], "
                    "(int *)out"},
    {"lp_deal", "number[0], number[1], number[2], number[3], number[4], number[5], "
                "(const int *)in[0], (int *)out"},
    {"lp_chance", "number[0], number[1], (const int *)in[0], (const float *)in[1], (const int "
                  "*)in[2], number[2], (int *)out"},
    {"lp_tally", "number[0], number[1], number[2], (const int *)in[0], (float *)out"},
    {"lp_take", "number[0], number[1], number[2], (const int *)in[0], (const float *)in[1], "
                "(float *)out"},
    {"lp_spread", "number[0], number[1], number[2], (const int *)in[0], (const float *)in[1], "
                  "(float *)out"},
    {"lp_expert_forward",
     "number[0], number[1], number[2], number[3], number[4], number[5], number[6], number[7], "
     "(const int *)in[0], (const float *)in[1], (const float *)in[2], (float *)out"},
    {"lp_expert_backward",
     "number[0], number[1], number[2], number[3], number[4], number[5], number[6], number[7], "
     "(const int *)in[0], (const float *)in[1], (const float *)in[2], (float *)out, number[8]"},
};

/* Through the shim's blocks and threads. */
static void put_launcher(Str *text, const Launch *launch)
{
    str_putf(text,
             "struct Of_%s { const void *const *in; void *out; const long *number; };\n"
             "static void body_%s(void *argument)\n{\n    Of_%s *c = (Of_%s *)argument;\n"
             "    const void *const *in = c->in;\n    void *out = c->out;\n"
             "    const long *number = c->number;\n    %s(%s);\n}\n\n",
             launch->name, launch->name, launch->name, launch->name, launch->name,
             launch->arguments);
    str_putf(text,
             "extern \"C\" void call_%s(const void *const *in, void *out, const long *number)\n{\n"
             "    Of_%s c = {in, out, number};\n    shim_launch(body_%s, &c);\n}\n\n",
             launch->name, launch->name, launch->name);
}

typedef struct Data {
    Arena *arena;
    void *library;
    float scores[N * E], few[CHOICES], x[CHOICES * F], y[CHOICES * T], w[WEIGHTS];
    int32_t choice[CHOICES];
} Data;

static void fill(float *x, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)floor(rng_unit(seed, 1, (uint64_t)i) * 9) / 4 - 1;
}

static Data *data_new(void)
{
    Arena *arena = arena_new("experts");
    Str text = str_new(arena);
    str_put(&text, "#include \"tests/codegen/cuda_shim.hh\"\n#define LP_ROUTE_T float\n"
                   "#define LP_EXPERT_T float\n#define LP_GRADIENT_T float\n"
                   "static inline float lp_float(float x)\n{\n    return x;\n}\n"
                   "static inline void lp_put(float *to, float x)\n{\n    *to = x;\n}\n");
    str_put(&text, template_text("cuda/route.cu"));
    str_put(&text, template_text("cuda/expert.cu"));
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++)
        put_launcher(&text, &launches[i]);
    Data *d = ARENA_NEW(arena, Data);
    d->arena = arena;
    d->library = compiled(arena, text.at, true);
    fill(d->scores, N * E, 1);
    fill(d->few, CHOICES, 2);
    fill(d->x, CHOICES * F, 3);
    fill(d->y, CHOICES * T, 4);
    fill(d->w, WEIGHTS, 5);
    for (int i = 0; i < CHOICES; i++)
        d->choice[i] = (int32_t)floor(rng_unit(6, 1, (uint64_t)i) * (E + 1)) - 1;
    return d;
}

static void call(const Data *d, const char *name, const void *const *in, void *out,
                 const long *number)
{
    void *symbol = dlsym(d->library, arena_printf(d->arena, "call_%s", name));
    Call function;
    assert_non_null(symbol);
    memcpy(&function, &symbol, sizeof symbol);
    function(in, out, number);
}

static void test_route(void **state)
{
    Data *d = *state;
    int32_t want[CHOICES], got[CHOICES], scratch[E];
    static const int groups[][3] = {{1, 1, 0}, {4, 2, 0}, {4, 2, 1}, {2, 2, 1}};
    d->scores[3 * E + 5] = NAN;
    for (int g = 0; g < 4; g++) {
        const LpTopk t = {N, E, K, groups[g][0], groups[g][1], groups[g][2]};
        lp_topk(&t, d->scores, want);
        call(d, "lp_topk", (const void *[]){d->scores}, got,
             (long[]){N, E, K, groups[g][0], groups[g][1], groups[g][2]});
        assert_memory_equal(got, want, sizeof want);
    }
    for (long bound = 1; bound < 9; bound += 3) {
        lp_capacity(B, S, K, E, bound, d->choice, want, scratch, 1);
        call(d, "lp_capacity", (const void *[]){d->choice}, got, (long[]){B, S, K, E, bound});
        assert_memory_equal(got, want, sizeof want);
        for (int round = 0; round < 3; round++) {
            lp_deal(CHOICES, 2, E / 2, bound, round, 3, d->choice, want, scratch);
            call(d, "lp_deal", (const void *[]){d->choice}, got,
                 (long[]){CHOICES, 2, E / 2, bound, round, 3});
            assert_memory_equal(got, want, sizeof want);
        }
    }
}

static void test_chance(void **state)
{
    Data *d = *state;
    int32_t want[CHOICES], got[CHOICES], word[N];
    int gone = 0;
    for (int i = 0; i < N; i++)
        word[i] = (int32_t)(rng_u64(8, 1, (uint64_t)i) >> 33);
    for (int all = 0; all < 2; all++) {
        lp_chance(N, K, d->choice, d->y, word, all, want);
        call(d, "lp_chance", (const void *[]){d->choice, d->y, word}, got, (long[]){N, K, all});
        assert_memory_equal(got, want, sizeof want);
        for (int i = 0; i < CHOICES; i++)
            gone += !all && want[i] != d->choice[i];
    }
    assert_true(gone > 0);
}

static void test_rows(void **state)
{
    Data *d = *state;
    float want[N * E], got[N * E];
    fill(d->scores, N * E, 1);
    for (long base = 0; base < E; base += 3) {
        lp_tally(CHOICES, 2, base, d->choice, want);
        call(d, "lp_tally", (const void *[]){d->choice}, got, (long[]){CHOICES, 2, base});
        assert_memory_equal(got, want, 2 * sizeof *want);
    }
    lp_take(N, E, K, d->choice, d->scores, want);
    call(d, "lp_take", (const void *[]){d->choice, d->scores}, got, (long[]){N, E, K});
    assert_memory_equal(got, want, CHOICES * sizeof *want);
    lp_spread(N, E, K, d->choice, d->few, want);
    call(d, "lp_spread", (const void *[]){d->choice, d->few}, got, (long[]){N, E, K});
    assert_memory_equal(got, want, N * E * sizeof *want);
}

static void compare(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(fabsf(got[i] - want[i]) <= 1e-4f);
}

static void check_linear(Data *d, LpExpert e)
{
    float want[CHOICES * T], got[CHOICES * T], dw[WEIGHTS], dw_got[WEIGHTS];
    float *scratch = ARENA_ARRAY(d->arena, float, LP_EXPERT_FLOATS(CHOICES, E, F, T));
    const long number[] = {CHOICES, e.shared ? K : 1,   e.experts,          e.base, F,
                           T,       e.to_first ? 1 : T, e.to_first ? F : 1, 0};
    lp_expert_forward(&e, d->choice, d->x, d->w, want, scratch);
    call(d, "lp_expert_forward", (const void *[]){d->choice, d->x, d->w}, got, number);
    compare(got, want, CHOICES * T);
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        long numbers[9];
        memcpy(numbers, number, sizeof number);
        numbers[8] = overwrite;
        memcpy(dw, d->w, sizeof dw);
        memcpy(dw_got, d->w, sizeof dw);
        lp_expert_backward(&e, d->choice, d->y, d->x, dw, overwrite, scratch);
        call(d, "lp_expert_backward", (const void *[]){d->choice, d->y, d->x}, dw_got, numbers);
        compare(dw_got, dw, e.experts * F * T);
    }
}

static void test_linears(void **state)
{
    for (int form = 0; form < 8; form++) {
        int base = form & 4 ? 3 : 0;
        check_linear(*state, (LpExpert){.tokens = N,
                                        .k = K,
                                        .shared = form & 1,
                                        .experts = E - base,
                                        .base = base,
                                        .from = F,
                                        .to = T,
                                        .to_first = (form & 2) != 0});
    }
}

static int setup(void **state)
{
    *state = data_new();
    return 0;
}

static int teardown(void **state)
{
    Data *d = *state;
    arena_free(d->arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_linears),
    };
    return cmocka_run_group_tests_name("experts", tests, setup, teardown);
}
