/* attention_bench.c - flash attention against the S x S form with BLAS, at GPT-2 shapes.
 *
 * The S x S form keeps the probabilities of every head (as the trainer it stands for would, for
 * backward) and runs one head per thread with cblas inside. Memory is in huge pages, as a trainer's
 * arena is. The four runs take turns until a second has passed, and the best of each counts: the
 * machine may be shared. */
#include "templates/host/attention.c"
#include "templates/host/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

typedef struct Bench {
    LpAttention a;
    float *qkv, *dqkv, *o, *dout, *l, *delta, *p, *dp;
    void *scratch;
    int threads;
} Bench;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static float *filled(long count)
{
    const size_t page = (size_t)2 << 20;
    const size_t bytes = ((size_t)count * sizeof(float) + page - 1) / page * page;
    float *x = aligned_alloc(page, bytes);
    if (!x) {
        fprintf(stderr, "attention_bench: out of memory\n");
        exit(1);
    }
    madvise(x, bytes, MADV_HUGEPAGE);
    for (long i = 0; i < count; i++) {
        x[i] = (float)(i * 7 % 97) / 97.0f - 0.5f;
    }
    return x;
}

static void flash_forward(Bench *x)
{
    const long c = (long)x->a.g * x->a.d;
    lp_attention_forward(&x->a, x->qkv, x->qkv + c, x->qkv + 2 * c, x->o, x->l, x->scratch,
                         x->threads);
}

static void flash_backward(Bench *x)
{
    const long c = (long)x->a.g * x->a.d;
    lp_attention_delta(&x->a, x->o, x->dout, x->delta, x->threads);
    lp_attention_backward(&x->a, x->qkv, x->qkv + c, x->qkv + 2 * c, x->dout, x->l, x->delta,
                          x->dqkv, x->dqkv + c, x->dqkv + 2 * c, x->scratch, x->threads);
}

static void quadratic_softmax(int t, float *s)
{
    for (int i = 0; i < t; i++) {
        float *row = s + (long)i * t;
        float peak = -1e30f;
        float sum = 0.0f;
#pragma omp simd reduction(max : peak)
        for (int j = 0; j <= i; j++) {
            peak = row[j] > peak ? row[j] : peak;
        }
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j <= i; j++) {
            row[j] = lp_expf(row[j] - peak);
            sum += row[j];
        }
        const float inverse = 1.0f / sum;
#pragma omp simd
        for (int j = 0; j <= i; j++) {
            row[j] *= inverse;
        }
        memset(row + i + 1, 0, (size_t)(t - i - 1) * sizeof *row);
    }
}

static void quadratic_forward(Bench *x)
{
    const int t = x->a.t;
    const int d = x->a.d;
    const int heads = x->a.g;
    const int c = heads * d;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int z = 0; z < x->a.b * heads; z++) {
        const float *q = x->qkv + (long)(z / heads) * t * 3 * c + z % heads * d;
        float *s = x->p + (long)z * t * t;
        lp_gemm(0, 1, t, t, d, x->a.scale, q, 3 * c, q + c, 3 * c, 0.0f, s, t);
        quadratic_softmax(t, s);
        lp_gemm(0, 0, t, d, t, 1.0f, s, t, q + 2 * c, 3 * c, 0.0f,
                x->o + (long)(z / heads) * t * c + z % heads * d, c);
    }
}

