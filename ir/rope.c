/* rope.c - numbers that stand for positions: how fast each pair of a rotation turns, whatever the
 * scaling, and the slopes of linear biases. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/op.h"

/* Llama 3.1: short waves stay, long ones are stretched, a ramp in the number of turns between. */
static double llama3_rate(const Attr_rope *rope, double rate)
{
    double turns = (double)rope->original * rate / (2 * M_PI);
    if (turns > rope->high)
        return rate;
    if (turns < rope->low)
        return rate / rope->factor;
    double ramp = (turns - rope->low) / (rope->high - rope->low);
    return (1 - ramp) * rate / rope->factor + ramp * rate;
}

/* The pair, a real number, that turns so often within the original length. */
static double pair_of_turns(const Attr_rope *rope, double turns)
{
    return (double)rope->rotary * log((double)rope->original / (turns * 2 * M_PI)) /
           (2 * log(rope->theta));
}

/* YaRN: the same idea with the ramp along the pairs, between those of `high` and `low` turns. */
static double yarn_rate(const Attr_rope *rope, double rate, int64_t i)
{
    double first = pair_of_turns(rope, rope->high), last = pair_of_turns(rope, rope->low);
    if (!rope->exact) {
        first = floor(first);
        last = ceil(last);
    }
    first = fmax(first, 0);
    last = fmin(last, (double)rope->rotary - 1);
    if (last == first)
        last += 0.001;
    double ramp = fmin(fmax(((double)i - first) / (last - first), 0), 1);
    return ramp * rate / rope->factor + (1 - ramp) * rate;
}

/* The i-th number of "1.05,1.1,2". */
static double factor_of_pair(const char *factors, int64_t i)
{
    for (; i > 0; i--) {
        factors += strcspn(factors, ",");
        factors += *factors == ',';
    }
    return strtod(factors, NULL);
}

double rope_rate(const Attr_rope *rope, int64_t i)
{
    double rate = pow(rope->theta, -2.0 * (double)i / (double)rope->rotary);
    switch (rope->scaling) {
    case ROPE_PLAIN:
    case ROPE_SCALING_COUNT:
        break;
    case ROPE_LINEAR:
        return rate / rope->factor;
    case ROPE_LLAMA3:
        return llama3_rate(rope, rate);
    case ROPE_YARN:
        return yarn_rate(rope, rate, i);
    case ROPE_LONG:
        return rate / factor_of_pair(rope->factors, i);
    }
    return rate;
}

double rope_gain(const Attr_rope *rope)
{
    return rope->gain != 0 ? rope->gain : 1;
}

/* A power of two heads: a geometric row down to 2^-8. Others take every second slope of twice as
 * many for the heads that are left. */
double alibi_slope(int64_t head, int64_t heads)
{
    int64_t power = 1;
    while (power * 2 <= heads)
        power *= 2;
    if (head < power)
        return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}
