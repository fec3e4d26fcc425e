/* attention.cu - flash attention on any GPU, sums in fp32: forward, gradient of k and v, of q.
 *
 * Parameters, defined before this text (a program holds one instance):
 *     LP_D            head width
 *     LP_ATTENTION_T  type of q, k, v, o, dout: float or lp_bf16
 *     LP_GRADIENT_T   type of dq, dk, dv: float or lp_bf16
 * Launch: LP_ATTENTION_THREADS threads and LP_ATTENTION_BYTES of dynamic shared memory;
 *     lp_attention_forward, lp_attention_backward_q   grid (tiles of s, g * r, b)
 *     lp_attention_backward_kv                        grid (tiles of t, g, b)
 *     lp_attention_delta                              grid (b * s), 32 threads a head of g * r
 * with tiles of LP_ROWS. Layouts, masks and empty rows are those of host/attention.c; q and kv
 * gradients come from two kernels (3 + 4 products) so that no sum crosses blocks: no atomics, the
 * same bits every run. Where attention_mma.cu fits (bf16, LP_D a multiple of 16) it is faster. */

#define LP_ROWS (LP_D <= 64 ? 64 : 32)
#define LP_ATTENTION_THREADS 256
/* Odd pitches: the 16 threads that read 16 rows of one column hit 16 banks. */
#define LP_PITCH (LP_D | 1)
#define LP_SCORE_PITCH (LP_ROWS + 1)
#define LP_ATTENTION_BYTES (4 * (4 * LP_ROWS * LP_PITCH + 2 * LP_ROWS * LP_SCORE_PITCH))

/* A thread's share of a score tile is LP_SHARE x LP_SHARE, of a row of width LP_D LP_WIDE. */
#define LP_SHARE (LP_ROWS / 16)
#define LP_WIDE ((LP_D + 15) / 16)

/* The struct of host/attention.c, member by member. */
struct LpAttention {
    int b, s, t, g, r, d;
    long long q_stride, k_stride, v_stride, o_stride;
    long long dq_stride, dk_stride, dv_stride, do_stride;
    float scale;
    int causal;
    int window;
    long long base_q, base_k;
};

extern __shared__ float lp_shared[];

LP_DEVICE int lp_clamp(long long x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)x;
}

LP_DEVICE bool lp_sees(const LpAttention &a, int i, int j)
{
    const long long ahead = a.base_q + i - a.base_k - j;
    return i < a.s && j < a.t && (!a.causal || ahead >= 0) && (a.window <= 0 || ahead < a.window);
}

/* The keys that the queries [i0, i0 + n) may see, the first on a tile border. */
LP_DEVICE void lp_keys_seen(const LpAttention &a, int i0, int n, int *first, int *last)
{
    const long long shift = a.base_q + i0 - a.base_k;
    *first = a.window > 0 ? lp_clamp(shift - a.window + 1, 0, a.t) / LP_ROWS * LP_ROWS : 0;
    *last = a.causal ? lp_clamp(shift + n, 0, a.t) : a.t;
}

/* The queries that may see the keys [j0, j0 + n), the first on a tile border. */
LP_DEVICE void lp_queries_seeing(const LpAttention &a, int j0, int n, int *first, int *last)
{
    const long long shift = a.base_k + j0 - a.base_q;
    *first = a.causal ? lp_clamp(shift, 0, a.s) / LP_ROWS * LP_ROWS : 0;
    *last = a.window > 0 ? lp_clamp(shift + n - 1 + a.window, 0, a.s) : a.s;
}

/* shared[LP_ROWS][LP_PITCH] = rows of global, zeros from row `rows` on. */
LP_DEVICE void lp_load_tile(float *shared, const LP_ATTENTION_T *global, long long stride, int rows)
{
    for (int x = (int)threadIdx.x; x < LP_ROWS * LP_D; x += LP_ATTENTION_THREADS) {
        const int i = x / LP_D;
        const int c = x % LP_D;
        shared[i * LP_PITCH + c] = i < rows ? lp_float(global[i * stride + c]) : 0.0f;
    }
}

