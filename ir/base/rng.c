/* rng.c - Philox-4x32-10 and the three distributions drawn from it. */
#include "ir/base/rng.h"

#include <math.h>

/* The round and key constants of the published generator; ten rounds. */
static const uint32_t multiplier_0 = 0xD2511F53u, multiplier_1 = 0xCD9E8D57u;
static const uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;
enum { ROUNDS = 10, DRAWS = 3 }; /* DRAWS: its own streams, as the runtime numbers them */

void rng_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t ret[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)multiplier_0 * c0;
        uint64_t p1 = (uint64_t)multiplier_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += weyl_0;
        k1 += weyl_1;
    }
    ret[0] = c0;
    ret[1] = c1;
    ret[2] = c2;
    ret[3] = c3;
}

static uint64_t word_pair(uint32_t lo, uint32_t hi)
{
    return (uint64_t)hi << 32 | lo;
}

/* The middle of one of 2^52 equal cells: never 0, never 1, and every value is exact. */
static double unit_of(uint64_t word)
{
    return ((double)(word >> 12) + 0.5) * 0x1p-52;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t words[4];
    rng_philox(seed, index, stream, words);
    return word_pair(words[0], words[1]);
}

double rng_unit(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit_of(rng_u64(seed, stream, index));
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    static const double two_pi = 6.283185307179586476925;
    uint32_t words[4];
    rng_philox(seed, index, stream, words);
    double radius = sqrt(-2.0 * log(unit_of(word_pair(words[0], words[1]))));
    return radius * cos(two_pi * unit_of(word_pair(words[2], words[3])));
}

uint32_t rng_drop_word(uint64_t seed, uint32_t stream, uint64_t index)
{
    uint32_t words[4];
    rng_philox(seed, index, (uint64_t)DRAWS << 32 | stream, words);
    return words[0];
}

uint32_t rng_drop_below(double rate)
{
    double words = rate * 0x1p32;
    return words < 0 ? 0 : words > 0xffffffffu ? 0xffffffffu : (uint32_t)words;
}
