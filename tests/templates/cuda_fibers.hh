/* cuda_fibers.hh - enough of CUDA to run kernels with barriers and shuffles on the CPU: the threads
 * of a block are fibers that take turns, each up to its next meeting; blocks run one after another.
 *
 * All threads of a warp must come to the same shuffles and all of a block to the same barriers, as
 * on a GPU. CUEMU leaves PTX out of the prelude. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#define CUEMU
#define __global__
#define __device__ static
#define __forceinline__ inline
#define __shared__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

struct float2 {
    float x, y;
};

static inline float2 make_float2(float x, float y)
{
    return {x, y};
}

static inline int min(int x, int y)
{
    return x < y ? x : y;
}

static inline float __int_as_float(int x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline float __uint_as_float(unsigned x)
{
    return __int_as_float((int)x);
}

static inline unsigned __float_as_uint(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}

enum { FIBER_STACK = 1 << 16 };

struct Fiber {
    ucontext_t context;
    char *stack;
    bool done;
    unsigned shuffles;
    float lane[2]; /* what it gave to the last two shuffles */
};
static std::vector<Fiber> fibers;
static ucontext_t fiber_scheduler;
static const std::function<void()> *fiber_body;

static void fiber_main()
{
    (*fiber_body)();
    fibers[threadIdx.x].done = true;
}

static void fiber_yield()
{
    const unsigned me = threadIdx.x;
    swapcontext(&fibers[me].context, &fiber_scheduler);
}

static inline void __syncthreads()
{
    fiber_yield();
}

/* Two places for what is given: a neighbour may come to the next shuffle before this one reads. */
static inline float __shfl_xor_sync(unsigned, float x, int step)
{
    const unsigned me = threadIdx.x;
    const unsigned turn = fibers[me].shuffles++ % 2;
    fibers[me].lane[turn] = x;
    fiber_yield();
    return fibers[me ^ (unsigned)step].lane[turn];
}

/* body() on every thread of every block; `begin` before each block. */
static void fibers_launch(dim3 grid, unsigned threads, const std::function<void()> &begin,
                          const std::function<void()> &body)
{
    fibers.assign(threads, Fiber());
    fiber_body = &body;
    gridDim = grid;
    blockDim = {threads, 1, 1};
    for (Fiber &fiber : fibers)
        fiber.stack = (char *)malloc(FIBER_STACK);
    for (unsigned block = 0; block < grid.x * grid.y * grid.z; block++) {
        blockIdx = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
        begin();
        for (Fiber &fiber : fibers) {
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack;
            fiber.context.uc_stack.ss_size = FIBER_STACK;
            fiber.context.uc_link = &fiber_scheduler;
            fiber.done = false;
            makecontext(&fiber.context, fiber_main, 0);
        }
        for (unsigned left = threads; left > 0;) {
            for (unsigned i = 0; i < threads; i++) {
                if (fibers[i].done)
                    continue;
                threadIdx.x = i;
                swapcontext(&fiber_scheduler, &fibers[i].context);
                left -= fibers[i].done;
            }
        }
    }
    for (Fiber &fiber : fibers)
        free(fiber.stack);
}
