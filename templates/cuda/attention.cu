/* attention.cu - flash attention on any GPU, sums in fp32: forward, gradient of k and v, of q.
 *
 * Parameters, defined before this text (a program holds one instance):
 *     LP_D            width of queries and keys
 *     LP_DV           width of values; LP_D when it is not defined
 *     LP_BENT         1: softcap, slopes, chunk and starts count; else none is looked at
 *     LP_ATTENTION_T  type of q, k, v, o, dout: float or lp_bf16
 *     LP_GRADIENT_T   type of dq, dk, dv: float or lp_bf16
 *     LP_RESULT_T     type of the o that forward writes, float where blocks of keys pass by;
 *                     LP_ATTENTION_T when it is not defined
 * Launch: LP_ATTENTION_THREADS threads and LP_ATTENTION_BYTES of dynamic shared memory;
 *     lp_attention_forward, lp_attention_backward_q   grid (tiles of s, g * r, b)
 *     lp_attention_backward_kv                        grid (tiles of t, g, b)
 *     lp_attention_delta                              grid (b * s), 32 threads a head of g * r
 * with tiles of LP_ROWS. Layouts, masks and empty rows are those of host/attention.c; q and kv
 * gradients come from two kernels (3 + 4 products) so that no sum crosses blocks: no atomics, the
 * same bits every run. Where attention_mma.cu fits (bf16, one width, a multiple of 16, not bent) it
 * is faster. */

#ifndef LP_DV
#define LP_DV LP_D
#endif
#ifndef LP_BENT
#define LP_BENT 0
#endif
#ifndef LP_RESULT_T
#define LP_RESULT_T LP_ATTENTION_T
#endif
#define LP_ROWS (LP_D <= 64 && LP_DV <= 64 ? 64 : 32)
#define LP_ATTENTION_THREADS 256
/* Odd pitches: the 16 threads that read 16 rows of one column hit 16 banks. */
#define LP_PITCH(width) ((width) | 1)
#define LP_SCORE_PITCH (LP_ROWS + 1)
#define LP_ATTENTION_BYTES                                                                         \
    (4 * (2 * LP_ROWS * (LP_PITCH(LP_D) + LP_PITCH(LP_DV)) + 2 * LP_ROWS * LP_SCORE_PITCH))

/* A thread's share of a score tile is LP_SHARE x LP_SHARE, of a row LP_WIDE(width). */
#define LP_SHARE (LP_ROWS / 16)
#define LP_WIDE(width) (((width) + 15) / 16)

/* The struct of host/attention.c, member by member. */
struct LpAttention {
    int b, s, t, g, r;
    int d, e;
    long long q_stride, k_stride, v_stride, o_stride;
    long long dq_stride, dk_stride, dv_stride, do_stride;
    float scale;
    int causal;
    int window;
    long long base_q, base_k;
    int chunk;
    float softcap;
    const float *slopes;
    const int *starts;
    const int *words; /* nothing is dropped here */
    unsigned below;
    float kept;
    long long run, runs;
    int wide; /* told by LP_RESULT_T and LP_GRADIENT_T here */
};

extern __shared__ float lp_shared[];

LP_DEVICE int lp_clamp(long long x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)x;
}

LP_DEVICE long long lp_at(const LpAttention &a, long long place)
{
    return a.runs ? lp_position(place, a.run, a.runs) : place;
}

/* Of a sequence that is dealt out: no query of [i0, i0 + n) sees a key of [j0, j0 + m) by its
 * position. */
LP_DEVICE bool lp_hidden(const LpAttention &a, int i0, int n, int j0, int m)
{
    long long q_least, q_most, k_least, k_most;
    if (!a.runs) {
        return false;
    }
    lp_reach(a.base_q + i0, n, a.run, a.runs, &q_least, &q_most);
    lp_reach(a.base_k + j0, m, a.run, a.runs, &k_least, &k_most);
    return (a.causal && q_most < k_least) || (a.window > 0 && q_least - k_most >= a.window);
}

