/* attention_narrow_test.c - attention of bf16 over blocks of keys that pass by, against the
 * definition in double.
 *
 * Terms that are kept in fp32 and rounded once are as near as one rounding allows; terms that are
 * rounded as they are joined are not, which the same check must see. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "templates/host/attention.c"
#include "templates/host/flat.h"

enum { ROWS = 48, BLOCKS = 8, EACH = 8, KEYS = BLOCKS * EACH, WIDTH = 16, SCRATCH = 1 << 17 };

typedef struct Tensors {
    LpReal q[ROWS * WIDTH], k[KEYS * WIDTH], v[KEYS * WIDTH], dout[ROWS * WIDTH];
    double o[ROWS * WIDTH], dq[ROWS * WIDTH], dk[KEYS * WIDTH]; /* by the definition */
    float l[ROWS], delta[ROWS];
} Tensors;

static const float scale = 0.4f;

static void fill(LpReal *x, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        x[i] = lp_real_of_float((float)(*state >> 40) / (float)(1 << 23) - 1.0f);
    }
}

static double dot(const LpReal *x, const LpReal *y)
{
    double sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += (double)lp_float_of_real(x[i]) * lp_float_of_real(y[i]);
    return sum;
}

static void define(Tensors *t)
{
    uint64_t state = 77;
    memset(t, 0, sizeof *t);
    fill(t->q, ROWS * WIDTH, &state);
    fill(t->k, KEYS * WIDTH, &state);
    fill(t->v, KEYS * WIDTH, &state);
    fill(t->dout, ROWS * WIDTH, &state);
    for (int i = 0; i < ROWS; i++) {
        double p[KEYS], sum = 0, delta = 0;
        for (int j = 0; j < KEYS; j++)
            sum += p[j] = exp(scale * dot(t->q + i * WIDTH, t->k + j * WIDTH));
        for (int j = 0; j < KEYS; j++) {
            p[j] /= sum;
            delta += p[j] * dot(t->dout + i * WIDTH, t->v + j * WIDTH);
            for (int x = 0; x < WIDTH; x++)
                t->o[i * WIDTH + x] += p[j] * lp_float_of_real(t->v[j * WIDTH + x]);
        }
        for (int j = 0; j < KEYS; j++) {
            double ds = scale * p[j] * (dot(t->dout + i * WIDTH, t->v + j * WIDTH) - delta);
            for (int x = 0; x < WIDTH; x++) {
                t->dq[i * WIDTH + x] += ds * lp_float_of_real(t->k[j * WIDTH + x]);
                t->dk[j * WIDTH + x] += ds * lp_float_of_real(t->q[i * WIDTH + x]);
            }
        }
        t->l[i] = (float)log(sum);
        t->delta[i] = (float)delta;
    }
}

static void round_all(float *x, int n, bool each)
{
    for (int i = 0; each && i < n; i++)
        x[i] = lp_float_of_real(lp_real_of_float(x[i]));
}

/* Largest error over what half a unit of the last place and the sums' own error allow. */
static double excess(const float *x, const double *y, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs(x[i] - y[i]) / (ldexp(fabs(y[i]), -8) + 2e-6));
    return worst;
}

static LpAttention shape(int rows, int keys)
{
    return (LpAttention){.b = 1,
                         .s = rows,
                         .t = keys,
                         .g = 1,
                         .r = 1,
                         .d = WIDTH,
                         .e = WIDTH,
                         .q_stride = WIDTH,
                         .k_stride = WIDTH,
                         .v_stride = WIDTH,
                         .o_stride = WIDTH,
                         .dq_stride = WIDTH,
                         .dk_stride = WIDTH,
                         .dv_stride = WIDTH,
                         .do_stride = WIDTH,
                         .scale = scale,
                         .wide = 1};
}

/* Blocks of keys pass by; `narrow`: what is joined is kept in 16 bits between turns. */
static double forward_excess(const Tensors *t, bool narrow, float *scratch)
{
    float o[ROWS * WIDTH], l[ROWS], o2[ROWS * WIDTH], l2[ROWS];
    for (int b = 0; b < BLOCKS; b++) {
        const LpAttention a = shape(ROWS, EACH);
        const int at = b * EACH * WIDTH;
        lp_attention_forward(&a, t->q, t->k + at, t->v + at, b ? o2 : o, b ? l2 : l, scratch, 1);
        round_all(b ? o2 : o, ROWS * WIDTH, narrow);
        if (b)
            lp_attention_merge(ROWS, WIDTH, o, l, o2, l2, 1);
        round_all(o, ROWS * WIDTH, narrow);
    }
    round_all(o, ROWS * WIDTH, true);
    return excess(o, t->o, ROWS * WIDTH);
}

/* The gradient of the queries is added up where they stay; that of the keys, here of one rank's,
 * over blocks of queries, as it passes by. */
static double backward_excess(const Tensors *t, bool narrow, float *scratch)
{
    float dq[ROWS * WIDTH] = {0}, dk[KEYS * WIDTH] = {0};
    float dq2[ROWS * WIDTH], dk2[KEYS * WIDTH], dv2[KEYS * WIDTH];
    for (int b = 0; b < BLOCKS; b++) {
        const LpAttention a = shape(ROWS, EACH), back = shape(ROWS / BLOCKS, KEYS);
        const int keys = b * EACH * WIDTH, row = b * (ROWS / BLOCKS), rows = row * WIDTH;
        lp_attention_backward(&a, t->q, t->k + keys, t->v + keys, t->dout, t->l, t->delta, dq2, dk2,
                              dv2, scratch, 1);
        round_all(dq2, ROWS * WIDTH, narrow);
        lp_accumulate(ROWS * WIDTH, dq, dq2, false);
        round_all(dq, ROWS * WIDTH, narrow);
        lp_attention_backward(&back, t->q + rows, t->k, t->v, t->dout + rows, t->l + row,
                              t->delta + row, dq2, dk2, dv2, scratch, 1);
        round_all(dk2, KEYS * WIDTH, narrow);
        lp_accumulate(KEYS * WIDTH, dk, dk2, false);
        round_all(dk, KEYS * WIDTH, narrow);
    }
    round_all(dq, ROWS * WIDTH, true);
    round_all(dk, KEYS * WIDTH, true);
    return fmax(excess(dq, t->dq, ROWS * WIDTH), excess(dk, t->dk, KEYS * WIDTH));
}

static void test_turns_are_joined_in_fp32(void **state)
{
    (void)state;
    static Tensors t;
    float *scratch = aligned_alloc(64, SCRATCH * sizeof *scratch);
    assert_non_null(scratch);
    assert_true(LP_ATTENTION_BACKWARD_BYTES(WIDTH, WIDTH, 1) <= SCRATCH * sizeof *scratch);
    define(&t);
    assert_true(forward_excess(&t, false, scratch) <= 1);
    assert_true(backward_excess(&t, false, scratch) <= 1);
    assert_true(forward_excess(&t, true, scratch) > 2);
    assert_true(backward_excess(&t, true, scratch) > 2);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns_are_joined_in_fp32)};
    return cmocka_run_group_tests_name("attention in 16 bits", tests, NULL, NULL);
}
