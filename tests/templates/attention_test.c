/* attention_test.c - host flash attention against the definition in double, on odd shapes. */
#include "tests/templates/attention_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { Q, K, V, O, L, DOUT, DELTA, DQ, DK, DV, TENSORS };

/* Gap floats stand between the rows of every tensor and must keep their value. */
#define GAP_VALUE 1234.5f

typedef struct Case {
    LpAttention a;
    int gap;
    float *x[TENSORS];
    double *y[TENSORS];
    long rows[TENSORS], width[TENSORS], stride[TENSORS];
} Case;

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0 * 2.0 - 1.0;
}

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

static void case_open(Case *c, uint64_t seed)
{
    LpAttention *a = &c->a;
    const long q = (long)a->b * a->s;
    const long k = (long)a->b * a->t;
    for (int i = 0; i < TENSORS; i++) {
        const int kv = i == K || i == V || i == DK || i == DV;
        const int scalar = i == L || i == DELTA;
        c->rows[i] = kv ? k : q;
        c->width[i] = (long)a->g * (kv ? 1 : a->r) * (scalar ? 1 : a->d);
        c->stride[i] = c->width[i] + (scalar ? 0 : c->gap + i);
        c->x[i] = room((size_t)(c->rows[i] * c->stride[i]) * sizeof(float));
        c->y[i] = room((size_t)(c->rows[i] * c->width[i]) * sizeof(double));
        for (long j = 0; j < c->rows[i] * c->stride[i]; j++) {
            c->x[i][j] = GAP_VALUE;
        }
        for (long row = 0; row < c->rows[i]; row++) {
            for (long j = 0; j < c->width[i]; j++) {
                const float value = (float)uniform(&seed) * (i == Q || i == K ? 2.0f : 1.0f);
                c->x[i][row * c->stride[i] + j] = value;
                c->y[i][row * c->width[i] + j] = value;
            }
        }
    }
    a->q_stride = c->stride[Q];
    a->k_stride = c->stride[K];
    a->v_stride = c->stride[V];
    a->o_stride = c->stride[O];
    a->dq_stride = c->stride[DQ];
    a->dk_stride = c->stride[DK];
    a->dv_stride = c->stride[DV];
    a->do_stride = c->stride[DOUT];
}

static void case_close(Case *c)
{
    for (int i = 0; i < TENSORS; i++) {
        free(c->x[i]);
        free(c->y[i]);
    }
}

static void case_reference(Case *c)
{
    const Reference r = {c->y[Q], c->y[K],  c->y[V],  c->y[DOUT], c->y[O],
                         c->y[L], c->y[DQ], c->y[DK], c->y[DV]};
    reference_attention(&c->a, &r);
}

static void case_run(Case *c, int threads)
{
    const LpAttention *a = &c->a;
    const size_t forward = LP_ATTENTION_FORWARD_BYTES(a->d, threads);
    const size_t backward = LP_ATTENTION_BACKWARD_BYTES(a->d, threads);
    /* NaN-filled scratch of the very size: what is not written must not be read. */
    const size_t bytes = forward > backward ? forward : backward;
    char *scratch = room(bytes);
    memset(scratch, 0xff, bytes);
    scratch[forward] = 0x5a;
    lp_attention_forward(a, c->x[Q], c->x[K], c->x[V], c->x[O], c->x[L], scratch, threads);
    assert_int_equal(scratch[forward], 0x5a);
    lp_attention_delta(a, c->x[O], c->x[DOUT], c->x[DELTA], threads);
    memset(scratch, 0xff, bytes);
    scratch[backward] = 0x5a;
    lp_attention_backward(a, c->x[Q], c->x[K], c->x[V], c->x[DOUT], c->x[L], c->x[DELTA], c->x[DQ],
                          c->x[DK], c->x[DV], scratch, threads);
    assert_int_equal(scratch[backward], 0x5a);
    free(scratch);
}

/* Largest difference over the largest magnitude, at least 0.5: gradients that are 0 by cancellation
 * keep the error of their terms. Gaps must be untouched. */
