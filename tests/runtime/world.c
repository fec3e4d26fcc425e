/* world.c - a trainer written by hand that exercises the runtime on any number of ranks.
 *
 *     LP_TEST=collectives|train|hang|die|exit|stop|nan|leak LP_RANKS=4 \
 *         [mpirun -np 4] world [--virtual] --data random
 *
 * Wrong results abort with a line; the caller looks at the exit status, log.jsonl and the files. */
#include "runtime/lp.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void check(bool ok, const char *what, int64_t at)
{
    if (!ok)
        lp_fail(9, "wrong: %s, element %lld", what, (long long)at);
}

/* What rank r holds at element i: sums of these depend on the order of addition. */
static float value(int r, int64_t i)
{
    uint32_t bits = (uint32_t)i * 2654435761u + (uint32_t)r * 40503u + 1;
    bits ^= bits >> 15;
    bits *= 2246822519u;
    bits ^= bits >> 13;
    return ((float)(bits & 0xffff) - 32768.0f) * (1 + (float)(bits >> 29) * 10000);
}

static float reduced(const int *ranks, int n, int64_t i, LpOp op)
{
    float sum = value(ranks[0], i);
    for (int k = 1; k < n; k++)
        sum = op == LP_SUM ? sum + value(ranks[k], i) : fmaxf(sum, value(ranks[k], i));
    return sum;
}

static float *fill(float *buf, int r, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        buf[i] = value(r, i);
    return buf;
}

static bool same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void nap(int ms)
{
    struct timespec span = {0, ms * 1000000L};
    nanosleep(&span, NULL);
}

/* ---- collectives against sums written down here ---- */

static void test_reduce(int comm, const int *ranks, int n, int me, int64_t count, LpOp op, float *a,
                        float *b)
{
    LpEvent event = {0};
    fill(a, ranks[me], count);
    lp_all_reduce(&event, comm, a, count, LP_F32, op);
    lp_wait(&event);
    for (int64_t i = 0; i < count; i++) {
        float want = reduced(ranks, n, i, op);
        check(same(&a[i], &want, 4), "all-reduce", i);
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        fill(a, ranks[me], count * n);
        float *dst = in_place ? a + me * count : b;
        lp_reduce_scatter(&event, comm, a, dst, count, LP_F32, op);
        lp_wait(&event);
        for (int64_t i = 0; i < count; i++) {
            float want = reduced(ranks, n, me * count + i, op);
            check(same(&dst[i], &want, 4), in_place ? "reduce-scatter in place" : "reduce-scatter",
                  i);
        }
        for (int64_t i = 0; i < count * n; i++)
            if (i / count != me)
                check(a[i] == value(ranks[me], i), "reduce-scatter touched its source", i);
    }
}

static void test_exchange(int comm, const int *ranks, int n, int me, int64_t count, float *a,
                          float *b)
{
    LpEvent event = {0};
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(b, 0xff, (size_t)(count * n * 4));
        float *src = fill(in_place ? b + me * count : a, ranks[me], count);
        lp_all_gather(&event, comm, src, b, count, LP_F32);
        lp_wait(&event);
        for (int64_t i = 0; i < count * n; i++)
            check(b[i] == value(ranks[i / count], i % count), "all-gather", i);
    }
    fill(a, ranks[me], count * n);
    lp_all_to_all(&event, comm, a, b, count, LP_F32);
    lp_wait(&event);
    for (int64_t i = 0; i < count * n; i++)
        check(b[i] == value(ranks[i / count], me * count + i % count), "all-to-all", i);
    for (int shift = -n; shift <= n; shift++) {
        lp_rotate(&event, comm, a, b, count, LP_F32, shift);
        lp_wait(&event);
        int from = ((me - shift) % n + n) % n;
        for (int64_t i = 0; i < count; i++)
            check(b[i] == value(ranks[from], i), "rotate", i);
    }
}

