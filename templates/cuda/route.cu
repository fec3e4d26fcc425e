/* route.cu - how tokens come to experts: the best scores of a row, capacities, counts, and picking
 * by choice.
 *
 * Parameter: LP_ROUTE_T, type of scores and weights. A choice is the number of an expert, or -1:
 * nobody. Any grid of whole warps, at most 1024 threads a block. One thread does what has an order,
 * so results do not depend on the grid. Simple forms, without claims of speed. */

#define LP_ROUTE_GROUPS 64

LP_DEVICE long long lp_route_begin()
{
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

LP_DEVICE long long lp_route_step()
{
    return (long long)gridDim.x * blockDim.x;
}

/* What a group is worth: its best score, or its best two together. */
LP_DEVICE double lp_group_worth(const LP_ROUTE_T *x, int n, int top2)
{
    double best = -(double)LP_INF;
    double second = best;
    for (int i = 0; i < n; i++) {
        const double score = (double)lp_float(x[i]);
        if (score > best) {
            second = best;
            best = score;
        } else if (score > second) {
            second = score;
        }
    }
    return top2 && n > 1 ? best + second : best;
}

LP_DEVICE void lp_keep_groups(const LP_ROUTE_T *x, int each, int groups, int keep, int top2,
                              unsigned char *kept)
{
    double worth[LP_ROUTE_GROUPS];
    for (int g = 0; g < groups; g++) {
        worth[g] = lp_group_worth(x + (long long)g * each, each, top2);
        kept[g] = 0;
    }
    for (int i = 0; i < keep; i++) {
        int best = -1;
        for (int g = 0; g < groups; g++) {
            if (!kept[g] && (best < 0 || worth[g] > worth[best])) {
                best = g;
            }
        }
        kept[best] = 1;
    }
}

/* choice[rows][k]: the k best of scores[rows][experts], out of the best `keep` of the groups; the
 * first among equals. A row with a NaN chooses it every time. */
extern "C" __global__ void lp_topk(long long rows, int experts, int k, int groups, int keep,
                                   int top2, const LP_ROUTE_T *__restrict__ scores,
                                   int *__restrict__ choice)
{
    const int each = experts / groups;
    for (long long row = lp_route_begin(); row < rows; row += lp_route_step()) {
        const LP_ROUTE_T *x = scores + row * experts;
        unsigned char kept[LP_ROUTE_GROUPS] = {1};
        int poison = -1;
        for (int i = 0; i < experts; i++) {
            const float score = lp_float(x[i]);
            poison = score != score ? i : poison;
        }
        if (groups > 1) {
            lp_keep_groups(x, each, groups, keep, top2, kept);
        }
        int last = -1;
        for (int c = 0; c < k; c++) {
            int best = poison;
            for (int i = 0; i < experts && poison < 0; i++) {
                const float score = lp_float(x[i]);
                const float before = last < 0 ? LP_INF : lp_float(x[last]);
                const bool after = score < before || (score == before && i > last);
                if (kept[i / each] && after && (best < 0 || score > lp_float(x[best]))) {
                    best = i;
                }
            }
            choice[row * k + c] = last = best;
        }
    }
}

/* out[b][s][k]: of each sequence an expert keeps its first `bound` choices, first choices of all
 * tokens before second ones; the others become -1. A thread follows one expert through a
 * sequence. */
extern "C" __global__ void lp_capacity(long long b, long long s, int k, int experts,
                                       long long bound, const int *__restrict__ choice,
                                       int *__restrict__ out)
{
    for (long long i = lp_route_begin(); i < b * (experts + 1); i += lp_route_step()) {
        const long long first = i / (experts + 1) * s * k;
        const int mine = (int)(i % (experts + 1)) - 1;
        long long used = 0;
        for (int c = 0; c < k; c++) {
            for (long long at = first + c; at < first + s * k; at += k) {
                if (choice[at] == mine) {
                    out[at] = mine < 0 || used < bound ? mine : -1;
                    used++;
                }
            }
        }
    }
}

/* out[rows][k]: the first choice, and each later one where twice its share is more than the drawn
 * part, word / 2^31, of its share and the first one's together; else -1. With `all` nothing is
 * drawn. */
extern "C" __global__ void lp_chance(long long rows, int k, const int *__restrict__ choice,
                                     const LP_ROUTE_T *__restrict__ share,
                                     const int *__restrict__ word, int all, int *__restrict__ out)
{
    for (long long i = lp_route_begin(); i < rows * k; i += lp_route_step()) {
        const long long row = i / k;
        const double part = all ? 0.0 : (double)word[row] / 2147483648.0;
        const double own = (double)lp_float(share[i]);
        const double both = own + (double)lp_float(share[row * k]);
        out[i] = i == row * k || 2.0 * own > part * both ? choice[i] : -1;
    }
}

/* out[rows]: the choices of one round. Each of the owners, who have `named` experts, takes `bound`
 * of them a round in their order, and in the last round all that are left; the others become -1. A
 * thread follows one owner, or nobody. */
extern "C" __global__ void lp_deal(long long rows, int named, int owners, long long bound,
                                   int round, int rounds, const int *__restrict__ choice,
                                   int *__restrict__ out)
{
    for (long long mine = lp_route_begin() - 1; mine < owners; mine += lp_route_step()) {
        long long seen = 0;
        for (long long i = 0; i < rows; i++) {
            const int id = choice[i];
            if ((id < 0 ? -1 : id / named) != mine) {
                continue;
            }
            const long long at = seen++ / bound;
            out[i] = mine >= 0 && (at < rounds ? at : rounds - 1) == round ? id : -1;
        }
    }
}

/* out[experts]: how many of n choices are of each of the experts [base, base + experts). Counts
 * below 2^24 are exact. */
extern "C" __global__ void lp_tally(long long n, int experts, long long base,
                                    const int *__restrict__ choice, LP_ROUTE_T *__restrict__ out)
{
    __shared__ float shared[32];
    for (int e = (int)blockIdx.x; e < experts; e += (int)gridDim.x) {
        float count = 0.0f;
        for (long long i = threadIdx.x; i < n; i += blockDim.x) {
            count += choice[i] == base + e ? 1.0f : 0.0f;
        }
        count = lp_block_sum(count, shared);
        if (threadIdx.x == 0) {
            lp_put(out + e, count);
        }
    }
}

/* out[rows][k] = from[rows][choice], 0 for nobody. */
extern "C" __global__ void lp_take(long long rows, int experts, int k,
                                   const int *__restrict__ choice,
                                   const LP_ROUTE_T *__restrict__ from,
                                   LP_ROUTE_T *__restrict__ out)
{
    for (long long i = lp_route_begin(); i < rows * k; i += lp_route_step()) {
        const int id = choice[i];
        lp_put(out + i, id >= 0 && id < experts ? lp_float(from[i / k * experts + id]) : 0.0f);
    }
}

/* Its gradient: out[rows][experts] = sum over the choices of an expert of dout[rows][k]. */
extern "C" __global__ void lp_spread(long long rows, int experts, int k,
                                     const int *__restrict__ choice,
                                     const LP_ROUTE_T *__restrict__ dout,
                                     LP_ROUTE_T *__restrict__ out)
{
    for (long long i = lp_route_begin(); i < rows * experts; i += lp_route_step()) {
        const long long first = i / experts * k;
        float sum = 0.0f;
        for (int c = 0; c < k; c++) {
            sum += choice[first + c] == i % experts ? lp_float(dout[first + c]) : 0.0f;
        }
        lp_put(out + i, sum);
    }
}
