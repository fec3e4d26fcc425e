/* expert.cu - linears whose weights the choices pick, and their gradients.
 *
 * Parameters: LP_EXPERT_T, type of x, y and the weights; LP_GRADIENT_T, type of dw. Element (to,
 * from) of an expert's weights is `w_to` and `w_from` apart from its neighbours: one of them is 1.
 * Experts outside the block [base, base + experts) give zero rows, and their rows no gradient. One
 * thread sums each element, in order; sums are in fp32. Simple forms, without claims of speed. */

/* Any grid. y[choices][to] = x[choices / divisor][from] w[choice]; divisor is the number of choices
 * that share a row of x. */
extern "C" __global__ void lp_expert_forward(long long choices, int divisor, int experts,
                                             long long base, int from, int to, long long w_from,
                                             long long w_to, const int *__restrict__ choice,
                                             const LP_EXPERT_T *__restrict__ x,
                                             const LP_EXPERT_T *__restrict__ w,
                                             LP_EXPERT_T *__restrict__ y)
{
    for (long long i = blockIdx.x; i < choices; i += gridDim.x) {
        const long long expert = choice[i] - base;
        const bool mine = expert >= 0 && expert < experts;
        const LP_EXPERT_T *row = x + i / divisor * from;
        const LP_EXPERT_T *weight = w + (mine ? expert : 0) * from * to;
        for (int c = (int)threadIdx.x; c < to; c += (int)blockDim.x) {
            float sum = 0.0f;
            for (int b = 0; mine && b < from; b++) {
                sum += lp_float(row[b]) * lp_float(weight[b * w_from + c * w_to]);
            }
            lp_put(y + i * to + c, sum);
        }
    }
}

/* Any grid. dw[experts] (+)= sum over the rows of an expert of dy[choices][to] and
 * x[choices / divisor][from]. */
extern "C" __global__ void lp_expert_backward(long long choices, int divisor, int experts,
                                              long long base, int from, int to, long long w_from,
                                              long long w_to, const int *__restrict__ choice,
                                              const LP_EXPERT_T *__restrict__ dy,
                                              const LP_EXPERT_T *__restrict__ x,
                                              LP_GRADIENT_T *__restrict__ dw, int overwrite)
{
    const long long each = (long long)from * to;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (long long at = first; at < experts * each; at += (long long)gridDim.x * blockDim.x) {
        const long long mine = at / each + base;
        const long long b = at % each / to;
        const long long c = at % to;
        LP_GRADIENT_T *place = dw + at / each * each + b * w_from + c * w_to;
        float sum = overwrite ? 0.0f : lp_float(*place);
        for (long long i = 0; i < choices; i++) {
            if (choice[i] == mine) {
                sum += lp_float(dy[i * to + c]) * lp_float(x[i / divisor * from + b]);
            }
        }
        lp_put(place, sum);
    }
}
