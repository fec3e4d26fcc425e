/* attention_test.c - host flash attention against the definition in double, on odd shapes. */
#include "tests/templates/attention_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void run_threads(Case *c, int threads)
{
    const LpAttention *a = &c->a;
    const size_t forward = LP_ATTENTION_FORWARD_BYTES(a->d, a->e, threads);
    const size_t backward = LP_ATTENTION_BACKWARD_BYTES(a->d, a->e, threads);
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

static void run_two(Case *c)
{
    run_threads(c, 2);
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
                case_check(&c, run_two, 4e-6);
            }
        }
    }
}

/* The keys in two blocks, joined by their weights: what each turn of a ring does. */
static void run_joined(Case *c)
{
    LpAttention part = c->a;
    const int heads = c->a.g * c->a.r, width = heads * c->a.e, cut = c->a.t / 3;
    const long rows = c->a.s;
    float *o[2], *l[2];
    void *scratch = room(LP_ATTENTION_FORWARD_BYTES(c->a.d, c->a.e, 2));
    run_two(c); /* the gradients, of which a ring adds up the parts */
    part.o_stride = width;
    for (int i = 0; i < 2; i++) {
        const int begin = i == 0 ? 0 : cut;
        o[i] = room((size_t)(rows * width) * sizeof **o);
        l[i] = room((size_t)(rows * heads) * sizeof **l);
        part.t = i == 0 ? cut : c->a.t - cut;
        part.base_k = c->a.base_k + begin;
        lp_attention_forward(&part, c->x[Q], c->x[K] + begin * c->a.k_stride,
                             c->x[V] + begin * c->a.v_stride, o[i], l[i], scratch, 2);
    }
    lp_attention_merge(rows * heads, c->a.e, o[0], l[0], o[1], l[1], 2);
    for (long row = 0; row < rows; row++)
        memcpy(c->x[O] + row * c->a.o_stride, o[0] + row * width, (size_t)width * sizeof **o);
    memcpy(c->x[L], l[0], (size_t)(rows * heads) * sizeof **l);
    for (int i = 0; i < 2; i++) {
        free(o[i]);
        free(l[i]);
    }
    free(scratch);
}

static void test_joined(void **state)
{
    (void)state;
    /* The last sees no key of the second block in its first rows, and none of either before. */
    static const long bases[][2] = {{0, 0}, {90, 0}, {0, 40}, {20, 0}};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        for (int causal = 0; causal < 2; causal++) {
            Case c = {.a = {1, 60, 90, 2, 3, 24, .causal = causal, .base_q = bases[i][0],
                            .base_k = bases[i][1]}};
            case_check(&c, run_joined, 4e-6);
        }
}

static void test_unequal_lengths(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        Case few = {.a = {1, 5, 200, 2, 2, 32, .causal = causal, .base_q = 195}};
        case_check(&few, run_two, 4e-6);
        Case many = {.a = {1, 200, 9, 2, 2, 32, .causal = causal}};
        case_check(&many, run_two, 4e-6);
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
        case_check(&c, run_two, 4e-6);
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
            case_check(&c, run_two, 4e-6);
        }
    }
}

/* Values narrower and wider than queries and keys. */
static void test_value_widths(void **state)
{
    (void)state;
    static const int widths[][2] = {{48, 32}, {16, 64}, {13, 7}, {7, 13}, {192, 128}, {1, 33}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (int causal = 0; causal < 2; causal++) {
            Case c = {.a = {2, 130, 140, 2, 3, widths[i][0], widths[i][1], .causal = causal,
                            .base_q = 10},
                      .gap = 3};
            case_check(&c, run_two, 4e-6);
        }
    }
}

