/* attention_cuda.hh - the CUDA attention of one width on fibers, behind one C function.
 *
 * Compiled by attention_cuda_test.c with LP_D and the like defined. */
#include "tests/templates/cuda_fibers.hh"

#include "templates/cuda/prelude.cuh"

#include "templates/cuda/attention.cu"

float lp_shared[LP_ATTENTION_BYTES / 4];

/* What a kernel reads from shared memory it has written before. */
static void poison()
{
    memset(lp_shared, 0xff, sizeof lp_shared);
}

static unsigned tiles(int rows)
{
    return (unsigned)((rows + LP_ROWS - 1) / LP_ROWS);
}

/* The same operands as the host's forward, delta and backward. */
extern "C" void attention_cuda(const LpAttention *a, const float *q, const float *k, const float *v,
                               const float *dout, float *o, float *l, float *delta, float *dq,
                               float *dk, float *dv)
{
    const unsigned heads = (unsigned)(a->g * a->r), b = (unsigned)a->b, g = (unsigned)a->g;
    fibers_launch({tiles(a->s), heads, b}, LP_ATTENTION_THREADS, poison,
                  [=] { lp_attention_forward(*a, q, k, v, o, l); });
    fibers_launch({b * (unsigned)a->s, 1, 1}, 64, poison,
                  [=] { lp_attention_delta(*a, o, dout, delta); });
    fibers_launch({tiles(a->t), g, b}, LP_ATTENTION_THREADS, poison,
                  [=] { lp_attention_backward_kv(*a, q, k, v, dout, l, delta, dk, dv); });
    fibers_launch({tiles(a->s), heads, b}, LP_ATTENTION_THREADS, poison,
                  [=] { lp_attention_backward_q(*a, q, k, v, dout, l, delta, dq); });
}