static double case_error(const Case *c, int i)
{
    double worst = 0;
    double size = 0.5;
    for (long row = 0; row < c->rows[i]; row++) {
        const float *x = c->x[i] + row * c->stride[i];
        const double *y = c->y[i] + row * c->width[i];
        for (long j = 0; j < c->width[i]; j++) {
            if (y[j] == -INFINITY) {
                worst = x[j] == -INFINITY ? worst : INFINITY;
                continue;
            }
            const double e = fabs(x[j] - y[j]);
            worst = e <= worst ? worst : e;
            size = fabs(y[j]) > size ? fabs(y[j]) : size;
        }
        for (long j = c->width[i]; j < c->stride[i]; j++) {
            assert_true(x[j] == GAP_VALUE);
        }
    }
    return worst / size;
}

static void case_check(Case *c)
{
    static const int outputs[] = {O, L, DQ, DK, DV};
    static const char *const names[] = {"o", "l", "dq", "dk", "dv"};
    c->a.scale = c->a.scale == 0.0f ? 1.0f / sqrtf((float)c->a.d) : c->a.scale;
    case_open(c, (uint64_t)c->a.s * 131 + (uint64_t)c->a.d);
    case_reference(c);
    case_run(c, 2);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const double e = case_error(c, outputs[i]);
        if (!(e < 4e-6)) {
            fail_msg("b%d s%d t%d g%d r%d d%d causal %d window %d base %ld %ld: %s off by %g",
                     c->a.b, c->a.s, c->a.t, c->a.g, c->a.r, c->a.d, c->a.causal, c->a.window,
                     c->a.base_q, c->a.base_k, names[i], e);
        }
    }
    case_close(c);
}

static void test_shapes(void **state)
{
    (void)state;
    static const int lengths[] = {1, 7, 65, 130};
    static const int widths[] = {16, 64, 80, 128, 13};
    static const int repeats[] = {1, 3, 8};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 5; j++) {
            for (size_t k = 0; k < 3; k++) {
                Case c = {.a = {.b = 2,
                                .s = lengths[i],
                                .t = lengths[i],
                                .g = 1 + (int)(i % 2),
                                .r = repeats[k],
                                .d = widths[j],
                                .causal = (int)((i + j) % 4) != 0},
                          .gap = (int)j * 3};
                case_check(&c);
            }
        }
    }
}

static void test_unequal_lengths(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        Case few = {.a = {1, 5, 200, 2, 2, 32, .causal = causal, .base_q = 195}};
        case_check(&few);
        Case many = {.a = {1, 200, 9, 2, 2, 32, .causal = causal}};
        case_check(&many);
    }
}

static void test_sequence_shards(void **state)
{
    (void)state;
    static const long bases[][2] = {{64, 0},   {0, 64}, {100, 37}, {37, 100}, {1000, 0},
                                    {0, 1000}, {3, 0},  {0, 3},    {0, 99},   {128, 128}};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        Case c = {
            .a = {2, 100, 90, 1, 2, 32, .causal = 1, .base_q = bases[i][0], .base_k = bases[i][1]},
            .gap = 4};
        case_check(&c);
    }
}

static void test_windows(void **state)
{
    (void)state;
    static const int windows[] = {1, 5, 16, 63, 64, 65, 100, 500};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        for (int causal = 0; causal < 2; causal++) {
            Case c = {.a = {1, 150, 170, 2, 1, 24, .causal = causal, .window = windows[i],
                            .base_q = 30, .base_k = 7}};
            case_check(&c);
        }
    }
}

static void test_rows_that_see_nothing(void **state)
{
    (void)state;
    Case c = {.a = {1, 80, 80, 1, 2, 16, .causal = 1, .base_q = 0, .base_k = 40, .scale = 1}};
    case_open(&c, 5);
    case_run(&c, 2);
    for (int i = 0; i < 40; i++) {
        for (int r = 0; r < 2; r++) {
            assert_true(c.x[L][i * 2 + r] == -INFINITY);
        }
        for (int x = 0; x < 32; x++) {
            assert_true(c.x[O][i * c.stride[O] + x] == 0.0f);
            assert_true(c.x[DQ][i * c.stride[DQ] + x] == 0.0f);
        }
    }
    for (int j = 40; j < 80; j++) {
        for (int x = 0; x < 16; x++) {
            assert_true(c.x[DK][j * c.stride[DK] + x] == 0.0f);
            assert_true(c.x[DV][j * c.stride[DV] + x] == 0.0f);
        }
    }
    case_close(&c);
}