static void quadratic_backward(Bench *x)
{
    const int t = x->a.t;
    const int d = x->a.d;
    const int heads = x->a.g;
    const int c = heads * d;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int z = 0; z < x->a.b * heads; z++) {
        const long at = (long)(z / heads) * t * 3 * c + z % heads * d;
        const float *q = x->qkv + at;
        const float *dout = x->dout + (long)(z / heads) * t * c + z % heads * d;
        const float *p = x->p + (long)z * t * t;
        float *dq = x->dqkv + at;
        float *ds = x->dp + (long)z * t * t;
        lp_gemm(0, 1, t, t, d, 1.0f, dout, c, q + 2 * c, 3 * c, 0.0f, ds, t);
        lp_gemm(1, 0, t, d, t, 1.0f, p, t, dout, c, 0.0f, dq + 2 * c, 3 * c);
        for (int i = 0; i < t; i++) {
            const float *restrict row = p + (long)i * t;
            float *restrict out = ds + (long)i * t;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int j = 0; j <= i; j++) {
                sum += out[j] * row[j];
            }
#pragma omp simd
            for (int j = 0; j <= i; j++) {
                out[j] = row[j] * (out[j] - sum);
            }
            memset(out + i + 1, 0, (size_t)(t - i - 1) * sizeof *out);
        }
        lp_gemm(0, 0, t, d, t, x->a.scale, ds, t, q + c, 3 * c, 0.0f, dq, 3 * c);
        lp_gemm(1, 0, t, d, t, x->a.scale, ds, t, q, 3 * c, 0.0f, dq + c, 3 * c);
    }
}

/* The best time of each run, in ms; turns are taken at least three times. */
static void best_ms(Bench *x, double ret_ms[4])
{
    void (*const runs[4])(Bench *) = {flash_forward, flash_backward, quadratic_forward,
                                      quadratic_backward};
    const double begin = now_ms();
    for (int round = 0; round < 4 || now_ms() - begin < 1000.0; round++) {
        for (int i = 0; i < 4; i++) {
            const double start = now_ms();
            runs[i](x);
            const double ms = now_ms() - start;
            /* Round 0 touches the memory and is left out. */
            ret_ms[i] = round < 2 || ms < ret_ms[i] ? ms : ret_ms[i];
        }
    }
}

static void bench(int t, int threads)
{
    const int b = 4;
    const int heads = 12;
    const int d = 64;
    const long c = (long)heads * d;
    const long rows = (long)b * t;
    Bench x = {.a = {.b = b,
                     .s = t,
                     .t = t,
                     .g = heads,
                     .r = 1,
                     .d = d,
                     .e = d,
                     .q_stride = 3 * c,
                     .k_stride = 3 * c,
                     .v_stride = 3 * c,
                     .o_stride = c,
                     .dq_stride = 3 * c,
                     .dk_stride = 3 * c,
                     .dv_stride = 3 * c,
                     .do_stride = c,
                     .scale = 0.125f,
                     .causal = 1},
               .threads = threads};
    const size_t forward = LP_ATTENTION_FORWARD_BYTES(d, d, threads);
    const size_t backward = LP_ATTENTION_BACKWARD_BYTES(d, d, threads);
    x.qkv = filled(rows * 3 * c);
    x.dqkv = filled(rows * 3 * c);
    x.o = filled(rows * c);
    x.dout = filled(rows * c);
    x.l = filled(rows * heads);
    x.delta = filled(rows * heads);
    x.p = filled((long)b * heads * t * t);
    x.dp = filled((long)b * heads * t * t);
    x.scratch = filled((long)((forward > backward ? forward : backward) / sizeof(float)));
    double ms[4];
    best_ms(&x, ms);
    const double pair_gflop = 2e-9 * (double)b * heads * d * t * (t + 1.0) / 2.0;
    printf("B4 T%-4d H12 D64: forward %8.3f ms (%4.0f GF/s) vs %8.3f, x%.2f; backward %8.3f ms "
           "(%4.0f GF/s) vs %8.3f, x%.2f\n",
           t, ms[0], 2e3 * pair_gflop / ms[0], ms[2], ms[2] / ms[0], ms[1],
           5e3 * pair_gflop / ms[1], ms[3], ms[3] / ms[1]);
    free(x.qkv);
    free(x.dqkv);
    free(x.o);
    free(x.dout);
    free(x.l);
    free(x.delta);
    free(x.p);
    free(x.dp);
    free(x.scratch);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    lp_gemm_print(stdout);
    printf("threads %d; useful GFLOP of the causal half; x is how many times faster flash is\n",
           threads);
    bench(64, threads);
    bench(256, threads);
    bench(1024, threads);
    return 0;
}