/* s[i][j] = x row (ty + 16 i) . y row (tx + 16 j). */
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
    for (int c = 0; c < LP_D; c++) {
        float left[LP_SHARE];
        float right[LP_SHARE];
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
            left[i] = x[(ty + 16 * i) * LP_PITCH + c];
            right[i] = y[(tx + 16 * i) * LP_PITCH + c];
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
LP_DEVICE void lp_weighted_sum(float (&acc)[LP_SHARE][LP_WIDE], const float *weights,
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
        for (int c = 0; c < LP_WIDE; c++) {
            const float v = tx + 16 * c < LP_D ? y[x * LP_PITCH + tx + 16 * c] : 0.0f;
#pragma unroll
            for (int i = 0; i < LP_SHARE; i++) {
                acc[i][c] += w[i] * v;
            }
        }
    }
}

template <class T>
LP_DEVICE void lp_store_tile(T *global, long long stride, int rows,
                             const float (&acc)[LP_SHARE][LP_WIDE], const float (&factor)[LP_SHARE])
{
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
        for (int c = 0; c < LP_WIDE; c++) {
            const int row = ty + 16 * i;
            if (row < rows && tx + 16 * c < LP_D) {
                lp_put(global + row * stride + tx + 16 * c, acc[i][c] * factor[i]);
            }
        }
    }
}

LP_DEVICE void lp_clear(float (&acc)[LP_SHARE][LP_WIDE])
{
#pragma unroll
    for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
        for (int c = 0; c < LP_WIDE; c++) {
            acc[i][c] = 0.0f;
        }
    }
}

/* One step of the online softmax; the 16 threads of a row are neighbours. s becomes the weights. */
LP_DEVICE void lp_softmax_step(float (&s)[LP_SHARE][LP_SHARE], float (&peak)[LP_SHARE],
                               float (&sum)[LP_SHARE], float (&acc)[LP_SHARE][LP_WIDE])
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
        for (int c = 0; c < LP_WIDE; c++) {
            acc[i][c] *= shrink;
        }
    }
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_forward(const LpAttention a, const LP_ATTENTION_T *__restrict__ q,
                         const LP_ATTENTION_T *__restrict__ k, const LP_ATTENTION_T *__restrict__ v,
                         LP_ATTENTION_T *__restrict__ o, float *__restrict__ l)
{
    float *qs = lp_shared;
    float *ks = qs + LP_ROWS * LP_PITCH;
    float *vs = ks + LP_ROWS * LP_PITCH;
    float *ps = vs + LP_ROWS * LP_PITCH;
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
    const int head = (int)blockIdx.y;
    const int heads = (int)gridDim.y;
    const int i0 = (int)blockIdx.x * LP_ROWS;
    const long long q_row = (long long)blockIdx.z * a.s + i0;
    const long long k_row = (long long)blockIdx.z * a.t;
    const int kv = head / a.r * LP_D;
    const int rows = min(LP_ROWS, a.s - i0);
    float peak[LP_SHARE];
    float sum[LP_SHARE];
    float acc[LP_SHARE][LP_WIDE];
    int first = 0;
    int last = 0;

    lp_keys_seen(a, i0, rows, &first, &last);
    lp_load_tile(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, rows);
    lp_clear(acc);
    for (int i = 0; i < LP_SHARE; i++) {
        peak[i] = -LP_INF;
        sum[i] = 0.0f;
    }
    for (int j0 = first; j0 < last; j0 += LP_ROWS) {
        const int keys = min(LP_ROWS, a.t - j0);
        lp_load_tile(ks, k + (k_row + j0) * a.k_stride + kv, a.k_stride, keys);
        lp_load_tile(vs, v + (k_row + j0) * a.v_stride + kv, a.v_stride, keys);
        __syncthreads();
        float s[LP_SHARE][LP_SHARE];
        lp_scores(s, qs, ks);
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
            for (int j = 0; j < LP_SHARE; j++) {
                const bool sees = lp_sees(a, i0 + ty + 16 * i, j0 + tx + 16 * j);
                s[i][j] = sees ? s[i][j] * a.scale : -LP_INF;
            }
        }
        lp_softmax_step(s, peak, sum, acc);
        lp_keep_scores(ps, s);
        __syncthreads();
        lp_weighted_sum(acc, ps, vs);
        __syncthreads();
    }
    for (int i = 0; i < LP_SHARE; i++) {
        if (tx == 0 && ty + 16 * i < rows) {
            l[(q_row + ty + 16 * i) * heads + head] = peak[i] + logf(sum[i]);
        }
        sum[i] = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
    }
    lp_store_tile(o + q_row * a.o_stride + head * LP_D, a.o_stride, rows, acc, sum);
}