/* Of sequence b of the batch. */
LP_DEVICE bool lp_sees(const LpAttention &a, long long b, int i, int j)
{
    const long long query = lp_at(a, a.base_q + i);
    const long long key = lp_at(a, a.base_k + j);
    bool sees = i < a.s && j < a.t && (!a.causal || query >= key) &&
                (a.window <= 0 || query - key < a.window);
#if LP_BENT
    sees = sees && (a.chunk <= 0 || query / a.chunk == key / a.chunk) &&
           (!a.starts || key >= a.starts[b * a.s + i]);
#endif
    (void)b;
    return sees;
}

/* The keys that the queries [i0, i0 + n) may see, the first on a tile border. */
LP_DEVICE void lp_keys_seen(const LpAttention &a, long long b, int i0, int n, int *first, int *last)
{
    if (a.runs) { /* not one range: tiles are asked one by one */
        *first = 0;
        *last = a.t;
        return;
    }
    const long long shift = a.base_q + i0 - a.base_k;
    long long from = a.window > 0 ? shift - a.window + 1 : 0;
    long long to = a.causal ? shift + n : a.t;
#if LP_BENT
    if (a.chunk > 0) {
        const long long begin = (a.base_q + i0) / a.chunk * a.chunk - a.base_k;
        const long long end = ((a.base_q + i0 + n - 1) / a.chunk + 1) * a.chunk - a.base_k;
        from = begin > from ? begin : from;
        to = end < to ? end : to;
    }
    if (a.starts) {
        long long earliest = a.starts[b * a.s + i0];
        for (int i = 1; i < n; i++) {
            const long long start = a.starts[b * a.s + i0 + i];
            earliest = start < earliest ? start : earliest;
        }
        from = earliest - a.base_k > from ? earliest - a.base_k : from;
    }
#endif
    (void)b;
    *first = lp_clamp(from, 0, a.t) / LP_ROWS * LP_ROWS;
    *last = lp_clamp(to, 0, a.t);
}

/* The queries that may see the keys [j0, j0 + n) but for their starts, the first on a tile border.
 */
LP_DEVICE void lp_queries_seeing(const LpAttention &a, int j0, int n, int *first, int *last)
{
    if (a.runs) {
        *first = 0;
        *last = a.s;
        return;
    }
    const long long shift = a.base_k + j0 - a.base_q;
    long long from = a.causal ? shift : 0;
    long long to = a.window > 0 ? shift + n - 1 + a.window : a.s;
#if LP_BENT
    if (a.chunk > 0) {
        const long long begin = (a.base_k + j0) / a.chunk * a.chunk - a.base_q;
        const long long end = ((a.base_k + j0 + n - 1) / a.chunk + 1) * a.chunk - a.base_q;
        from = begin > from ? begin : from;
        to = end < to ? end : to;
    }
#endif
    *first = lp_clamp(from, 0, a.s) / LP_ROWS * LP_ROWS;
    *last = lp_clamp(to, 0, a.s);
}

/* The score of query i and key j, whose product is s, and its slope by scale s. */
LP_DEVICE float lp_score(const LpAttention &a, int head, int i, int j, float s, float *slope)
{
    s *= a.scale;
    *slope = 1.0f;
#if LP_BENT
    if (a.softcap > 0.0f) {
        const float t = tanhf(s / a.softcap);
        s = a.softcap * t;
        *slope = 1.0f - t * t;
    }
    if (a.slopes) {
        s += a.slopes[head] * (float)(lp_at(a, a.base_k + j) - lp_at(a, a.base_q + i));
    }
#endif
    (void)head;
    (void)i;
    (void)j;
    return s;
}

/* shared[LP_ROWS][LP_PITCH(W)] = rows of global, zeros from row `rows` on. */
template <int W>
LP_DEVICE void lp_load_tile(float *shared, const LP_ATTENTION_T *global, long long stride, int rows)
{
    for (int x = (int)threadIdx.x; x < LP_ROWS * W; x += LP_ATTENTION_THREADS) {
        const int i = x / W;
        const int c = x % W;
        shared[i * LP_PITCH(W) + c] = i < rows ? lp_float(global[i * stride + c]) : 0.0f;
    }
}

