/* num.h - the integer arithmetic of costs and layouts. */
#ifndef LPLAN_IR_BASE_NUM_H
#define LPLAN_IR_BASE_NUM_H

#include <stdint.h>

int64_t num_larger(int64_t a, int64_t b);
/* The greatest common divisor, and the least common multiple; of positive numbers. */
int64_t num_divisor(int64_t a, int64_t b);
int64_t num_multiple(int64_t a, int64_t b);
/* Bytes rounded up to a cache line of 64. */
int64_t num_align64(int64_t bytes);
/* What costs end at: no machine takes two years for one operation, and sums of these stay int64. */
#define NUM_MOST (INT64_C(1) << 56)
/* a x b / c in 128 bits, rounded up, NUM_MOST at most; all positive. */
int64_t num_scale_up(int64_t a, int64_t b, int64_t c);

#endif