/* p = exp(scale s - l) and ds = p (dp - delta) scale of one pair; hidden pairs give 0. A row that
 * saw nothing in the forward has l = -inf, and is hidden from every key. */
LP_DEVICE void lp_pair_gradient(const LpAttention &a, int i, int j, float l, float delta, float &s,
                                float &dp)
{
    const bool sees = lp_sees(a, i, j) && l > -LP_INF;
    s = sees ? expf(s * a.scale - l) : 0.0f;
    dp = sees ? s * (dp - delta) * a.scale : 0.0f;
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
    float *vs = ks + LP_ROWS * LP_PITCH;
    float *qs = vs + LP_ROWS * LP_PITCH;
    float *os = qs + LP_ROWS * LP_PITCH;
    float *ps = os + LP_ROWS * LP_PITCH;
    float *ds = ps + LP_ROWS * LP_SCORE_PITCH;
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
    const int group = (int)blockIdx.y;
    const int heads = a.g * a.r;
    const int j0 = (int)blockIdx.x * LP_ROWS;
    const int keys = min(LP_ROWS, a.t - j0);
    const long long k_row = (long long)blockIdx.z * a.t + j0;
    float acc_k[LP_SHARE][LP_WIDE];
    float acc_v[LP_SHARE][LP_WIDE];
    float one[LP_SHARE];
    int first = 0;
    int last = 0;

    lp_queries_seeing(a, j0, keys, &first, &last);
    lp_load_tile(ks, k + k_row * a.k_stride + group * LP_D, a.k_stride, keys);
    lp_load_tile(vs, v + k_row * a.v_stride + group * LP_D, a.v_stride, keys);
    lp_clear(acc_k);
    lp_clear(acc_v);
    for (int head = group * a.r; head < (group + 1) * a.r; head++) {
        for (int i0 = first; i0 < last; i0 += LP_ROWS) {
            const int rows = min(LP_ROWS, a.s - i0);
            const long long q_row = (long long)blockIdx.z * a.s + i0;
            lp_load_tile(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, rows);
            lp_load_tile(os, dout + q_row * a.do_stride + head * LP_D, a.do_stride, rows);
            __syncthreads();
            float s[LP_SHARE][LP_SHARE];
            float dp[LP_SHARE][LP_SHARE];
            lp_scores(s, ks, qs);
            lp_scores(dp, vs, os);
#pragma unroll
            for (int j = 0; j < LP_SHARE; j++) {
                const int row = min(tx + 16 * j, rows - 1);
                const float row_l = l[(q_row + row) * heads + head];
                const float row_delta = delta[(q_row + row) * heads + head];
#pragma unroll
                for (int i = 0; i < LP_SHARE; i++) {
                    lp_pair_gradient(a, i0 + tx + 16 * j, j0 + ty + 16 * i, row_l, row_delta,
                                     s[i][j], dp[i][j]);
                }
            }
            lp_keep_scores(ps, s);
            lp_keep_scores(ds, dp);
            __syncthreads();
            lp_weighted_sum(acc_v, ps, os);
            lp_weighted_sum(acc_k, ds, qs);
            __syncthreads();
        }
    }
    for (int i = 0; i < LP_SHARE; i++) {
        one[i] = 1.0f;
    }
    lp_store_tile(dk + k_row * a.dk_stride + group * LP_D, a.dk_stride, keys, acc_k, one);
    lp_store_tile(dv + k_row * a.dv_stride + group * LP_D, a.dv_stride, keys, acc_v, one);
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_backward_q(const LpAttention a, const LP_ATTENTION_T *__restrict__ q,
                            const LP_ATTENTION_T *__restrict__ k,
                            const LP_ATTENTION_T *__restrict__ v,
                            const LP_ATTENTION_T *__restrict__ dout, const float *__restrict__ l,
                            const float *__restrict__ delta, LP_GRADIENT_T *__restrict__ dq)
{
    float *ks = lp_shared;
    float *vs = ks + LP_ROWS * LP_PITCH;
    float *qs = vs + LP_ROWS * LP_PITCH;
    float *os = qs + LP_ROWS * LP_PITCH;
    float *ds = os + LP_ROWS * LP_PITCH;
    const int tx = (int)threadIdx.x % 16;
    const int ty = (int)threadIdx.x / 16;
    const int head = (int)blockIdx.y;
    const int heads = (int)gridDim.y;
    const int i0 = (int)blockIdx.x * LP_ROWS;
    const int rows = min(LP_ROWS, a.s - i0);
    const long long q_row = (long long)blockIdx.z * a.s + i0;
    const int kv = head / a.r * LP_D;
    float acc[LP_SHARE][LP_WIDE];
    float one[LP_SHARE];
    float row_l[LP_SHARE];
    float row_delta[LP_SHARE];
    int first = 0;
    int last = 0;

    lp_keys_seen(a, i0, rows, &first, &last);
    lp_load_tile(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, rows);
    lp_load_tile(os, dout + q_row * a.do_stride + head * LP_D, a.do_stride, rows);
    lp_clear(acc);
    for (int i = 0; i < LP_SHARE; i++) {
        const int row = min(ty + 16 * i, rows - 1);
        row_l[i] = l[(q_row + row) * heads + head];
        row_delta[i] = delta[(q_row + row) * heads + head];
        one[i] = 1.0f;
    }
    for (int j0 = first; j0 < last; j0 += LP_ROWS) {
        const int keys = min(LP_ROWS, a.t - j0);
        const long long k_row = (long long)blockIdx.z * a.t + j0;
        lp_load_tile(ks, k + k_row * a.k_stride + kv, a.k_stride, keys);
        lp_load_tile(vs, v + k_row * a.v_stride + kv, a.v_stride, keys);
        __syncthreads();
        float s[LP_SHARE][LP_SHARE];
        float dp[LP_SHARE][LP_SHARE];
        lp_scores(s, qs, ks);
        lp_scores(dp, os, vs);
#pragma unroll
        for (int i = 0; i < LP_SHARE; i++) {
#pragma unroll
            for (int j = 0; j < LP_SHARE; j++) {
                lp_pair_gradient(a, i0 + ty + 16 * i, j0 + tx + 16 * j, row_l[i], row_delta[i],
                                 s[i][j], dp[i][j]);
            }
        }
        lp_keep_scores(ds, dp);
        __syncthreads();
        lp_weighted_sum(acc, ds, ks);
        __syncthreads();
    }
    lp_store_tile(dq + q_row * a.dq_stride + head * LP_D, a.dq_stride, rows, acc, one);
}

/* delta[b][s][head] = sum over d of o * dout; a warp for each head, a block for each position. */
extern "C" __global__ void lp_attention_delta(const LpAttention a,
                                              const LP_ATTENTION_T *__restrict__ o,
                                              const LP_ATTENTION_T *__restrict__ dout,
                                              float *__restrict__ delta)
{
    const long long row = blockIdx.x;
    const int lane = (int)threadIdx.x % 32;
    for (int head = (int)threadIdx.x / 32; head < a.g * a.r; head += (int)blockDim.x / 32) {
        const LP_ATTENTION_T *x = o + row * a.o_stride + head * LP_D;
        const LP_ATTENTION_T *y = dout + row * a.do_stride + head * LP_D;
        float sum = 0.0f;
        for (int c = lane; c < LP_D; c += 32) {
            sum += lp_float(x[c]) * lp_float(y[c]);
        }
        sum = lp_lanes_sum(sum, 32);
        if (lane == 0) {
            delta[row * a.g * a.r + head] = sum;
        }
    }
}