/* Shares are dropped by words of rows; sums of rows count them all. With every feature besides. */
static void test_dropout(void **state)
{
    (void)state;
    enum { BATCH = 2, QUERIES = 130, HEADS = 4 };
    static int words[BATCH * QUERIES * HEADS], starts[BATCH * QUERIES];
    static const float slopes[HEADS] = {0.5f, 0.1f, 0.02f, 0.3f};
    uint64_t seed = 99;
    for (int i = 0; i < BATCH * QUERIES * HEADS; i++)
        words[i] = (int)((uniform(&seed) + 1) * 1e9);
    for (int i = 0; i < BATCH * QUERIES; i++)
        starts[i] = i % QUERIES / 40 * 40 + 20;
    for (int causal = 0; causal < 2; causal++) {
        Case plain = {.a = {BATCH, QUERIES, 150, 2, 2, 24, .causal = causal, .words = words,
                            .below = 0x4ccccccc, .kept = 1 / 0.7f, .base_q = 20},
                      .gap = 2};
        case_check(&plain, run_two, 4e-6);
        Case all = {.a = {BATCH, QUERIES, 150, 2, 2, 24, 40, .causal = 1, .window = 90,
                          .softcap = 2, .slopes = slopes, .starts = causal ? starts : NULL,
                          .words = words, .below = 0x80000000, .kept = 2, .base_q = 20,
                          .scale = 0.4f}};
        case_check(&all, run_two, 6e-6);
    }
}

static void test_softcap(void **state)
{
    (void)state;
    static const float caps[] = {0.3f, 1.0f, 50.0f};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        for (int causal = 0; causal < 2; causal++) {
            Case c = {.a = {1, 150, 150, 2, 2, 24, 40, .causal = causal, .window = causal ? 70 : 0,
                            .softcap = caps[i], .scale = 0.4f}};
            case_check(&c, run_two, 4e-6);
        }
    }
}

static void test_slopes(void **state)
{
    (void)state;
    static const float slopes[] = {0.125f, 0.25f, 0.0f, 0.0625f, -0.125f, 0.03f};
    for (int causal = 0; causal < 2; causal++) {
        for (int cap = 0; cap < 2; cap++) {
            Case c = {.a = {2, 150, 170, 2, 3, 24, .causal = causal, .slopes = slopes,
                            .softcap = cap ? 2.0f : 0.0f, .base_q = 70, .base_k = 30}};
            case_check(&c, run_two, 4e-6);
        }
    }
}

static void test_chunks(void **state)
{
    (void)state;
    static const int chunks[] = {1, 5, 63, 64, 100, 128, 129, 1000};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        for (int causal = 0; causal < 2; causal++) {
            for (int window = 0; window < 2; window++) {
                Case c = {.a = {1, 200, 270, 2, 1, 24, .causal = causal, .chunk = chunks[i],
                                .window = window ? 40 : 0, .base_q = 60, .base_k = 7}};
                case_check(&c, run_two, 4e-6);
            }
        }
    }
}

/* Documents in a row, one begin for each query; and begins in no order, which hide keys all over
 * the tiles. Some lie ahead of the query: with a causal mask such a row sees nothing. */
static void test_starts(void **state)
{
    (void)state;
    enum { BATCH = 2, QUERIES = 200 };
    static const int lengths[] = {1, 9, 64, 150, 400};
    int starts[BATCH * QUERIES];
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths + 1; n++) {
        const int documents = n < sizeof lengths / sizeof *lengths;
        uint64_t seed = 17;
        for (int i = 0; i < BATCH * QUERIES; i++) {
            const int query = 60 + i % QUERIES;
            starts[i] = documents ? query - (query + i / QUERIES * 30) % lengths[n]
                                  : (int)((uniform(&seed) + 1.0) * 140.0);
            starts[i] = starts[i] < 0 ? 0 : starts[i];
        }
        for (int causal = 0; causal < 2; causal++) {
            Case c = {.a = {BATCH, QUERIES, 270, 2, 2, 24, .causal = causal, .starts = starts,
                            .base_q = 60, .base_k = 7}};
            case_check(&c, run_two, 4e-6);
            c.a.window = 90;
            case_check(&c, run_two, 4e-6);
            c.a.chunk = 110;
            case_check(&c, run_two, 4e-6);
        }
    }
}

