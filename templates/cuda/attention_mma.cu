/* attention_mma.cu - flash attention in bf16 on tensor cores: forward, gradient of k and v, of q.
 *
 * Parameters, defined before this text (a program holds one instance):
 *     LP_D            head width, a multiple of 16 up to 128
 *     LP_GRADIENT_T   type of dq, dk, dv: float or lp_bf16
 *     LP_RESULT_T     type of the o that forward writes, as in attention.cu; else lp_bf16
 * Launch: LP_ATTENTION_THREADS threads and LP_ATTENTION_BYTES of dynamic shared memory, grids as in
 * attention.cu with tiles of LP_ROWS. Rows start at multiples of 16 bytes: strides are multiples of
 * 8. Layouts, masks and empty rows are those of host/attention.c. sm_80.
 *
 * A block owns LP_ROWS rows, a warp 16 of them, and walks tiles of LP_COLUMNS rows of the other
 * side, two tiles in flight. The gradient of k and v owns keys and computes scores transposed: so
 * in all three kernels the weights that a warp computes are, in registers, the left operand of its
 * next product. Weights are rounded to bf16 there, sums are fp32. No atomics: the same bits every
 * run. */

#ifndef LP_RESULT_T
#define LP_RESULT_T lp_bf16
#endif
#define LP_ROWS 64
#define LP_COLUMNS (LP_D <= 64 ? 64 : 32)
#define LP_ATTENTION_THREADS 128
/* 16 bytes more than the row: eight rows of a matrix then lie in eight different bank groups. */
#define LP_PITCH (LP_D + 8)
#define LP_ATTENTION_BYTES (2 * LP_PITCH * (2 * LP_ROWS + 4 * LP_COLUMNS))

/* Fragments of 8 columns: of a score tile, and of a row of width LP_D. */
#define LP_SCORES (LP_COLUMNS / 8)
#define LP_WIDE (LP_D / 8)

/* The struct of host/attention.c, member by member; e is d, and there is no chunk, softcap, slopes,
 * starts or words. */
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
    const int *words;
    unsigned below;
    float kept;
    long long run, runs;
    int wide; /* told by LP_RESULT_T and LP_GRADIENT_T here */
};

extern __shared__ __align__(16) unsigned char lp_shared[];

LP_DEVICE int lp_clamp(long long x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)x;
}

LP_DEVICE long long lp_at(const LpAttention &a, long long place)
{
    return a.runs ? lp_position(place, a.run, a.runs) : place;
}

/* Of a sequence that is dealt out: no query of [i0, i0 + n) sees a key of [j0, j0 + m). */
LP_DEVICE bool lp_hidden(const LpAttention &a, int i0, int n, int j0, int m)
{
    long long q_least, q_most, k_least, k_most;
    if (!a.runs) {
        return false;
    }
    lp_reach(a.base_q + i0, min(n, a.s - i0), a.run, a.runs, &q_least, &q_most);
    lp_reach(a.base_k + j0, min(m, a.t - j0), a.run, a.runs, &k_least, &k_most);
    return (a.causal && q_most < k_least) || (a.window > 0 && q_least - k_most >= a.window);
}

LP_DEVICE bool lp_sees(const LpAttention &a, int i, int j)
{
    if (i >= a.s || j >= a.t) {
        return false;
    }
    const long long ahead = lp_at(a, a.base_q + i) - lp_at(a, a.base_k + j);
    return (!a.causal || ahead >= 0) && (a.window <= 0 || ahead < a.window);
}

/* Whether every pair of [i0, i0 + n) x [j0, j0 + m) sees each other: then no pair is tested. */
LP_DEVICE bool lp_all_see(const LpAttention &a, int i0, int n, int j0, int m)
{
    long long q_least, q_most, k_least, k_most;
    if (i0 + n > a.s || j0 + m > a.t) {
        return false;
    }
    lp_reach(a.base_q + i0, n, a.run, a.runs, &q_least, &q_most);
    lp_reach(a.base_k + j0, m, a.run, a.runs, &k_least, &k_most);
    return (!a.causal || q_least >= k_most) && (a.window <= 0 || q_most - k_least < a.window);
}