/* Blocks of all sizes, nothing among them: rank x gives rank y (7x + 3y) % 5 times `unit`. */
static void test_sizes(int comm, const int *ranks, int n, int me, int64_t unit, float *a, float *b)
{
    LpEvent event = {0};
    int64_t give[64] = {0}, take[64] = {0}, at = 0;
    for (int i = 0; i < n; i++) {
        give[i] = (7 * ranks[me] + 3 * ranks[i]) % 5 * unit;
        take[i] = (7 * ranks[i] + 3 * ranks[me]) % 5 * unit;
    }
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < give[i]; k++)
            a[at++] = value(64 * ranks[me] + ranks[i], k);
    lp_all_to_all_v(&event, comm, a, give, b, take, LP_F32);
    lp_wait(&event);
    at = 0;
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < take[i]; k++, at++)
            check(b[at] == value(64 * ranks[i] + ranks[me], k), "all-to-all of sizes", at);
}

static void test_large(const int *ranks, int n, int me, int64_t count, float *a)
{
    LpEvent event = {0};
    lp_all_reduce(&event, LP_WORLD, fill(a, me, count), count, LP_F32, LP_SUM);
    lp_wait(&event);
    for (int64_t i = 0; i < count; i++) {
        float want = reduced(ranks, n, i, LP_SUM);
        check(same(&a[i], &want, 4), "all-reduce in pieces", i);
    }
}

static void test_types(int n, int me)
{
    enum { COUNT = 3000 };
    LpEvent event = {0};
    static const double scale[2] = {1.0 / 3, 1e16};
    double *x = malloc(COUNT * sizeof *x);
    int32_t *k = malloc(COUNT * sizeof *k);
    uint16_t *h = malloc(COUNT * sizeof *h);
    for (int i = 0; i < COUNT; i++) {
        x[i] = scale[(i + me) % 2] * (me + 1);
        k[i] = i * 7 - me * 1000;
        h[i] = (uint16_t)(0x3f80 + i % 64 + me); /* near one */
    }
    h[7] = me == n - 1 ? 0x7fc0 : 0x3f80;
    lp_all_reduce(&event, LP_WORLD, x, COUNT, LP_F64, LP_SUM);
    lp_wait(&event);
    lp_all_reduce(&event, LP_WORLD, k, COUNT, LP_I32, LP_MAX);
    lp_wait(&event);
    lp_all_reduce(&event, LP_WORLD, h, COUNT, LP_BF16, LP_SUM);
    lp_wait(&event);
    for (int i = 0; i < COUNT; i++) {
        double want = scale[i % 2];
        float sum = 0;
        for (int r = 0; r < n; r++) {
            uint32_t bits = (uint32_t)(0x3f80 + i % 64 + r) << 16;
            float one;
            memcpy(&one, &bits, 4);
            sum += one;
            want = r == 0 ? want : want + scale[(i + r) % 2] * (r + 1);
        }
        check(x[i] == want, "fp64 all-reduce", i);
        check(k[i] == i * 7, "int max", i);
        uint32_t bits = (uint32_t)h[i] << 16;
        float got;
        memcpy(&got, &bits, 4);
        check(i == 7 ? isnan(got) : fabsf(got - sum) <= sum / 256, "bf16 all-reduce", i);
    }
    free(x);
    free(k);
    free(h);
}

