/* num.c - integers of costs and layouts. */
#include "ir/base/num.h"

int64_t num_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t num_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t num_multiple(int64_t a, int64_t b)
{
    return a / num_divisor(a, b) * b;
}

int64_t num_align64(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

int64_t num_scale_up(int64_t a, int64_t b, int64_t c)
{
    unsigned __int128 product = (unsigned __int128)a * (unsigned __int128)b;
    unsigned __int128 scaled = (product + (unsigned __int128)c - 1) / (unsigned __int128)c;
    return scaled < NUM_MOST ? (int64_t)scaled : NUM_MOST;
}
