/* bits.h - a sum over stored elements, each mixed with its place: the same whoever adds which part.
 *
 * What a checkpoint holds is compared with what was saved by it, under any plan. Zeros add nothing:
 * state that a tensor does not have is zero in its file, and nobody writes it. */
#ifndef LPLAN_RUNTIME_IO_BITS_H
#define LPLAN_RUNTIME_IO_BITS_H

#include <stdint.h>
#include <string.h>

typedef struct LpBits {
    uint64_t sum;
    int64_t elements;
} LpBits;

/* Adds elements [begin, begin + n) of a tensor of this name, of `width` bytes each. */
static inline void lp_bits_add(LpBits *bits, const char *name, int64_t begin, int64_t n,
                               const unsigned char *at, int width)
{
    uint64_t place = UINT64_C(0xcbf29ce484222325); /* FNV-1a of the name */
    for (const char *c = name; *c; c++)
        place = (place ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    place += (uint64_t)begin * UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t i = 0; i < n; i++, place += UINT64_C(0x9e3779b97f4a7c15)) {
        uint64_t x = 0;
        memcpy(&x, at + i * width, (size_t)width);
        if (x == 0)
            continue;
        x = (x ^ place) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 32) * UINT64_C(0x94d049bb133111eb);
        bits->sum += x ^ x >> 29;
    }
    bits->elements += n;
}

#endif
