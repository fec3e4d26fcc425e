/* cuda_shim.hh - enough of CUDA to run emitted row kernels as C++ on the CPU: the threads of a
 * block are threads, blocks run one after another. What the prelude's reductions promise is kept;
 * their warp shuffles are tested with the templates. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define LP_THREADS 8
#define LP_DEVICE static inline
#define LP_INF INFINITY
/* The C library has functions of these names. */
#define __expf expf
#define __logf logf
#define __global__
#define __device__ static
#define __shared__ static

struct ShimDim {
    unsigned x;
};
static thread_local ShimDim threadIdx;
static ShimDim blockIdx, gridDim = {3}, blockDim = {LP_THREADS};
static pthread_barrier_t shim_barrier;
static pthread_mutex_t shim_lock = PTHREAD_MUTEX_INITIALIZER;
static float shim_part[LP_THREADS];

typedef uint32_t lp_u32;

/* Of the prelude, in C++: the upper half of a float, rounded to nearest, ties to even. */
struct lp_bf16 {
    uint16_t x;
};

static inline float lp_float(lp_bf16 x)
{
    uint32_t bits = (uint32_t)x.x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline void lp_put(lp_bf16 *to, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    to->x = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float lp_as_bf16(float x)
{
    lp_bf16 y;
    lp_put(&y, x);
    return lp_float(y);
}

static inline long lp_position(long place, long run, long runs)
{
    const long shard = place / (2 * run), inside = place % (2 * run);
    return inside < run ? shard * run + inside : (runs - 2 - shard) * run + inside;
}

static inline float atomicAdd(float *to, float x)
{
    pthread_mutex_lock(&shim_lock);
    float before = *to;
    *to = before + x;
    pthread_mutex_unlock(&shim_lock);
    return before;
}

/* Every thread of the block must come here, or the test hangs: as on a GPU. */
static inline float shim_reduce(float x, bool sum)
{
    shim_part[threadIdx.x] = x;
    pthread_barrier_wait(&shim_barrier);
    float all = shim_part[0];
    for (int i = 1; i < LP_THREADS; i++)
        all = sum ? all + shim_part[i] : fmaxf(all, shim_part[i]);
    pthread_barrier_wait(&shim_barrier);
    return all;
}

static inline float lp_block_sum(float x, float *)
{
    return shim_reduce(x, true);
}

static inline float lp_block_max(float x, float *)
{
    return shim_reduce(x, false);
}

struct ShimCall {
    void (*body)(void *);
    void *argument;
    unsigned thread;
};

static void *shim_thread(void *argument)
{
    ShimCall *call = (ShimCall *)argument;
    threadIdx.x = call->thread;
    call->body(call->argument);
    return nullptr;
}

/* body(argument) on every thread of every block. */
static inline void shim_launch(void (*body)(void *), void *argument)
{
    pthread_barrier_init(&shim_barrier, nullptr, LP_THREADS);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
        pthread_t threads[LP_THREADS];
        ShimCall calls[LP_THREADS];
        for (unsigned i = 0; i < LP_THREADS; i++) {
            calls[i] = {body, argument, i};
            pthread_create(&threads[i], nullptr, shim_thread, &calls[i]);
        }
        for (unsigned i = 0; i < LP_THREADS; i++)
            pthread_join(threads[i], nullptr);
    }
    pthread_barrier_destroy(&shim_barrier);
}
