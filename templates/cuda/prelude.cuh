/* prelude.cuh - what every emitted CUDA text begins with: bf16, fp16, reductions, and wrapped PTX.
 *
 * No includes: NVRTC compiles prelude + text with no include path, so a machine that trains needs
 * libnvrtc only. This is the one place where `asm` may stand, and every such wrapper is named lp_*:
 * the CPU emulator, which defines CUEMU, brings its own versions of them and runs all other text
 * as it is. Wrappers marked sm_80 need that architecture. */

typedef unsigned short lp_u16;
typedef unsigned int lp_u32;

/* The upper half of a float. */
struct lp_bf16 {
    lp_u16 x;
};

/* IEEE binary16. */
struct lp_f16 {
    lp_u16 x;
};

#define LP_INF __int_as_float(0x7f800000)
#define LP_DEVICE __device__ __forceinline__

LP_DEVICE float lp_float(float x)
{
    return x;
}

LP_DEVICE float lp_float(lp_bf16 x)
{
    return __uint_as_float((lp_u32)x.x << 16);
}

#ifndef CUEMU

LP_DEVICE float lp_float(lp_f16 x)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.x));
    return r;
}

LP_DEVICE lp_u16 lp_round_f16(float x)
{
    lp_u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

/* Two bf16 in one register, low first. sm_80. */
LP_DEVICE lp_u32 lp_pack_bf16(float low, float high)
{
    lp_u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

LP_DEVICE lp_u32 lp_shared_address(const void *p)
{
    return (lp_u32)__cvta_generic_to_shared(p);
}

/* d = a b + c for 16 x 16 times 16 x 8, bf16 operands. sm_80. */
LP_DEVICE void lp_mma_m16n8k16(float (&d)[4], const lp_u32 (&a)[4], const lp_u32 (&b)[2],
                               const float (&c)[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/* Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i. */
LP_DEVICE void lp_ldmatrix_x4(lp_u32 (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(lp_shared_address(p))
                 : "memory");
}

LP_DEVICE void lp_ldmatrix_x4_trans(lp_u32 (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(lp_shared_address(p))
                 : "memory");
}

/* 16 bytes to shared memory, zeros beyond the first `bytes` of them. sm_80. */
LP_DEVICE void lp_cp_async16(void *shared, const void *global, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(lp_shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
}

LP_DEVICE void lp_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most n groups of this thread are under way; n is a constant. */
#define lp_cp_async_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

#else

LP_DEVICE float lp_float(lp_f16 x)
{
    const lp_u32 u = (lp_u32)(x.x & 0x7fff) << 13;
    const float small = __uint_as_float(u + 0x38800000u) - __uint_as_float(0x38800000u);
    const lp_u32 finite = u < 0x00800000u ? __float_as_uint(small) : u + 0x38000000u;
    const lp_u32 bits = u >= 0x0f800000u ? u + 0x70000000u : finite;
    return __uint_as_float(bits | (lp_u32)(x.x & 0x8000) << 16);
}

LP_DEVICE lp_u16 lp_round_f16(float x)
{
    const lp_u32 bits = __float_as_uint(x), u = bits & 0x7fffffffu;
    const lp_u32 small = __float_as_uint(__uint_as_float(u) + 0.5f) - 0x3f000000u;
    const lp_u32 normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
    const lp_u32 large = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const lp_u32 finite = u < 0x38800000u ? small : normal;
    return (lp_u16)((u >= 0x47800000u ? large : finite) | ((bits >> 16) & 0x8000u));
}

LP_DEVICE lp_u32 lp_round_bf16(float x)
{
    const lp_u32 u = __float_as_uint(x);
    return (x == x ? u + 0x7fffu + ((u >> 16) & 1u) : u | 0x00400000u) >> 16;
}

LP_DEVICE lp_u32 lp_pack_bf16(float low, float high)
{
    return lp_round_bf16(low) | lp_round_bf16(high) << 16;
}

#endif

LP_DEVICE void lp_put(float *to, float x)
{
    *to = x;
}

LP_DEVICE void lp_put(lp_bf16 *to, float x)
{
    to->x = (lp_u16)lp_pack_bf16(x, 0.0f);
}

LP_DEVICE void lp_put(lp_f16 *to, float x)
{
    to->x = lp_round_f16(x);
}

/* What a number becomes when it is stored in 16 bits and read again. */
LP_DEVICE float lp_as_bf16(float x)
{
    lp_bf16 y;
    lp_put(&y, x);
    return lp_float(y);
}

LP_DEVICE float lp_as_f16(float x)
{
    lp_f16 y;
    lp_put(&y, x);
    return lp_float(y);
}

/* Two neighbours at once; `to` is aligned to both. */
LP_DEVICE void lp_put2(float *to, float x, float y)
{
    *(float2 *)to = make_float2(x, y);
}

LP_DEVICE void lp_put2(lp_bf16 *to, float x, float y)
{
    *(lp_u32 *)to = lp_pack_bf16(x, y);
}

/* Over groups of `width` neighbouring lanes, a power of two; every lane gets the result. All 32
 * lanes take part. */
LP_DEVICE float lp_lanes_sum(float x, int width)
{
    for (int step = width / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, step);
    }
    return x;
}

LP_DEVICE float lp_lanes_max(float x, int width)
{
    for (int step = width / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    }
    return x;
}

/* Over a block of whole warps, at most 32; `shared` is 32 floats. Every thread gets the result, and
 * the same bits: the second level runs in every warp. */
LP_DEVICE float lp_block_sum(float x, float *shared)
{
    const int warps = (int)(blockDim.x / 32);
    const int lane = (int)(threadIdx.x % 32);
    x = lp_lanes_sum(x, 32);
    __syncthreads();
    if (lane == 0) {
        shared[threadIdx.x / 32] = x;
    }
    __syncthreads();
    return lp_lanes_sum(lane < warps ? shared[lane] : 0.0f, 32);
}

LP_DEVICE float lp_block_max(float x, float *shared)
{
    const int warps = (int)(blockDim.x / 32);
    const int lane = (int)(threadIdx.x % 32);
    x = lp_lanes_max(x, 32);
    __syncthreads();
    if (lane == 0) {
        shared[threadIdx.x / 32] = x;
    }
    __syncthreads();
    return lp_lanes_max(lane < warps ? shared[lane] : -LP_INF, 32);
}

/* The position at a place of a sequence that is dealt out: templates/host/math.h. */
LP_DEVICE long long lp_position(long long place, long long run, long long runs)
{
    const long long at = place / run;
    return (at % 2 == 0 ? at / 2 : runs - 1 - at / 2) * run + place % run;
}

/* The least and the greatest position of the places [place, place + n); runs 0: places are
 * positions. */
LP_DEVICE void lp_reach(long long place, int n, long long run, long long runs, long long *least,
                        long long *most)
{
    const long long end = place + n;
    *least = place;
    *most = end - 1;
    for (long long at = place; runs && at < end;) {
        const long long left = run - at % run;
        const long long many = left < end - at ? left : end - at;
        const long long from = lp_position(at, run, runs);
        *least = at == place || from < *least ? from : *least;
        *most = at == place || from + many - 1 > *most ? from + many - 1 : *most;
        at += many;
    }
}