/* Many operations in flight on two communicators, waited for in an order that differs by rank. */
static void test_flight(int group, const int *ranks, int n, int me, int rank)
{
    enum { FLIGHT = 6, COUNT = 300000 };
    /* One round or two, quick or slow: some overtake others on some ranks only. */
    static const int64_t counts[FLIGHT] = {COUNT, 3000, 17, 70001, 2500, COUNT};
    LpEvent events[2 * FLIGHT] = {{0}};
    float *bufs[2 * FLIGHT];
    for (int k = 0; k < FLIGHT; k++) {
        int64_t count = counts[k];
        bufs[k] = fill(malloc(COUNT * 4), ranks[me], count);
        bufs[FLIGHT + k] = malloc((size_t)COUNT * 4 * (size_t)n);
        fill(bufs[FLIGHT + k] + me * count, ranks[me], count);
        lp_all_reduce(&events[k], group, bufs[k], count, LP_F32, LP_SUM);
        nap(rank % 3);
        lp_poll();
        lp_all_gather(&events[FLIGHT + k], group, bufs[FLIGHT + k] + me * count, bufs[FLIGHT + k],
                      count, LP_F32);
        if (rank % 2)
            lp_wait(&events[FLIGHT + k / 2]);
    }
    for (int k = 0; k < FLIGHT; k++) {
        int i = rank % 2 ? k : FLIGHT - 1 - k;
        lp_wait(&events[i]);
        lp_wait(&events[FLIGHT + i]);
    }
    for (int k = 0; k < FLIGHT; k++) {
        int64_t count = counts[k];
        for (int64_t i = 0; i < count; i++) {
            float want = reduced(ranks, n, i, LP_SUM);
            check(same(&bufs[k][i], &want, 4), "all-reduce in flight", i);
        }
        for (int64_t i = 0; i < count * n; i++)
            check(bufs[FLIGHT + k][i] == value(ranks[i / count], i % count), "all-gather in flight",
                  i);
        free(bufs[k]);
        free(bufs[FLIGHT + k]);
    }
}

/* Activations and gradients cross in both directions; within a class the order of posting holds. */
static void test_p2p(int n, int me, float *a, float *b)
{
    enum { COUNT = 50000, DEPTH = 4 };
    int next = (me + 1) % n, prev = (me + n - 1) % n;
    LpEvent sends[2 * DEPTH] = {{0}}, recvs[2 * DEPTH] = {{0}};
    fill(a, me, 2 * DEPTH * COUNT);
    for (int k = DEPTH - 1; k >= 0; k--)
        lp_send(&sends[DEPTH + k], prev, LP_GRADIENT, a + (DEPTH + k) * COUNT, 4 * COUNT);
    for (int k = 0; k < DEPTH; k++)
        lp_send(&sends[k], next, LP_ACTIVATION, a + k * COUNT, 4 * COUNT);
    for (int k = 0; k < DEPTH; k++)
        lp_recv(&recvs[k], prev, LP_ACTIVATION, b + k * COUNT, 4 * COUNT);
    for (int k = DEPTH - 1; k >= 0; k--)
        lp_recv(&recvs[DEPTH + k], next, LP_GRADIENT, b + (DEPTH + k) * COUNT, 4 * COUNT);
    for (int k = 0; k < 2 * DEPTH; k++) {
        lp_wait(&recvs[k]);
        for (int64_t i = k * COUNT; i < (k + 1) * COUNT; i++)
            check(b[i] == value(k < DEPTH ? prev : next, i), "p2p", i);
    }
    for (int k = 0; k < 2 * DEPTH; k++)
        lp_wait(&sends[k]);
}