/* The keys that the queries [i0, i0 + n) may see, the first on a tile border. */
LP_DEVICE void lp_keys_seen(const LpAttention &a, int i0, int n, int *first, int *last)
{
    if (a.runs) { /* not one range: tiles are asked one by one */
        *first = 0;
        *last = a.t;
        return;
    }
    const long long shift = a.base_q + i0 - a.base_k;
    *first = a.window > 0 ? lp_clamp(shift - a.window + 1, 0, a.t) / LP_COLUMNS * LP_COLUMNS : 0;
    *last = a.causal ? lp_clamp(shift + n, 0, a.t) : a.t;
}

/* The queries that may see the keys [j0, j0 + n), the first on a tile border. */
LP_DEVICE void lp_queries_seeing(const LpAttention &a, int j0, int n, int *first, int *last)
{
    if (a.runs) {
        *first = 0;
        *last = a.s;
        return;
    }
    const long long shift = a.base_k + j0 - a.base_q;
    *first = a.causal ? lp_clamp(shift, 0, a.s) / LP_COLUMNS * LP_COLUMNS : 0;
    *last = a.window > 0 ? lp_clamp(shift + n - 1 + a.window, 0, a.s) : a.s;
}

/* Starts the copy of a tile; rows from `rows` on become zeros. */
LP_DEVICE void lp_load_tile(lp_bf16 *shared, const lp_bf16 *global, long long stride, int size,
                            int rows)
{
    const int chunks = LP_D / 8;
    for (int x = (int)threadIdx.x; x < size * chunks; x += LP_ATTENTION_THREADS) {
        const int i = x / chunks;
        const int c = x % chunks * 8;
        const int inside = i < rows;
        lp_cp_async16(shared + i * LP_PITCH + c, global + (inside ? i : 0) * stride + c,
                      inside ? 16 : 0);
    }
}

/* s = x y^T: x the warp's 16 rows, y a tile of LP_COLUMNS rows, both LP_D wide. Element e of
 * fragment n is row lane / 4 + e / 2 * 8, column n * 8 + lane % 4 * 2 + e % 2. */
LP_DEVICE void lp_scores(float (&s)[LP_SCORES][4], const lp_bf16 *x, const lp_bf16 *y)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < LP_SCORES; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[n][e] = 0.0f;
        }
    }
#pragma unroll
    for (int c = 0; c < LP_D; c += 16) {
        lp_u32 left[4];
        lp_ldmatrix_x4(left, x + lane % 16 * LP_PITCH + c + lane / 16 * 8);
#pragma unroll
        for (int n = 0; n < LP_SCORES; n += 2) {
            lp_u32 right[4];
            lp_ldmatrix_x4(right, y + (n * 8 + lane % 8 + lane / 16 * 8) * LP_PITCH + c +
                                      lane / 8 % 2 * 8);
            const lp_u32 right0[2] = {right[0], right[1]};
            const lp_u32 right1[2] = {right[2], right[3]};
            lp_mma_m16n8k16(s[n], left, right0, s[n]);
            lp_mma_m16n8k16(s[n + 1], left, right1, s[n + 1]);
        }
    }
}

/* acc += s y: the warp's 16 rows of weights times a tile of LP_COLUMNS rows, LP_D wide. */
LP_DEVICE void lp_weighted_sum(float (&acc)[LP_WIDE][4], const float (&s)[LP_SCORES][4],
                               const lp_bf16 *y)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int x = 0; x < LP_SCORES; x += 2) {
        const lp_u32 left[4] = {lp_pack_bf16(s[x][0], s[x][1]), lp_pack_bf16(s[x][2], s[x][3]),
                                lp_pack_bf16(s[x + 1][0], s[x + 1][1]),
                                lp_pack_bf16(s[x + 1][2], s[x + 1][3])};
#pragma unroll
        for (int n = 0; n < LP_WIDE; n += 2) {
            lp_u32 right[4];
            lp_ldmatrix_x4_trans(right, y + (x * 8 + lane % 16) * LP_PITCH + n * 8 + lane / 16 * 8);
            const lp_u32 right0[2] = {right[0], right[1]};
            const lp_u32 right1[2] = {right[2], right[3]};
            lp_mma_m16n8k16(acc[n], left, right0, acc[n]);
            lp_mma_m16n8k16(acc[n + 1], left, right1, acc[n + 1]);
        }
    }
}

