/* stub.h - what libclang needs to check emitted CUDA text without the CUDA headers.
 *
 * Declarations only, for `-x cuda --cuda-device-only -nocudainc -nocudalib -include stub.h`. What
 * an emitted text uses and this lacks is an error of the check, not of the text: add it here. */
#ifndef LP_CUDA_STUB_H
#define LP_CUDA_STUB_H

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

typedef __SIZE_TYPE__ size_t;

#define LP_STUB_VECTOR(T, N, ALIGN2, ALIGN4)                                                       \
    struct __align__(ALIGN2) N##2                                                                  \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct N##3                                                                                    \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct __align__(ALIGN4) N##4                                                                  \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    __device__ N##2 make_##N##2(T, T);                                                             \
    __device__ N##3 make_##N##3(T, T, T);                                                          \
    __device__ N##4 make_##N##4(T, T, T, T);
LP_STUB_VECTOR(float, float, 8, 16)
LP_STUB_VECTOR(int, int, 8, 16)
LP_STUB_VECTOR(unsigned, uint, 8, 16)
LP_STUB_VECTOR(unsigned short, ushort, 4, 8)
LP_STUB_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
};

/* const: a text that assigns to them is wrong. */
extern const __device__ uint3 threadIdx, blockIdx;
extern const __device__ dim3 blockDim, gridDim;

extern "C" {
__device__ void __syncthreads();
__device__ int __syncthreads_or(int);
__device__ int __syncthreads_count(int);
__device__ void __threadfence();
__device__ void __threadfence_block();
__device__ unsigned __ballot_sync(unsigned, int);
__device__ int __any_sync(unsigned, int);
__device__ int __all_sync(unsigned, int);
__device__ unsigned __activemask();
__device__ int __float_as_int(float);
__device__ unsigned __float_as_uint(float);
__device__ float __int_as_float(int);
__device__ float __uint_as_float(unsigned);
__device__ int __popc(unsigned);
__device__ int __clz(int);
__device__ int __ffs(int);
__device__ unsigned __umulhi(unsigned, unsigned);
__device__ size_t __cvta_generic_to_shared(const void *);
__device__ float fmaf(float, float, float);
__device__ float fmaxf(float, float);
__device__ float fminf(float, float);
__device__ float powf(float, float);
__device__ float __fdividef(float, float);
__device__ double sqrt(double);
__device__ double exp(double);
__device__ double log(double);
__device__ int printf(const char *, ...);
}
__device__ void __syncwarp(unsigned = ~0u);

#define LP_STUB_UNARY(F) extern "C" __device__ float F(float);
LP_STUB_UNARY(expf)
LP_STUB_UNARY(__expf)
LP_STUB_UNARY(exp2f)
LP_STUB_UNARY(expm1f)
LP_STUB_UNARY(logf)
LP_STUB_UNARY(__logf)
LP_STUB_UNARY(log2f)
LP_STUB_UNARY(log1pf)
LP_STUB_UNARY(sqrtf)
LP_STUB_UNARY(rsqrtf)
LP_STUB_UNARY(fabsf)
LP_STUB_UNARY(floorf)
LP_STUB_UNARY(rintf)
LP_STUB_UNARY(tanhf)
LP_STUB_UNARY(erff)
LP_STUB_UNARY(sinf)
LP_STUB_UNARY(cosf)
LP_STUB_UNARY(__saturatef)

#define LP_STUB_SHUFFLE(T)                                                                         \
    __device__ T __shfl_sync(unsigned, T, int, int = 32);                                          \
    __device__ T __shfl_xor_sync(unsigned, T, int, int = 32);                                      \
    __device__ T __shfl_down_sync(unsigned, T, unsigned, int = 32);                                \
    __device__ T __shfl_up_sync(unsigned, T, unsigned, int = 32);
LP_STUB_SHUFFLE(int)
LP_STUB_SHUFFLE(unsigned)
LP_STUB_SHUFFLE(float)
LP_STUB_SHUFFLE(double)
LP_STUB_SHUFFLE(long long)

template <class T> __device__ T __ldg(const T *);
template <class T> __device__ T __ldcs(const T *);
template <class T> __device__ void __stcs(T *, T);
__device__ int atomicAdd(int *, int);
__device__ unsigned atomicAdd(unsigned *, unsigned);
__device__ float atomicAdd(float *, float);
__device__ int atomicMax(int *, int);
__device__ unsigned atomicCAS(unsigned *, unsigned, unsigned);
__device__ int min(int, int);
__device__ int max(int, int);
__device__ unsigned min(unsigned, unsigned);
__device__ unsigned max(unsigned, unsigned);
__device__ long long min(long long, long long);
__device__ long long max(long long, long long);

#endif