static void run_collectives(const LpRank *rank)
{
    int n = rank->job->ranks, me = rank->index, all[64], half[64];
    static const int64_t counts[] = {0, 1, 7, 2047, 2049, 100003};
    const int64_t large = 4300001; /* more than one piece of every reduction */
    size_t bytes = (size_t)large * 4 * (size_t)n;
    float *a = malloc(bytes + 1600000), *b = malloc(bytes + 1600000);
    for (int i = 0; i < n; i++)
        all[i] = i;
    int group = -1, place = -1, size = 0;
    /* Two interleaved groups, the odd one backwards: member order is not world order. */
    for (int g = 0; g < 2; g++) {
        int k = 0;
        for (int i = 0; i < n; i++)
            if (i % 2 == g)
                half[k++] = i;
        for (int i = 0; g == 1 && i < k / 2; i++) {
            int swap = half[i];
            half[i] = half[k - 1 - i];
            half[k - 1 - i] = swap;
        }
        if (k == 0)
            continue;
        int comm = lp_comm(half, k);
        if (me % 2 == g) {
            group = comm;
            size = k;
            for (int i = 0; i < k; i++)
                place = half[i] == me ? i : place;
            for (int c = 0; c < 5; c++) {
                test_reduce(comm, half, k, place, counts[c], LP_SUM, a, b);
                test_exchange(comm, half, k, place, counts[c], a, b);
                test_sizes(comm, half, k, place, counts[c] / 4, a, b);
            }
            if (k > 1)
                test_flight(comm, half, k, place, me);
        }
    }
    check(group > 0 && size > 0, "group", group);
    for (int c = 0; c < 6; c++) {
        lp_at("sums");
        test_reduce(LP_WORLD, all, n, me, counts[c], LP_SUM, a, b);
        test_reduce(LP_WORLD, all, n, me, counts[c], LP_MAX, a, b);
        lp_at("exchanges");
        test_exchange(LP_WORLD, all, n, me, counts[c], a, b);
        test_sizes(LP_WORLD, all, n, me, counts[c] / 4, a, b);
    }
    test_reduce(LP_WORLD, all, n, me, large / n, LP_SUM, a, b);
    test_large(all, n, me, large, a);
    test_types(n, me);
    test_flight(LP_WORLD, all, n, me, me);
    if (n > 1)
        test_p2p(n, me, a, b);
    free(a);
    free(b);
}

/* ---- a bigram model, trained data-parallel, its table sharded by rows for the optimizer ---- */

enum { VOCAB = 256, SEQ = 32, MICRO = 2, ROWS = 8 };

static float forward_backward(const float *w, float *g, const int32_t *ids, const int32_t *labels,
                              const float *weight, int count)
{
    float loss = 0;
    for (int i = 0; i < count; i++) {
        const float *row = w + (size_t)ids[i] * VOCAB;
        float *grad = g + (size_t)ids[i] * VOCAB, sum = 0, top = row[0];
        for (int v = 1; v < VOCAB; v++)
            top = fmaxf(top, row[v]);
        for (int v = 0; v < VOCAB; v++)
            sum += expf(row[v] - top);
        loss += weight[i] * (logf(sum) + top - row[labels[i]]);
        for (int v = 0; v < VOCAB; v++)
            grad[v] += weight[i] * (expf(row[v] - top) / sum - (v == labels[i] ? 1.0f : 0.0f));
    }
    return loss;
}

static void misbehave(const char *what, const LpRank *rank, int64_t step)
{
    if (step != 2 || rank->index != rank->job->ranks - 1)
        return;
    lp_at("a place to misbehave");
    if (strcmp(what, "hang") == 0)
        for (;;)
            nap(100);
    if (strcmp(what, "exit") == 0)
        _exit(3);
    if (strcmp(what, "full") == 0) { /* no file may grow beyond what logs take */
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
    }
    if (strcmp(what, "die") == 0)
        raise(SIGKILL);
    if (strcmp(what, "stop") == 0)
        raise(SIGTERM); /* to this thread: another one may take it up a step later */
}

static void update(float *w, float *speed, const float *g, int begin, int end, double lr)
{
    for (int i = begin; i < end; i++) {
        speed[i - begin] = 0.5f * speed[i - begin] + g[i];
        w[i] -= (float)lr * speed[i - begin];
    }
}