LP_DEVICE void lp_clear(float (&acc)[LP_WIDE][4])
{
#pragma unroll
    for (int n = 0; n < LP_WIDE; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            acc[n][e] = 0.0f;
        }
    }
}

/* The warp's 16 rows, of which `rows` exist, times a factor for each half. */
template <class T>
LP_DEVICE void lp_store_rows(T *global, long long stride, int rows, const float (&acc)[LP_WIDE][4],
                             float factor0, float factor1)
{
    const int lane = (int)threadIdx.x % 32;
    const int row = lane / 4;
#pragma unroll
    for (int n = 0; n < LP_WIDE; n++) {
        const int c = n * 8 + lane % 4 * 2;
        if (row < rows) {
            lp_put2(global + row * stride + c, acc[n][0] * factor0, acc[n][1] * factor0);
        }
        if (row + 8 < rows) {
            lp_put2(global + (row + 8) * stride + c, acc[n][2] * factor1, acc[n][3] * factor1);
        }
    }
}

/* One step of the online softmax; a row's elements are in four neighbouring lanes, and sum holds
 * this lane's part of it. s becomes the weights. */
LP_DEVICE void lp_softmax_step(float (&s)[LP_SCORES][4], float (&peak)[2], float (&sum)[2],
                               float (&acc)[LP_WIDE][4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -LP_INF;
        float part = 0.0f;
#pragma unroll
        for (int n = 0; n < LP_SCORES; n++) {
            top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        }
        top = fmaxf(peak[h], lp_lanes_max(top, 4));
        /* A row that has seen no key subtracts 0: exp(-inf - 0) = 0, where -inf + inf is NaN. */
        const float base = top == -LP_INF ? 0.0f : top;
        const float shrink = __expf(peak[h] - base);
#pragma unroll
        for (int n = 0; n < LP_SCORES; n++) {
            s[n][2 * h] = __expf(s[n][2 * h] - base);
            s[n][2 * h + 1] = __expf(s[n][2 * h + 1] - base);
            part += s[n][2 * h] + s[n][2 * h + 1];
        }
        sum[h] = sum[h] * shrink + part;
        peak[h] = top;
#pragma unroll
        for (int n = 0; n < LP_WIDE; n++) {
            acc[n][2 * h] *= shrink;
            acc[n][2 * h + 1] *= shrink;
        }
    }
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_forward(const LpAttention a, const lp_bf16 *__restrict__ q,
                         const lp_bf16 *__restrict__ k, const lp_bf16 *__restrict__ v,
                         LP_RESULT_T *__restrict__ o, float *__restrict__ l)
{
    lp_bf16 *qs = (lp_bf16 *)lp_shared;
    lp_bf16 *ks = qs + LP_ROWS * LP_PITCH;
    lp_bf16 *vs = ks + 2 * LP_COLUMNS * LP_PITCH;
    const int lane = (int)threadIdx.x % 32;
    const int warp_row = (int)threadIdx.x / 32 * 16;
    const int head = (int)blockIdx.y;
    const int heads = (int)gridDim.y;
    const int i0 = (int)blockIdx.x * LP_ROWS;
    const int rows = min(LP_ROWS, a.s - i0);
    const long long q_row = (long long)blockIdx.z * a.s + i0;
    const long long k_row = (long long)blockIdx.z * a.t;
    const lp_bf16 *kg = k + k_row * a.k_stride + head / a.r * LP_D;
    const lp_bf16 *vg = v + k_row * a.v_stride + head / a.r * LP_D;
    float peak[2] = {-LP_INF, -LP_INF};
    float sum[2] = {0.0f, 0.0f};
    float acc[LP_WIDE][4];
    int first = 0;
    int last = 0;

    lp_keys_seen(a, i0, rows, &first, &last);
    lp_clear(acc);
    lp_load_tile(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, LP_ROWS, rows);
    if (first < last) {
        lp_load_tile(ks, kg + first * a.k_stride, a.k_stride, LP_COLUMNS, a.t - first);
        lp_load_tile(vs, vg + first * a.v_stride, a.v_stride, LP_COLUMNS, a.t - first);
    }
    lp_cp_async_commit();
    int slot = 0;
    for (int j0 = first; j0 < last; j0 += LP_COLUMNS) {
        const int next = j0 + LP_COLUMNS;
        if (next < last) {
            const int at = (slot ^ 1) * LP_COLUMNS * LP_PITCH;
            lp_load_tile(ks + at, kg + next * a.k_stride, a.k_stride, LP_COLUMNS, a.t - next);
            lp_load_tile(vs + at, vg + next * a.v_stride, a.v_stride, LP_COLUMNS, a.t - next);
        }
        lp_cp_async_commit();
        lp_cp_async_wait(1);
        __syncthreads();
        if (lp_hidden(a, i0, LP_ROWS, j0, LP_COLUMNS)) {
            __syncthreads();
            slot ^= 1;
            continue;
        }
        float s[LP_SCORES][4];
        lp_scores(s, qs + warp_row * LP_PITCH, ks + slot * LP_COLUMNS * LP_PITCH);
        const bool whole = lp_all_see(a, i0 + warp_row, 16, j0, LP_COLUMNS);
#pragma unroll
        for (int n = 0; n < LP_SCORES; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int i = i0 + warp_row + lane / 4 + e / 2 * 8;
                const int j = j0 + n * 8 + lane % 4 * 2 + e % 2;
                s[n][e] = whole || lp_sees(a, i, j) ? s[n][e] * a.scale : -LP_INF;
            }
        }
        lp_softmax_step(s, peak, sum, acc);
        lp_weighted_sum(acc, s, vs + slot * LP_COLUMNS * LP_PITCH);
        __syncthreads();
        slot ^= 1;
    }
    lp_cp_async_wait(0);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = warp_row + lane / 4 + h * 8;
        sum[h] = lp_lanes_sum(sum[h], 4);
        if (lane % 4 == 0 && row < rows) {
            l[(q_row + row) * heads + head] = peak[h] + logf(sum[h]);
        }
        sum[h] = sum[h] > 0.0f ? 1.0f / sum[h] : 0.0f;
    }
    lp_store_rows(o + (q_row + warp_row) * a.o_stride + head * LP_D, a.o_stride, rows - warp_row,
                  acc, sum[0], sum[1]);
}