/* s[i][j] = x row (ty + 16 i) . y row (tx + 16 j). */
template <int W>
LP_DEVICE void lp_scores(float (&s)[LP_SHARE][LP_SHARE], const float *x, const float *y)
{
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
    for (int i = 0; i < LP_SHARE; i++) {
        for (int j = 0; j < LP_SHARE; j++) {
            s[i][j] = 0.0f;
        }
    }
#pragma unroll 8
    for (int c = 0; c < W; c++) {
        float left[LP_SHARE];
        float right[LP_SHARE];
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
            left[i] = x[(ty + 16 * i) * LP_PITCH(W) + c];
            right[i] = y[(tx + 16 * i) * LP_PITCH(W) + c];
        }
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
            for (int j = 0; j < LP_SHARE; j++) {
                s[i][j] += left[i] * right[j];
            }
        }
    }
}

LP_DEVICE void lp_keep_scores(float *shared, const float (&s)[LP_SHARE][LP_SHARE])
{
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
        for (int j = 0; j < LP_SHARE; j++) {
            shared[(ty + 16 * i) * LP_SCORE_PITCH + tx + 16 * j] = s[i][j];
        }
    }
}

/* acc row (ty + 16 i), column (tx + 16 c) += sum over x of weights[row][x] y[x][column]. */
template <int W>
LP_DEVICE void lp_weighted_sum(float (&acc)[LP_SHARE][LP_WIDE(W)], const float *weights,
                               const float *y)
{
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
#pragma unroll 4
    for (int x = 0; x < LP_ROWS; x++) {
        float w[LP_SHARE];
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
            w[i] = weights[(ty + 16 * i) * LP_SCORE_PITCH + x];
        }
#pragma unroll
        for (int c = 0; c < LP_WIDE(W); c++) {
            const float v = tx + 16 * c < W ? y[x * LP_PITCH(W) + tx + 16 * c] : 0.0f;
#pragma unroll
            for (int i = 0; i < LP_SHARE; i++) {
                acc[i][c] += w[i] * v;
            }
        }
    }
}

template <int W, class T>
LP_DEVICE void lp_store_tile(T *global, long long stride, int rows,
                             const float (&acc)[LP_SHARE][LP_WIDE(W)],
                             const float (&factor)[LP_SHARE])
{
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
        for (int c = 0; c < LP_WIDE(W); c++) {
            const int row = ty + 16 * i;
            if (row < rows && tx + 16 * c < W) {
                lp_put(global + row * stride + tx + 16 * c, acc[i][c] * factor[i]);
            }
        }
    }
}

template <int N> LP_DEVICE void lp_clear(float (&acc)[LP_SHARE][N])
{
#pragma unroll
    for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
        for (int c = 0; c < N; c++) {
            acc[i][c] = 0.0f;
        }
    }
}