static void run_train(const LpRank *rank)
{
    const char *what = getenv("LP_TEST");
    int n = rank->job->ranks, me = rank->index, rows = ROWS / n, block = VOCAB / n;
    int begin = me * block * VOCAB, end = begin + block * VOCAB;
    float *w = (float *)rank->arena, *g = w + VOCAB * VOCAB, *speed = g + VOCAB * VOCAB;
    float weight[ROWS * SEQ];
    int32_t ids[ROWS * SEQ], labels[ROWS * SEQ];
    LpEvent reduce = {0}, gather = {0}, loose = {0};
    bool careless = strcmp(what, "careless") == 0; /* reads gradients that may be on their way */
    LpShard all = {2, {VOCAB, VOCAB}, {0, 0}, {VOCAB, VOCAB}};
    LpShard mine = {2, {VOCAB, VOCAB}, {me * block, 0}, {block, VOCAB}};
    LpPart whole = {.tensor = 0, .shard = all, .data = w, .owner = me == 0};
    LpPart grads = {.tensor = 0, .shard = mine, .data = g + begin, .owner = true};
    LpPart moment = {.tensor = 0, .shard = mine, .data = speed, .owner = true};
    const LpState states[] = {{"model", &whole, 1, LP_F32}, {"speed", &moment, 1, LP_F32}};
    for (int64_t step = lp_begin(states, 2); lp_step_begin(step); step++) {
        float loss = 0;
        memset(g, 0, VOCAB * VOCAB * sizeof *g);
        for (int micro = 0; micro < MICRO; micro++) {
            lp_at("batch");
            lp_batch(step, micro, me * rows, rows, 0, SEQ, ids, labels, weight, NULL);
            loss += forward_backward(w, g, ids, labels, weight, rows * SEQ);
        }
        misbehave(what, rank, step);
        lp_at("gradients");
        lp_reduce_scatter(careless ? &loose : &reduce, LP_WORLD, g, g + begin, end - begin, LP_F32,
                          LP_SUM);
        lp_wait(&reduce);
        if (step == 0 && rank->options->dump_grads)
            lp_save(rank->options->dump_grads, &grads, 1, LP_F32);
        double norm = 0;
        for (int i = begin; i < end; i++)
            norm += (double)g[i] * g[i];
        update(w, speed, g, begin, end, lp_lr(step));
        lp_all_reduce(&reduce, LP_WORLD, &norm, 1, LP_F64, LP_SUM);
        lp_all_gather(&gather, LP_WORLD, w + begin, w, end - begin, LP_F32);
        lp_wait(&reduce);
        lp_wait(&gather);
        lp_wait(&loose);
        if (strcmp(what, "nan") == 0 && step == 2 && me == n - 1)
            loss = NAN;
        if (strcmp(what, "leak") == 0 && step == 2 && n > 1) {
            lp_at("leak");
            lp_recv(&gather, (me + 1) % n, LP_ACTIVATION, g, 4);
            return;
        }
        lp_step_end(loss, sqrt(norm), lp_lr(step));
        lp_checkpoint(step, states, 2);
    }
    lp_finish(&whole, 1);
}

int main(int argc, char **argv)
{
    static const LpTensor table = {"bigram.weight", 2, {VOCAB, VOCAB}, LP_NORMAL, 0.02, false};
    const char *what = getenv("LP_TEST"), *ranks = getenv("LP_RANKS"), *bytes = getenv("LP_ARENA");
    const int64_t arena = bytes ? atoll(bytes) : 3 * VOCAB * VOCAB * (int64_t)sizeof(float);
    LpJob job = {
        .name = "world",
        .plan_hash = "none",
        .ranks = ranks ? atoi(ranks) : 1,
        .stages = 1,
        .params_total = VOCAB * VOCAB,
        .flops_per_step = 1000000,
        .peak_flops = 1000000000000,
        .tokens_per_step = MICRO * ROWS * SEQ,
        .arena_bytes = &arena,
        .tensors = &table,
        .tensor_count = 1,
        .seq = SEQ,
        .vocab = VOCAB,
        .micro_batches = MICRO,
        .rows = ROWS,
        .defaults = {.steps = 5, .lr = 100, .seed = 1, .clip = 1},
        .run = what && strcmp(what, "collectives") == 0 ? run_collectives : run_train,
    };
    job.ranks_per_stage = job.ranks;
    if (!what)
        return 2;
    return lp_main(argc, argv, &job);
}
