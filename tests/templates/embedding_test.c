/* embedding_test.c - lookup and scatter-add over vocabulary shards. */
#include "templates/host/embedding.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define N 301
#define VOCAB 53
#define MAX_D 100

typedef struct Data {
    int32_t ids[N];
    float w[VOCAB * MAX_D];
    float dout[N * (MAX_D + 3)];
    float out[N * (MAX_D + 3)];
    float dw[VOCAB * MAX_D];
} Data;

static Data *data_new(void)
{
    Data *x = malloc(sizeof *x);
    assert_non_null(x);
    uint32_t state = 17;
    for (int i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        /* Few ids, so that most repeat; 5 of 53 never occur. */
        x->ids[i] = (int32_t)((state >> 8) % (VOCAB - 5));
    }
    for (int i = 0; i < VOCAB * MAX_D; i++) {
        x->w[i] = (float)(i % 997) * 0.125f;
        x->dw[i] = 3.0f;
    }
    for (int i = 0; i < N * (MAX_D + 3); i++) {
        state = state * 1664525u + 1013904223u;
        x->dout[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
        x->out[i] = 77.0f;
    }
    return x;
}

static void check_forward(int d, long base, long rows)
{
    Data *x = data_new();
    lp_embedding_forward(N, rows, d, base, x->ids, x->w, x->out, d + 3, 2);
    for (int i = 0; i < N; i++) {
        const long row = x->ids[i] - base;
        for (int j = 0; j < d; j++) {
            const float want = row >= 0 && row < rows ? x->w[row * d + j] : 0.0f;
            assert_true(x->out[i * (d + 3) + j] == want);
        }
        assert_true(x->out[i * (d + 3) + d] == 77.0f);
    }
    free(x);
}

static void check_backward(int d, long base, long rows, int overwrite, int threads)
{
    Data *x = data_new();
    Data *y = data_new();
    lp_embedding_backward(N, rows, d, base, x->ids, x->dout, d + 3, x->dw, overwrite, threads);
    for (long row = 0; row < rows; row++) {
        for (int j = 0; j < d; j++) {
            float sum = overwrite ? 0.0f : y->dw[row * d + j];
            for (int i = 0; i < N; i++) {
                sum += y->ids[i] == row + base ? y->dout[i * (d + 3) + j] : 0.0f;
            }
            assert_true(x->dw[row * d + j] == sum);
        }
    }
    for (long i = rows * d; i < VOCAB * MAX_D; i++) {
        assert_true(x->dw[i] == 3.0f);
    }
    free(x);
    free(y);
}

static void test_forward(void **state)
{
    (void)state;
    check_forward(64, 0, VOCAB);
    check_forward(1, 0, VOCAB);
    check_forward(37, 20, 13);
    check_forward(100, 51, 2);
}

/* Float equality: the order of the additions is part of the contract. */
static void test_backward(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 7};
    for (int i = 0; i < 4; i++) {
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            check_backward(64, 0, VOCAB, overwrite, threads[i]);
            check_backward(37, 20, 13, overwrite, threads[i]);
            check_backward(1, 0, VOCAB, overwrite, threads[i]);
            check_backward(100, 40, 9, overwrite, threads[i]);
        }
    }
}

/* The shards of a table sum to the table. */
static void test_shards_add_up(void **state)
{
    (void)state;
    Data *x = data_new();
    Data *whole = data_new();
    const int d = 24;
    lp_embedding_forward(N, VOCAB, d, 0, x->ids, x->w, whole->out, d, 2);
    float sum[N * 24] = {0};
    for (long base = 0; base < VOCAB; base += 20) {
        const long rows = base + 20 > VOCAB ? VOCAB - base : 20;
        lp_embedding_forward(N, rows, d, base, x->ids, x->w + base * d, x->out, d, 2);
        for (int i = 0; i < N * d; i++) {
            sum[i] += x->out[i];
        }
    }
    assert_memory_equal(sum, whole->out, sizeof sum);
    free(x);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_shards_add_up),
    };
    return cmocka_run_group_tests_name("embedding", tests, NULL, NULL);
}
