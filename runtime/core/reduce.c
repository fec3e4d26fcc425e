/* reduce.c - the arithmetic of reductions, always in member order.
 *
 * Tiles of the inputs are summed in an accumulator that stays in the first-level cache; because a
 * tile is read whole before it is written, dst may be one of the inputs. */
#include "runtime/core/reduce.h"

#include "runtime/core/bf16.h"
#include "runtime/core/self.h"

#include <string.h>

#define TILE 1024

/* Members' sums in fp32 (or fp64), rounded once at the end. A NaN wins a MAX, so that it is seen.
 */
#define DEFINE_FOLD(name, Acc, In, load)                                                           \
    static void name(Acc *restrict acc, const In *restrict in, int n, LpOp op)                     \
    {                                                                                              \
        if (op == LP_SUM)                                                                          \
            for (int i = 0; i < n; i++)                                                            \
                acc[i] += load(in[i]);                                                             \
        else                                                                                       \
            for (int i = 0; i < n; i++) {                                                          \
                Acc x = load(in[i]);                                                               \
                acc[i] = x > acc[i] || x != x ? x : acc[i];                                        \
            }                                                                                      \
    }
#define AS_IS(x) (x)
DEFINE_FOLD(fold_f32, float, float, AS_IS)
DEFINE_FOLD(fold_f64, double, double, AS_IS)
DEFINE_FOLD(fold_bf16, float, uint16_t, lp_bf16_to_f32)
DEFINE_FOLD(fold_f16, float, uint16_t, lp_f16_to_f32)
#undef AS_IS
#undef DEFINE_FOLD

static void fold_i32(int32_t *restrict acc, const int32_t *restrict in, int n, LpOp op)
{
    for (int i = 0; i < n; i++)
        acc[i] = op == LP_SUM ? acc[i] + in[i] : in[i] > acc[i] ? in[i] : acc[i];
}

static void tile_reduce(unsigned char *dst, const unsigned char *own, int me,
                        const unsigned char *others, int64_t stride_bytes, int members, int n,
                        LpDtype dtype, LpOp op)
{
    union {
        float f32[TILE];
        double f64[TILE];
        int32_t i32[TILE];
    } acc;
    size_t bytes = (size_t)(n * lp_dtype_bytes(dtype));
    bool narrow = dtype == LP_BF16 || dtype == LP_F16;
    for (int member = 0; member < members; member++) {
        const void *in = member == me ? own : others + (member - (member > me)) * stride_bytes;
        if (member == 0 && narrow)
            for (int i = 0; i < n; i++)
                acc.f32[i] = (float)lp_number_at(in, dtype, i);
        else if (member == 0)
            memcpy(&acc, in, bytes);
        else if (dtype == LP_F32)
            fold_f32(acc.f32, in, n, op);
        else if (dtype == LP_F64)
            fold_f64(acc.f64, in, n, op);
        else if (dtype == LP_BF16)
            fold_bf16(acc.f32, in, n, op);
        else if (dtype == LP_F16)
            fold_f16(acc.f32, in, n, op);
        else
            fold_i32(acc.i32, in, n, op);
    }
    if (narrow)
        for (int i = 0; i < n; i++)
            lp_number_put(dst, dtype, i, acc.f32[i]);
    else
        memcpy(dst, &acc, bytes);
}

void lp_reduce(void *dst, const void *own, int me, const void *others, int64_t stride_bytes,
               int members, int64_t count, LpDtype dtype, LpOp op)
{
    int64_t width = lp_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i += TILE) {
        int n = count - i < TILE ? (int)(count - i) : TILE;
        int64_t at = i * width;
        tile_reduce((unsigned char *)dst + at, (const unsigned char *)own + at, me,
                    (const unsigned char *)others + at, stride_bytes, members, n, dtype, op);
    }
}
