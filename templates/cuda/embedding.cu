/* embedding.cu - table lookup and its gradient, for the rows [base, base + rows) of a table.
 *
 * Parameters: LP_EMBEDDING_T, type of the table and of out and dout; LP_GRADIENT_T, type of dw. An
 * id outside the shard gives a zero row forward and nothing backward. */

#define LP_EMBEDDING_THREADS 256

/* Grid (n). out[i] = w[ids[i] - base]. */
extern "C" __global__ void __launch_bounds__(LP_EMBEDDING_THREADS)
    lp_embedding_forward(long long rows, int d, long long base, const int *__restrict__ ids,
                         const LP_EMBEDDING_T *__restrict__ w, LP_EMBEDDING_T *__restrict__ out,
                         long long out_stride)
{
    const long long i = blockIdx.x;
    const long long row = ids[i] - base;
    const bool mine = row >= 0 && row < rows;
    for (int c = (int)threadIdx.x; c < d; c += LP_EMBEDDING_THREADS) {
        lp_put(out + i * out_stride + c, mine ? lp_float(w[row * d + c]) : 0.0f);
    }
}

/* Grid (n). dw[ids[i] - base] += dout[i], no atomics: the block of an id's first position adds all
 * positions of that id, in their order, in fp32, and the others return. Finding them reads the ids
 * n / 2 times over, from L2; a sort would cost scratch and a second kernel. To overwrite, clear dw
 * before. */
extern "C" __global__ void __launch_bounds__(LP_EMBEDDING_THREADS)
    lp_embedding_backward(int n, long long rows, int d, long long base, const int *__restrict__ ids,
                          const LP_EMBEDDING_T *__restrict__ dout, long long dout_stride,
                          LP_GRADIENT_T *__restrict__ dw)
{
    __shared__ lp_u32 found[LP_EMBEDDING_THREADS / 32];
    const int lane = (int)threadIdx.x;
    const int first = (int)blockIdx.x;
    const int id = ids[first];
    const long long row = id - base;
    if (row < 0 || row >= rows) {
        return;
    }
    int earlier = 0;
    for (int i = lane; i < first; i += LP_EMBEDDING_THREADS) {
        earlier |= ids[i] == id;
    }
    if (__syncthreads_or(earlier)) {
        return;
    }
    for (int c0 = 0; c0 < d; c0 += LP_EMBEDDING_THREADS) {
        const int c = c0 + lane;
        float sum = c < d ? lp_float(dw[row * d + c]) : 0.0f;
        for (int i0 = first; i0 < n; i0 += LP_EMBEDDING_THREADS) {
            const lp_u32 mask =
                __ballot_sync(0xffffffffu, i0 + lane < n && ids[min(i0 + lane, n - 1)] == id);
            if (lane % 32 == 0) {
                found[lane / 32] = mask;
            }
            __syncthreads();
            for (int w = 0; w < LP_EMBEDDING_THREADS / 32; w++) {
                for (lp_u32 left = found[w]; left != 0; left &= left - 1) {
                    const long long i = i0 + 32 * w + __ffs((int)left) - 1;
                    sum += c < d ? lp_float(dout[i * dout_stride + c]) : 0.0f;
                }
            }
            __syncthreads();
        }
        if (c < d) {
            lp_put(dw + row * d + c, sum);
        }
    }
}
