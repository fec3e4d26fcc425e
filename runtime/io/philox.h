/* philox.h - the counter-based generator Philox-4x32-10: numbers as a pure function of where they
 * go. */
#ifndef LPLAN_RUNTIME_IO_PHILOX_H
#define LPLAN_RUNTIME_IO_PHILOX_H

#include <stdint.h>

/* Four numbers of block `index` in stream `stream` under `seed`. */
static inline void lp_philox(uint64_t seed, uint32_t stream, uint32_t kind, uint64_t index,
                             uint32_t ret[4])
{
    uint32_t x0 = (uint32_t)index, x1 = (uint32_t)(index >> 32), x2 = stream, x3 = kind;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * x0, b = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ret[0] = x0;
    ret[1] = x1;
    ret[2] = x2;
    ret[3] = x3;
}

/* What a stream is for, so that no two uses share numbers. */
enum {
    LP_STREAM_INIT = 1,
    LP_STREAM_DATA = 2,
    LP_STREAM_DRAW = 3 /* of emitted kernels: templates/host/draw.h */
};

#endif