/* One step of the online softmax; the 16 threads of a row are neighbours. s becomes the weights. */
LP_DEVICE void lp_softmax_step(float (&s)[LP_SHARE][LP_SHARE], float (&peak)[LP_SHARE],
                               float (&sum)[LP_SHARE], float (&acc)[LP_SHARE][LP_WIDE(LP_DV)])
{
#pragma unroll
    for (int i = 0; i < LP_SHARE; i++) {
        float top = -LP_INF;
        float part = 0.0f;
        for (int j = 0; j < LP_SHARE; j++) {
            top = fmaxf(top, s[i][j]);
        }
        top = fmaxf(peak[i], lp_lanes_max(top, 16));
        /* A row that has seen no key subtracts 0: exp(-inf - 0) = 0, where -inf + inf is NaN. */
        const float base = top == -LP_INF ? 0.0f : top;
        const float shrink = expf(peak[i] - base);
        for (int j = 0; j < LP_SHARE; j++) {
            s[i][j] = expf(s[i][j] - base);
            part += s[i][j];
        }
        sum[i] = sum[i] * shrink + lp_lanes_sum(part, 16);
        peak[i] = top;
        for (int c = 0; c < LP_WIDE(LP_DV); c++) {
            acc[i][c] *= shrink;
        }
    }
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_forward(const LpAttention a, const LP_ATTENTION_T *__restrict__ q,
                         const LP_ATTENTION_T *__restrict__ k, const LP_ATTENTION_T *__restrict__ v,
                         LP_RESULT_T *__restrict__ o, float *__restrict__ l)
{
    float *qs = lp_shared;
    float *ks = qs + LP_ROWS * LP_PITCH(LP_D);
    float *vs = ks + LP_ROWS * LP_PITCH(LP_D);
    float *ps = vs + LP_ROWS * LP_PITCH(LP_DV);
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
    const int head = (int)blockIdx.y;
    const int heads = (int)gridDim.y;
    const int i0 = (int)blockIdx.x * LP_ROWS;
    const long long q_row = (long long)blockIdx.z * a.s + i0;
    const long long k_row = (long long)blockIdx.z * a.t;
    const int kv = head / a.r;
    const int rows = min(LP_ROWS, a.s - i0);
    float peak[LP_SHARE];
    float sum[LP_SHARE];
    float acc[LP_SHARE][LP_WIDE(LP_DV)];
    int first = 0;
    int last = 0;

    lp_keys_seen(a, blockIdx.z, i0, rows, &first, &last);
    lp_load_tile<LP_D>(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, rows);
    lp_clear(acc);
    for (int i = 0; i < LP_SHARE; i++) {
        peak[i] = -LP_INF;
        sum[i] = 0.0f;
    }
    for (int j0 = first; j0 < last; j0 += LP_ROWS) {
        const int keys = min(LP_ROWS, a.t - j0);
        if (lp_hidden(a, i0, rows, j0, keys)) {
            continue;
        }
        lp_load_tile<LP_D>(ks, k + (k_row + j0) * a.k_stride + kv * LP_D, a.k_stride, keys);
        lp_load_tile<LP_DV>(vs, v + (k_row + j0) * a.v_stride + kv * LP_DV, a.v_stride, keys);
        __syncthreads();
        float s[LP_SHARE][LP_SHARE];
        lp_scores<LP_D>(s, qs, ks);
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
            for (int j = 0; j < LP_SHARE; j++) {
                const int query = i0 + ty + 16 * i;
                const int key = j0 + tx + 16 * j;
                float slope = 0.0f;
                s[i][j] = lp_sees(a, blockIdx.z, query, key)
                              ? lp_score(a, head, query, key, s[i][j], &slope)
                              : -LP_INF;
            }
        }
        lp_softmax_step(s, peak, sum, acc);
        lp_keep_scores(ps, s);
        __syncthreads();
        lp_weighted_sum<LP_DV>(acc, ps, vs);
        __syncthreads();
    }
    for (int i = 0; i < LP_SHARE; i++) {
        if (tx == 0 && ty + 16 * i < rows) {
            l[(q_row + ty + 16 * i) * heads + head] = peak[i] + logf(sum[i]);
        }
        sum[i] = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
    }
    lp_store_tile<LP_DV>(o + q_row * a.o_stride + head * LP_DV, a.o_stride, rows, acc, sum);
}

/* p = exp(score - l) and ds = p (dp - delta) scale, times the slope of the score, of one pair;
 * hidden pairs give 0. A row that saw nothing in the forward has l = -inf, and is hidden from every
 * key. */