/* s = exp(scale s - l) and dp = s (dp - delta) scale of one pair; hidden pairs give 0. A row that
 * saw nothing in the forward has l = -inf, and is hidden from every key. */
LP_DEVICE void lp_pair_gradient(const LpAttention &a, bool sees, float l, float delta, float &s,
                                float &dp)
{
    sees = sees && l > -LP_INF;
    s = sees ? __expf(s * a.scale - l) : 0.0f;
    dp = sees ? s * (dp - delta) * a.scale : 0.0f;
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_backward_kv(const LpAttention a, const lp_bf16 *__restrict__ q,
                             const lp_bf16 *__restrict__ k, const lp_bf16 *__restrict__ v,
                             const lp_bf16 *__restrict__ dout, const float *__restrict__ l,
                             const float *__restrict__ delta, LP_GRADIENT_T *__restrict__ dk,
                             LP_GRADIENT_T *__restrict__ dv)
{
    lp_bf16 *ks = (lp_bf16 *)lp_shared;
    lp_bf16 *vs = ks + LP_ROWS * LP_PITCH;
    lp_bf16 *qs = vs + LP_ROWS * LP_PITCH;
    lp_bf16 *os = qs + 2 * LP_COLUMNS * LP_PITCH;
    const int lane = (int)threadIdx.x % 32;
    const int warp_row = (int)threadIdx.x / 32 * 16;
    const int group = (int)blockIdx.y;
    const int heads = a.g * a.r;
    const int j0 = (int)blockIdx.x * LP_ROWS;
    const int keys = min(LP_ROWS, a.t - j0);
    const long long k_row = (long long)blockIdx.z * a.t + j0;
    const long long q_row = (long long)blockIdx.z * a.s;
    float acc_k[LP_WIDE][4];
    float acc_v[LP_WIDE][4];
    int first = 0;
    int last = 0;

    lp_queries_seeing(a, j0, keys, &first, &last);
    const int tiles = first < last ? (last - first + LP_COLUMNS - 1) / LP_COLUMNS : 0;
    lp_clear(acc_k);
    lp_clear(acc_v);
    lp_load_tile(ks, k + k_row * a.k_stride + group * LP_D, a.k_stride, LP_ROWS, keys);
    lp_load_tile(vs, v + k_row * a.v_stride + group * LP_D, a.v_stride, LP_ROWS, keys);
    /* Tile x is tile x % tiles of query head x / tiles; the copy runs one tile ahead. */
    for (int x = -1; x < tiles * a.r; x++) {
        const int ahead = x + 1;
        if (ahead < tiles * a.r) {
            const int head = group * a.r + ahead / tiles;
            const int i0 = first + ahead % tiles * LP_COLUMNS;
            const int at = ahead % 2 * LP_COLUMNS * LP_PITCH;
            lp_load_tile(qs + at, q + (q_row + i0) * a.q_stride + head * LP_D, a.q_stride,
                         LP_COLUMNS, a.s - i0);
            lp_load_tile(os + at, dout + (q_row + i0) * a.do_stride + head * LP_D, a.do_stride,
                         LP_COLUMNS, a.s - i0);
        }
        lp_cp_async_commit();
        if (x < 0) {
            continue;
        }
        const int head = group * a.r + x / tiles;
        const int i0 = first + x % tiles * LP_COLUMNS;
        const lp_bf16 *qt = qs + x % 2 * LP_COLUMNS * LP_PITCH;
        const lp_bf16 *ot = os + x % 2 * LP_COLUMNS * LP_PITCH;
        lp_cp_async_wait(1);
        __syncthreads();
        if (lp_hidden(a, i0, LP_COLUMNS, j0, LP_ROWS)) {
            __syncthreads();
            continue;
        }
        float s[LP_SCORES][4];
        float dp[LP_SCORES][4];
        lp_scores(s, ks + warp_row * LP_PITCH, qt);
        lp_scores(dp, vs + warp_row * LP_PITCH, ot);
        const bool whole = lp_all_see(a, i0, LP_COLUMNS, j0 + warp_row, 16);
#pragma unroll
        for (int n = 0; n < LP_SCORES; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int i = i0 + n * 8 + lane % 4 * 2 + e % 2;
                const int j = j0 + warp_row + lane / 4 + e / 2 * 8;
                const long long at = (q_row + min(i, a.s - 1)) * heads + head;
                lp_pair_gradient(a, whole || lp_sees(a, i, j), l[at], delta[at], s[n][e], dp[n][e]);
            }
        }
        lp_weighted_sum(acc_v, s, ot);
        lp_weighted_sum(acc_k, dp, qt);
        __syncthreads();
    }
    lp_cp_async_wait(0);
    lp_store_rows(dk + (k_row + warp_row) * a.dk_stride + group * LP_D, a.dk_stride,
                  keys - warp_row, acc_k, 1.0f, 1.0f);
    lp_store_rows(dv + (k_row + warp_row) * a.dv_stride + group * LP_D, a.dv_stride,
                  keys - warp_row, acc_v, 1.0f, 1.0f);
}

