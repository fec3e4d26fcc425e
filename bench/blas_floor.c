/* blas_floor.c - the time a GPT-2 124M training step cannot go below with this machine's BLAS.
 *
 *     blas_floor [BATCH [SEQ [REPS]]]        default 4 64 5
 *
 * Runs exactly the matrix products of one step, forward and backward, and the memory traffic of
 * AdamW, and nothing else: no norms, no softmax, no loss, no copies. Every group counts with its
 * best repetition, and a linear with the better of its two weight layouts, so the sum is a floor
 * for any trainer that calls this BLAS. One thing may go under it: attention is counted as full
 * squares through the BLAS, and a kernel of its own can skip the masked half.
 *
 * Weights and gradients are laid out for all layers, so each product finds them cold, as in a real
 * step. The activations are shared by the layers; that only lowers the floor.
 * Prints a table, and as its last line the same as JSON. Threads: OMP_NUM_THREADS.
 */

#define _DEFAULT_SOURCE /* madvise */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    LAYERS = 12,
    HEADS = 12,
    WIDTH = 768,
    VOCAB = 50257,
    POSITIONS = 1024,
    HEAD = WIDTH / HEADS
};
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
enum { PARALLEL_OPENMP = 2 };

/* Declared here: cblas.h lies in a different folder on every system, and its enums are ints. */
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
char *openblas_get_corename(void);
int openblas_get_parallel(void);

typedef enum { OUT_IN, IN_OUT, LAYOUT_COUNT } Layout;
typedef enum { FORWARD, GRAD_INPUT, GRAD_WEIGHT, PASS_COUNT } Pass;

/* One linear of the model: `count` instances, each weight `stride` elements after the last. */
typedef struct {
    const char *name;
    int in, out;
    int count;
    size_t offset, stride;
    bool tied; /* shares its matrix with the lookup, so its layout is fixed to [out, in] */
} Linear;

typedef struct {
    int batch, seq, tokens, threads;
    size_t params;
    float *w, *g, *m, *v;    /* [params] */
    float *x, *dx, *y, *dy;  /* [tokens, 4 * WIDTH] */
    float *logits, *dlogits; /* [tokens, VOCAB] */
    float *scores;           /* [threads, 2, seq, seq] */
} Bench;

/* Best times seen, in seconds. */
typedef struct {
    double linear[LAYOUT_COUNT][PASS_COUNT];
} LinearTimes;

enum { BLOCK_PARAMS = 12 * WIDTH * WIDTH + 13 * WIDTH };
enum { QKV, PROJ, UP, DOWN, LM_HEAD, LINEAR_COUNT };
#define BLOCKS_AT ((size_t)(VOCAB + POSITIONS) * WIDTH)
#define SQUARE ((size_t)WIDTH * WIDTH)

