/* rng.h - counter-based random numbers: a pure function of (key, counter), so any rank can make any
 * element. Philox-4x32-10 (Salmon et al., SC'11). */
#ifndef LPLAN_IR_BASE_RNG_H
#define LPLAN_IR_BASE_RNG_H

#include <stdint.h>

/* Four 32-bit words for (key, counter). */
void rng_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t ret[4]);
/* One uniform 64-bit word, one double in (0,1), one standard normal (Box-Muller) for (seed, stream,
 * index). */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
double rng_unit(uint64_t seed, uint64_t stream, uint64_t index);
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* What dropout draws: a word for (seed, stream, index), as kernels draw it
 * (templates/host/draw.h), and the word below which a share `rate` of all lie. */
uint32_t rng_drop_word(uint64_t seed, uint32_t stream, uint64_t index);
uint32_t rng_drop_below(double rate);

#endif