extern "C" __global__ void __launch_bounds__(LP_ATTENTION_THREADS)
    lp_attention_backward_q(const LpAttention a, const lp_bf16 *__restrict__ q,
                            const lp_bf16 *__restrict__ k, const lp_bf16 *__restrict__ v,
                            const lp_bf16 *__restrict__ dout, const float *__restrict__ l,
                            const float *__restrict__ delta, LP_GRADIENT_T *__restrict__ dq)
{
    lp_bf16 *qs = (lp_bf16 *)lp_shared;
    lp_bf16 *os = qs + LP_ROWS * LP_PITCH;
    lp_bf16 *ks = os + LP_ROWS * LP_PITCH;
    lp_bf16 *vs = ks + 2 * LP_COLUMNS * LP_PITCH;
    const int lane = (int)threadIdx.x % 32;
    const int warp_row = (int)threadIdx.x / 32 * 16;
    const int head = (int)blockIdx.y;
    const int heads = (int)gridDim.y;
    const int i0 = (int)blockIdx.x * LP_ROWS;
    const int rows = min(LP_ROWS, a.s - i0);
    const long long q_row = (long long)blockIdx.z * a.s + i0;
    const long long k_row = (long long)blockIdx.z * a.t;
    const lp_bf16 *kg = k + k_row * a.k_stride + head / a.r * LP_D;
    const lp_bf16 *vg = v + k_row * a.v_stride + head / a.r * LP_D;
    float row_l[2];
    float row_delta[2];
    float acc[LP_WIDE][4];
    int first = 0;
    int last = 0;

    lp_keys_seen(a, i0, rows, &first, &last);
    lp_clear(acc);
    lp_load_tile(qs, q + q_row * a.q_stride + head * LP_D, a.q_stride, LP_ROWS, rows);
    lp_load_tile(os, dout + q_row * a.do_stride + head * LP_D, a.do_stride, LP_ROWS, rows);
    if (first < last) {
        lp_load_tile(ks, kg + first * a.k_stride, a.k_stride, LP_COLUMNS, a.t - first);
        lp_load_tile(vs, vg + first * a.v_stride, a.v_stride, LP_COLUMNS, a.t - first);
    }
    lp_cp_async_commit();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const long long row = q_row + min(warp_row + lane / 4 + h * 8, rows - 1);
        row_l[h] = l[row * heads + head];
        row_delta[h] = delta[row * heads + head];
    }
    int slot = 0;
    for (int j0 = first; j0 < last; j0 += LP_COLUMNS) {
        const int next = j0 + LP_COLUMNS;
        if (next < last) {
            const int at = (slot ^ 1) * LP_COLUMNS * LP_PITCH;
            lp_load_tile(ks + at, kg + next * a.k_stride, a.k_stride, LP_COLUMNS, a.t - next);
            lp_load_tile(vs + at, vg + next * a.v_stride, a.v_stride, LP_COLUMNS, a.t - next);
        }
        lp_cp_async_commit();
        lp_cp_async_wait(1);
        __syncthreads();
        if (lp_hidden(a, i0, LP_ROWS, j0, LP_COLUMNS)) {
            __syncthreads();
            slot ^= 1;
            continue;
        }
        float s[LP_SCORES][4];
        float dp[LP_SCORES][4];
        lp_scores(s, qs + warp_row * LP_PITCH, ks + slot * LP_COLUMNS * LP_PITCH);
        lp_scores(dp, os + warp_row * LP_PITCH, vs + slot * LP_COLUMNS * LP_PITCH);
        const bool whole = lp_all_see(a, i0 + warp_row, 16, j0, LP_COLUMNS);
#pragma unroll
        for (int n = 0; n < LP_SCORES; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int i = i0 + warp_row + lane / 4 + e / 2 * 8;
                const int j = j0 + n * 8 + lane % 4 * 2 + e % 2;
                lp_pair_gradient(a, whole || lp_sees(a, i, j), row_l[e / 2], row_delta[e / 2],
                                 s[n][e], dp[n][e]);
            }
        }
        lp_weighted_sum(acc, dp, ks + slot * LP_COLUMNS * LP_PITCH);
        __syncthreads();
        slot ^= 1;
    }
    lp_cp_async_wait(0);
    lp_store_rows(dq + (q_row + warp_row) * a.dq_stride + head * LP_D, a.dq_stride, rows - warp_row,
                  acc, 1.0f, 1.0f);
}

/* delta[b][s][head] = sum over d of o * dout; a warp for each head, a block for each position. */
extern "C" __global__ void lp_attention_delta(const LpAttention a, const lp_bf16 *__restrict__ o,
                                              const lp_bf16 *__restrict__ dout,
                                              float *__restrict__ delta)
{
    const long long row = blockIdx.x;
    const int lane = (int)threadIdx.x % 32;
    for (int head = (int)threadIdx.x / 32; head < a.g * a.r; head += (int)blockDim.x / 32) {
        const lp_bf16 *x = o + row * a.o_stride + head * LP_D;
        const lp_bf16 *y = dout + row * a.do_stride + head * LP_D;
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