static const Linear linears[LINEAR_COUNT] = {
    [QKV] = {"qkv", WIDTH, 3 * WIDTH, LAYERS, BLOCKS_AT, BLOCK_PARAMS, false},
    [PROJ] = {"proj", WIDTH, WIDTH, LAYERS, BLOCKS_AT + 3 * SQUARE, BLOCK_PARAMS, false},
    [UP] = {"up", WIDTH, 4 * WIDTH, LAYERS, BLOCKS_AT + 4 * SQUARE, BLOCK_PARAMS, false},
    [DOWN] = {"down", 4 * WIDTH, WIDTH, LAYERS, BLOCKS_AT + 8 * SQUARE, BLOCK_PARAMS, false},
    [LM_HEAD] = {"lm_head", WIDTH, VOCAB, 1, 0, 0, true},
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double min_of(double a, double b)
{
    return a < b ? a : b;
}

/* Huge pages where the system lends them: without, page walks cost about a tenth. */
static float *floats_new(size_t count)
{
    const size_t page = (size_t)2 << 20;
    size_t bytes = (count * sizeof(float) + page - 1) / page * page;
    float *p = aligned_alloc(page, bytes);
    if (!p) {
        fprintf(stderr, "blas_floor: no %zu MiB of memory\n", bytes >> 20);
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* advice only: refusal costs speed, not correctness */
#endif
    /* Small, never zero and never denormal, so that no arithmetic is cheaper than in earnest. */
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) {
        uint32_t h = (uint32_t)i * 2654435761u;
        p[i] = ((float)(h >> 8) / 16777216.0f - 0.49f) * 0.02f;
    }
    return p;
}

static void sgemm(int trans_a, int trans_b, int m, int n, int k, const float *a, int lda,
                  const float *b, int ldb, float *c, int ldc)
{
    cblas_sgemm(ROW_MAJOR, trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc);
}

/* x [t,in], y [t,out], w [out,in] or [in,out]. */
static void linear_run(const Bench *b, const Linear *l, int instance, Layout layout, Pass pass)
{
    size_t at = l->offset + (size_t)instance * l->stride;
    float *w = b->w + at, *g = b->g + at;
    float *y = l->tied ? b->logits : b->y, *dy = l->tied ? b->dlogits : b->dy;
    int t = b->tokens, in = l->in, out = l->out;
    bool out_in = layout == OUT_IN;
    int ld = out_in ? in : out;
    switch (pass) {
    case FORWARD:
        sgemm(NO_TRANS, out_in ? TRANS : NO_TRANS, t, out, in, b->x, in, w, ld, y, out);
        break;
    case GRAD_INPUT:
        sgemm(NO_TRANS, out_in ? NO_TRANS : TRANS, t, in, out, dy, out, w, ld, b->dx, in);
        break;
    case GRAD_WEIGHT:
        if (out_in)
            sgemm(TRANS, NO_TRANS, out, in, t, dy, out, b->x, in, g, in);
        else
            sgemm(TRANS, NO_TRANS, in, out, t, b->x, in, dy, out, g, out);
        break;
    case PASS_COUNT:
        break;
    }
}

/* q, k, v are the thirds of rows [t, 3 * WIDTH]; one head a task, the BLAS then runs on one thread.
 */
static void attention_run(const Bench *b, bool backward)
{
    const int ld = 3 * WIDTH, seq = b->seq;
    const size_t square = (size_t)seq * (size_t)seq;
#pragma omp parallel for collapse(2) schedule(static)
    for (int row = 0; row < b->batch; row++) {
        for (int head = 0; head < HEADS; head++) {
            int thread = 0;
#ifdef _OPENMP
            thread = omp_get_thread_num();
#endif
            size_t first = (size_t)row * (size_t)seq;
            const float *q = b->x + first * ld + (size_t)head * HEAD;
            const float *k = q + WIDTH, *v = k + WIDTH;
            float *dq = b->dx + (q - b->x), *dk = dq + WIDTH, *dv = dk + WIDTH;
            float *out = b->y + first * WIDTH + (size_t)head * HEAD;
            const float *dout = b->dy + first * WIDTH + (size_t)head * HEAD;
            float *p = b->scores + (size_t)thread * 2 * square, *ds = p + square;
            if (!backward) {
                sgemm(NO_TRANS, TRANS, seq, seq, HEAD, q, ld, k, ld, p, seq);
                sgemm(NO_TRANS, NO_TRANS, seq, HEAD, seq, p, seq, v, ld, out, WIDTH);
            } else {
                sgemm(NO_TRANS, TRANS, seq, seq, HEAD, dout, WIDTH, v, ld, ds, seq);
                sgemm(TRANS, NO_TRANS, seq, HEAD, seq, p, seq, dout, WIDTH, dv, ld);
                sgemm(NO_TRANS, NO_TRANS, seq, HEAD, seq, ds, seq, k, ld, dq, ld);
                sgemm(TRANS, NO_TRANS, seq, HEAD, seq, ds, seq, q, ld, dk, ld);
            }
        }
    }
}

/* Reads four streams and writes three: 28 bytes a parameter. v starts as any number, hence fabsf.
 */
static void adamw_run(const Bench *b)
{
    float *restrict w = b->w, *restrict m = b->m, *restrict v = b->v;
    const float *restrict g = b->g;
    const float lr = 1e-4f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, keep = 1.0f - 1e-5f;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < b->params; i++) {
        m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
        v[i] = beta2 * fabsf(v[i]) + (1.0f - beta2) * g[i] * g[i];
        w[i] = keep * w[i] - lr * m[i] / (sqrtf(v[i]) + eps);
    }
}

static void linear_time(const Bench *b, const Linear *l, bool first, LinearTimes *best)
{
    for (Layout layout = OUT_IN; layout < (l->tied ? IN_OUT : LAYOUT_COUNT); layout++) {
        for (Pass pass = FORWARD; pass < PASS_COUNT; pass++) {
            double start = now_s();
            for (int i = 0; i < l->count; i++)
                linear_run(b, l, i, layout, pass);
            double t = now_s() - start;
            best->linear[layout][pass] = first ? t : min_of(t, best->linear[layout][pass]);
        }
    }
}

static double linear_total(const LinearTimes *t, Layout layout)
{
    return t->linear[layout][FORWARD] + t->linear[layout][GRAD_INPUT] +
           t->linear[layout][GRAD_WEIGHT];
}

static double attention_time(const Bench *b, bool backward)
{
    double start = now_s();
    for (int layer = 0; layer < LAYERS; layer++)
        attention_run(b, backward);
    return now_s() - start;
}

typedef struct {
    LinearTimes linears[LINEAR_COUNT];
    double attention[2]; /* forward, backward */
    double adamw;
} Times;

/* The first repetition pays for first touch and thread start, and is not kept. */
static void bench_run(const Bench *b, int reps, Times *ret_best)
{
    for (int rep = 0; rep <= reps; rep++) {
        bool first = rep <= 1;
        for (int i = 0; i < LINEAR_COUNT; i++)
            linear_time(b, &linears[i], first, &ret_best->linears[i]);
        for (int backward = 0; backward < 2; backward++) {
            double t = attention_time(b, backward);
            ret_best->attention[backward] = first ? t : min_of(t, ret_best->attention[backward]);
        }
        double start = now_s();
        adamw_run(b);
        double t = now_s() - start;
        ret_best->adamw = first ? t : min_of(t, ret_best->adamw);
    }
}