static void test_rows_that_see_nothing(void **state)
{
    (void)state;
    Case c = {.a = {1, 80, 80, 1, 2, 16, .causal = 1, .base_q = 0, .base_k = 40, .scale = 1}};
    case_open(&c, 5);
    run_threads(&c, 2);
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
    run_threads(&c, 1);
    assert_true(case_error(&c, O) < 2e-3);
    assert_true(case_error(&c, L) < 1e-6);
    case_close(&c);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8};
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f};
    const LpAttention shapes[] = {{2, 200, 200, 3, 2, 64, .causal = 1, .scale = 0.125f},
                                  {1, 300, 300, 1, 4, 80, .causal = 1, .scale = 0.1f},
                                  {1, 300, 300, 2, 2, 48, 32, .causal = 1, .scale = 0.1f,
                                   .softcap = 3.0f, .chunk = 130, .slopes = slopes}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        Case one = {.a = shapes[s], .gap = 2};
        case_open(&one, 3);
        run_threads(&one, 1);
        for (size_t i = 0; i < 3; i++) {
            Case more = {.a = shapes[s], .gap = 2};
            case_open(&more, 3);
            run_threads(&more, threads[i]);
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
static void check_differences(const LpAttention *a)
{
    Case c = {.a = *a};
    static const int inputs[] = {Q, K, V};
    static const int gradients[] = {DQ, DK, DV};
    case_open(&c, 11);
    run_threads(&c, 2);
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

static void test_finite_differences(void **state)
{
    (void)state;
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03f, 0.01f};
    check_differences(&(LpAttention){1, 70, 75, 2, 3, 16, .causal = 1, .base_q = 5, .scale = 0.3f});
    check_differences(&(LpAttention){1, 70, 75, 2, 3, 16, 24, .causal = 1, .base_q = 5,
                                     .scale = 0.6f, .softcap = 0.7f, .slopes = slopes});
}

/* Two blocks of keys with the log-sum-exp of the whole: a ring's backward. dq adds up. */
static void test_ring_blocks(void **state)
{
    (void)state;
    Case c = {.a = {1, 96, 96, 2, 2, 32, .causal = 1, .scale = 0.2f}};
    case_open(&c, 21);
    case_reference(&c);
    run_threads(&c, 2);
    const long size = c.rows[DQ] * c.stride[DQ];
    float *sum = room((size_t)size * sizeof *sum);
    char *scratch = room(LP_ATTENTION_BACKWARD_BYTES(32, 32, 2));
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

/* Two runs of a rank against those of another, and against all; runs that tiles do not fit. */
static void test_runs(void **state)
{
    (void)state;
    static const float slopes[] = {0.25f, -0.0625f};
    int starts[2 * 300];
    int words[2 * 300 * 2];
    for (int i = 0; i < 2 * 300; i++) {
        starts[i] = i * 37 % 200;
        words[2 * i] = 7919 * i;
        words[2 * i + 1] = 104729 * i + 1;
    }
    static const LpAttention kinds[] = {{.causal = 1},
                                        {.causal = 1, .window = 40},
                                        {.causal = 1, .chunk = 90},
                                        {.causal = 1, .softcap = 2.0f},
                                        {.causal = 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int shard = 0; shard < 3; shard++) {
            for (int other = 0; other < 4; other++) {
                Case c = {.a = kinds[i]};
                c.a.b = 2;
                c.a.run = 75;
                c.a.runs = 6;
                c.a.s = 150;
                c.a.base_q = shard * 150;
                c.a.t = other == 3 ? 450 : 150;
                c.a.base_k = other == 3 ? 0 : other * 150;
                c.a.g = 1;
                c.a.r = 2;
                c.a.d = 16;
                c.a.slopes = shard == 1 ? slopes : NULL;
                c.a.starts = shard == 2 ? starts : NULL;
                c.a.words = other == 3 ? words : NULL;
                c.a.below = 0x40000000;
                c.a.kept = 4.0f / 3;
                case_check(&c, run_two, 4e-6);
            }
        }
    }
    /* The half of a run. */
    Case half = {.a = {1, 32, 256, 2, 1, 16, .causal = 1, .base_q = 96, .run = 64, .runs = 4}};
    case_check(&half, run_two, 4e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_unequal_lengths),
        cmocka_unit_test(test_sequence_shards),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_value_widths),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_threads_do_not_change_bits),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_ring_blocks),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
