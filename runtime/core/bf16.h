/* bf16.h - the upper half of an fp32, rounded to nearest even; NaN stays NaN. */
#ifndef LPLAN_RUNTIME_CORE_BF16_H
#define LPLAN_RUNTIME_CORE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float lp_bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t lp_f32_to_bf16(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    if ((wide & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((wide >> 16) | 0x40u);
    return (uint16_t)((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
}

#endif