static void row_put(const char *name, double forward_s, double backward_s, double work,
                    const char *unit, const char *layout)
{
    double total = forward_s + backward_s;
    printf("%-10s %9.2f %9.2f %9.2f %9.1f %-6s %s\n", name, 1e3 * forward_s, 1e3 * backward_s,
           1e3 * total, work / total * 1e-9, unit, layout);
}

static void report_put(const Bench *b, const Times *t)
{
    double total = 0, flops = 0;
    char json[1024];
    int used = 0;
    printf("GPT-2 124M, batch %d, seq %d, %d threads, OpenBLAS core %s%s\n", b->batch, b->seq,
           b->threads, openblas_get_corename(),
           openblas_get_parallel() == PARALLEL_OPENMP ? "" : " (not its OpenMP build)");
    printf("%-10s %9s %9s %9s %9s\n", "group", "fwd ms", "bwd ms", "ms", "rate");
    for (int i = 0; i < LINEAR_COUNT; i++) {
        const Linear *l = &linears[i];
        const LinearTimes *lt = &t->linears[i];
        Layout layout = OUT_IN;
        if (!l->tied && linear_total(lt, IN_OUT) < linear_total(lt, OUT_IN))
            layout = IN_OUT;
        double forward = lt->linear[layout][FORWARD];
        double all = linear_total(lt, layout);
        double work = 6.0 * b->tokens * l->in * (double)l->out * l->count;
        row_put(l->name, forward, all - forward, work, "GF/s",
                layout == OUT_IN ? "[out,in]" : "[in,out]");
        total += all;
        flops += work;
        used += snprintf(json + used, sizeof json - (size_t)used, ", \"%s_ms\": %.2f", l->name,
                         1e3 * all);
    }
    double attention = t->attention[0] + t->attention[1];
    double work = 12.0 * b->tokens * (double)b->seq * WIDTH * LAYERS;
    row_put("attention", t->attention[0], t->attention[1], work, "GF/s", "full squares");
    row_put("adamw", 0, t->adamw, 28.0 * (double)b->params, "GB/s", "28 bytes a parameter");
    total += attention + t->adamw;
    flops += work;
    double rate = b->tokens / total;
    printf("%-10s %39.2f ms   %.1f tokens/s   %.1f GFLOP a step\n", "total", 1e3 * total, rate,
           flops * 1e-9);
    printf("{\"bench\": \"blas_floor\", \"tokens_per_s\": %.1f, \"step_ms\": %.2f%s, "
           "\"attention_ms\": %.2f, \"adamw_ms\": %.2f, \"gflop\": %.1f, \"batch\": %d, "
           "\"seq\": %d, \"threads\": %d, \"params_total\": %zu, \"core\": \"%s\", "
           "\"openmp_blas\": %s}\n",
           rate, 1e3 * total, json, 1e3 * attention, 1e3 * t->adamw, flops * 1e-9, b->batch, b->seq,
           b->threads, b->params, openblas_get_corename(),
           openblas_get_parallel() == PARALLEL_OPENMP ? "true" : "false");
}

static bool int_read(const char *text, int least, int most, int *ret_value)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        return false;
    *ret_value = (int)value;
    return true;
}

int main(int argc, char **argv)
{
    Bench b = {.batch = 4, .seq = 64, .threads = 1};
    int reps = 5;
    if (argc > 4 || (argc > 1 && !int_read(argv[1], 1, 256, &b.batch)) ||
        (argc > 2 && !int_read(argv[2], 1, POSITIONS, &b.seq)) ||
        (argc > 3 && !int_read(argv[3], 1, 1000, &reps))) {
        fprintf(stderr, "usage: blas_floor [BATCH (1-256) [SEQ (1-%d) [REPS (1-1000)]]]\n",
                POSITIONS);
        return 2;
    }
#ifdef _OPENMP
    b.threads = omp_get_max_threads();
#endif
    b.tokens = b.batch * b.seq;
    b.params = BLOCKS_AT + (size_t)LAYERS * BLOCK_PARAMS + 2 * WIDTH;
    float **whole[] = {&b.w, &b.g, &b.m, &b.v}, **wide[] = {&b.x, &b.dx, &b.y, &b.dy};
    for (size_t i = 0; i < 4; i++)
        *whole[i] = floats_new(b.params);
    for (size_t i = 0; i < 4; i++)
        *wide[i] = floats_new((size_t)b.tokens * 4 * WIDTH);
    b.logits = floats_new((size_t)b.tokens * VOCAB);
    b.dlogits = floats_new((size_t)b.tokens * VOCAB);
    b.scores = floats_new((size_t)b.threads * 2 * (size_t)b.seq * (size_t)b.seq);

    Times best = {0};
    bench_run(&b, reps, &best);
    report_put(&b, &best);

    float *all[] = {b.w, b.g, b.m, b.v, b.x, b.dx, b.y, b.dy, b.logits, b.dlogits, b.scores};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return 0;
}
