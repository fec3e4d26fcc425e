/* draw.h - the random words of dropout: a pure function of where they go. */
#ifndef LP_DRAW_H
#define LP_DRAW_H

#include <stdint.h>

/* The first word of Philox-4x32-10 (Salmon et al., SC'11) at counter (index, stream, 3) under the
 * key `seed`. Straight-line, so that loops of it vectorise; forward and backward draw the same. */
static inline uint32_t lp_draw(long seed, long stream, long index)
{
    uint32_t x0 = (uint32_t)index, x1 = (uint32_t)((uint64_t)index >> 32);
    uint32_t x2 = (uint32_t)stream, x3 = 3u;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * x0, b = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return x0;
}

#endif