/* Scores of thousands: a sum of exponentials that is not shifted would overflow. */
static void test_large_scores(void **state)
{
    (void)state;
    Case c = {.a = {1, 130, 130, 1, 1, 16, .causal = 1, .scale = 300.0f}};
    case_open(&c, 9);
    case_reference(&c);
    case_run(&c, 1);
    assert_true(case_error(&c, O) < 2e-3);
    assert_true(case_error(&c, L) < 1e-6);
    case_close(&c);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8};
    const LpAttention shapes[] = {{2, 200, 200, 3, 2, 64, .causal = 1, .scale = 0.125f},
                                  {1, 300, 300, 1, 4, 80, .causal = 1, .scale = 0.1f}};
    for (size_t s = 0; s < 2; s++) {
        Case one = {.a = shapes[s], .gap = 2};
        case_open(&one, 3);
        case_run(&one, 1);
        for (size_t i = 0; i < 3; i++) {
            Case more = {.a = shapes[s], .gap = 2};
            case_open(&more, 3);
            case_run(&more, threads[i]);
            for (int x = 0; x < TENSORS; x++) {
                assert_memory_equal(one.x[x], more.x[x],
                                    (size_t)(one.rows[x] * one.stride[x]) * sizeof(float));
            }
            case_close(&more);
        }
        case_close(&one);
    }
}

/* The gradient of sum(o * dout) by central differences of the definition, on sampled elements. */
static void test_finite_differences(void **state)
{
    (void)state;
    Case c = {.a = {1, 70, 75, 2, 3, 16, .causal = 1, .base_q = 5, .scale = 0.3f}};
    static const int inputs[] = {Q, K, V};
    static const int gradients[] = {DQ, DK, DV};
    case_open(&c, 11);
    case_run(&c, 2);
    for (int which = 0; which < 3; which++) {
        double *x = c.y[inputs[which]];
        const long count = c.rows[inputs[which]] * c.width[inputs[which]];
        for (long at = 3; at < count; at += count / 7) {
            double sum[2];
            const double kept = x[at];
            for (int side = 0; side < 2; side++) {
                x[at] = kept + (side ? -1e-4 : 1e-4);
                const Reference r = {c.y[Q], c.y[K], c.y[V], NULL, c.y[O],
                                     c.y[L], NULL,   NULL,   NULL};
                reference_attention(&c.a, &r);
                sum[side] = 0;
                for (long i = 0; i < c.rows[O] * c.width[O]; i++) {
                    sum[side] += c.y[O][i] * c.y[DOUT][i];
                }
            }
            x[at] = kept;
            const long width = c.width[inputs[which]];
            const float got =
                c.x[gradients[which]][at / width * c.stride[gradients[which]] + at % width];
            assert_true(fabs(got - (sum[0] - sum[1]) / 2e-4) < 1e-5);
        }
    }
    case_close(&c);
}

/* Two blocks of keys with the log-sum-exp of the whole: a ring's backward. dq adds up. */
static void test_ring_blocks(void **state)
{
    (void)state;
    Case c = {.a = {1, 96, 96, 2, 2, 32, .causal = 1, .scale = 0.2f}};
    case_open(&c, 21);
    case_reference(&c);
    case_run(&c, 2);
    const long size = c.rows[DQ] * c.stride[DQ];
    float *sum = room((size_t)size * sizeof *sum);
    char *scratch = room(LP_ATTENTION_BACKWARD_BYTES(32, 2));
    memset(sum, 0, (size_t)size * sizeof *sum);
    for (int block = 0; block < 2; block++) {
        LpAttention a = c.a;
        a.t = 48;
        a.base_k = block * 48;
        lp_attention_backward(&a, c.x[Q], c.x[K] + block * 48 * a.k_stride,
                              c.x[V] + block * 48 * a.v_stride, c.x[DOUT], c.x[L], c.x[DELTA],
                              c.x[DQ], c.x[DK] + block * 48 * a.dk_stride,
                              c.x[DV] + block * 48 * a.dv_stride, scratch, 2);
        for (long i = 0; i < size; i++) {
            sum[i] = c.x[DQ][i] == GAP_VALUE ? GAP_VALUE : sum[i] + c.x[DQ][i];
        }
    }
    memcpy(c.x[DQ], sum, (size_t)size * sizeof *sum);
    assert_true(case_error(&c, DQ) < 4e-6);
    assert_true(case_error(&c, DK) < 4e-6);
    assert_true(case_error(&c, DV) < 4e-6);
    free(sum);
    free(scratch);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_unequal_lengths),
        cmocka_unit_test(test_sequence_shards),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_threads_do_not_change_bits),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_ring_blocks),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