LP_DEVICE void lp_pair_gradient(const LpAttention &a, int head, int i, int j, float l, float delta,
                                float &s, float &dp)
{
    const bool sees = lp_sees(a, blockIdx.z, i, j) && l > -LP_INF;
    float slope = 0.0f;
    const float score = lp_score(a, head, i, j, s, &slope);
    s = sees ? expf(score - l) : 0.0f;
    dp = sees ? s * (dp - delta) * (a.scale * slope) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_backward_kv(const LpAttention a, const LP_ATTENTION_T *__restrict__ q,
                             const LP_ATTENTION_T *__restrict__ k,
                             const LP_ATTENTION_T *__restrict__ v,
                             const LP_ATTENTION_T *__restrict__ dout, const float *__restrict__ l,
                             const float *__restrict__ delta, LP_GRADIENT_T *__restrict__ dk,
                             LP_GRADIENT_T *__restrict__ dv)
{
    float *ks = lp_shared;
    float *vs = ks + LP_ROWS * LP_PITCH(LP_D);
    float *qs = vs + LP_ROWS * LP_PITCH(LP_DV);
    float *os = qs + LP_ROWS * LP_PITCH(LP_D);
    float *ps = os + LP_ROWS * LP_PITCH(LP_DV);
    float *ds = ps + LP_ROWS * LP_SCORE_PITCH;
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
    const int group = (int)blockIdx.y;
    const int heads = a.g * a.r;
    const int j0 = (int)blockIdx.x * LP_ROWS;
    const int keys = min(LP_ROWS, a.t - j0);
    const long long k_row = (long long)blockIdx.z * a.t + j0;
    float acc_k[LP_SHARE][LP_WIDE(LP_D)];
    float acc_v[LP_SHARE][LP_WIDE(LP_DV)];
    float one[LP_SHARE];
    int first = 0;
    int last = 0;

    lp_queries_seeing(a, j0, keys, &first, &last);
    lp_load_tile<LP_D>(ks, k + k_row * a.k_stride + group * LP_D, a.k_stride, keys);
    lp_load_tile<LP_DV>(vs, v + k_row * a.v_stride + group * LP_DV, a.v_stride, keys);
    lp_clear(acc_k);
    lp_clear(acc_v);
    for (int head = group * a.r; head < (group + 1) * a.r; head++) {
        for (int i0 = first; i0 < last; i0 += LP_ROWS) {
            const int rows = min(LP_ROWS, a.s - i0);
            if (lp_hidden(a, i0, rows, j0, keys)) {
                continue;
            }
            const long long q_row = (long long)blockIdx.z * a.s + i0;
            lp_load_tile<LP_D>(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, rows);
            lp_load_tile<LP_DV>(os, dout + q_row * a.do_stride + head * LP_DV, a.do_stride, rows);
            __syncthreads();
            float s[LP_SHARE][LP_SHARE];
            float dp[LP_SHARE][LP_SHARE];
            lp_scores<LP_D>(s, ks, qs);
            lp_scores<LP_DV>(dp, vs, os);
#pragma unroll
            for (int j = 0; j < LP_SHARE; j++) {
                const int row = min(tx + 16 * j, rows - 1);
                const float row_l = l[(q_row + row) * heads + head];
                const float row_delta = delta[(q_row + row) * heads + head];
#pragma unroll
                for (int i = 0; i < LP_SHARE; i++) {
                    lp_pair_gradient(a, head, i0 + tx + 16 * j, j0 + ty + 16 * i, row_l, row_delta,
                                     s[i][j], dp[i][j]);
                }
            }
            lp_keep_scores(ps, s);
            lp_keep_scores(ds, dp);
            __syncthreads();
            lp_weighted_sum<LP_DV>(acc_v, ps, os);
            lp_weighted_sum<LP_D>(acc_k, ds, qs);
            __syncthreads();
        }
    }
    for (int i = 0; i < LP_SHARE; i++) {
        one[i] = 1.0f;
    }
    lp_store_tile<LP_D>(dk + k_row * a.dk_stride + group * LP_D, a.dk_stride, keys, acc_k, one);
    lp_store_tile<LP_DV>(dv + k_row * a.dv_stride + group * LP_DV, a.dv_stride, keys, acc_v, one);
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_backward_q(const LpAttention a, const LP_ATTENTION_T *__restrict__ q,
                            const LP_ATTENTION_T *__restrict__ k,
                            const LP_ATTENTION_T *__restrict__ v,
                            const LP_ATTENTION_T *__restrict__ dout, const float *__restrict__ l,
                            const float *__restrict__ delta, LP_GRADIENT_T *__restrict__ dq)
{
    float *ks = lp_shared;
    float *vs = ks + LP_ROWS * LP_PITCH(LP_D);
    float *qs = vs + LP_ROWS * LP_PITCH(LP_DV);
    float *os = qs + LP_ROWS * LP_PITCH(LP_D);
    float *ds = os + LP_ROWS * LP_PITCH(LP_DV);
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
    const int head = (int)blockIdx.y;
    const int heads = (int)gridDim.y;
    const int i0 = (int)blockIdx.x * LP_ROWS;
    const int rows = min(LP_ROWS, a.s - i0);
    const long long q_row = (long long)blockIdx.z * a.s + i0;
    const int kv = head / a.r;
    float acc[LP_SHARE][LP_WIDE(LP_D)];
    float one[LP_SHARE];
    float row_l[LP_SHARE];
    float row_delta[LP_SHARE];
    int first = 0;
    int last = 0;

    lp_keys_seen(a, blockIdx.z, i0, rows, &first, &last);
    lp_load_tile<LP_D>(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, rows);
    lp_load_tile<LP_DV>(os, dout + q_row * a.do_stride + head * LP_DV, a.do_stride, rows);
    lp_clear(acc);
    for (int i = 0; i < LP_SHARE; i++) {
        const int row = min(ty + 16 * i, rows - 1);
        row_l[i] = l[(q_row + row) * heads + head];
        row_delta[i] = delta[(q_row + row) * heads + head];
        one[i] = 1.0f;
    }
    for (int j0 = first; j0 < last; j0 += LP_ROWS) {
        const int keys = min(LP_ROWS, a.t - j0);
        if (lp_hidden(a, i0, rows, j0, keys)) {
            continue;
        }
        const long long k_row = (long long)blockIdx.z * a.t + j0;
        lp_load_tile<LP_D>(ks, k + k_row * a.k_stride + kv * LP_D, a.k_stride, keys);
        lp_load_tile<LP_DV>(vs, v + k_row * a.v_stride + kv * LP_DV, a.v_stride, keys);
        __syncthreads();
        float s[LP_SHARE][LP_SHARE];
        float dp[LP_SHARE][LP_SHARE];
        lp_scores<LP_D>(s, qs, ks);
        lp_scores<LP_DV>(dp, os, vs);
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
            for (int j = 0; j < LP_SHARE; j++) {
                lp_pair_gradient(a, head, i0 + ty + 16 * i, j0 + tx + 16 * j, row_l[i],
                                 row_delta[i], s[i][j], dp[i][j]);
            }
        }
        lp_keep_scores(ds, dp);
        __syncthreads();
        lp_weighted_sum<LP_D>(acc, ds, ks);
        __syncthreads();
    }
    lp_store_tile<LP_D>(dq + q_row * a.dq_stride + head * LP_D, a.dq_stride, rows, acc, one);
}

/* delta[b][s][head] = sum over e of o * dout; a warp for each head, a block for each position. */
extern "C" __global__ void lp_attention_delta(const LpAttention a,
                                              const LP_ATTENTION_T *__restrict__ o,
                                              const LP_ATTENTION_T *__restrict__ dout,
                                              float *__restrict__ delta)
{
    const long long row = blockIdx.x;
    const int lane = (int)threadIdx.x % 32;
    for (int head = (int)threadIdx.x / 32; head < a.g * a.r; head += (int)blockDim.x / 32) {
        const LP_ATTENTION_T *x = o + row * a.o_stride + head * LP_DV;
        const LP_ATTENTION_T *y = dout + row * a.do_stride + head * LP_DV;
        float sum = 0.0f;
        for (int c = lane; c < LP_DV; c += 32) {
            sum += lp_float(x[c]) * lp_float(y[c]);
        }
        sum = lp_lanes_sum(sum, 32);
        if (lane == 0) {
            delta[row * a.g * a.r + head] = sum;
        }
    }
}
