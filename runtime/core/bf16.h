/* bf16.h - numbers of 16 bits, rounded to nearest even; NaN stays NaN: bf16, the upper half of an
 * fp32, and fp16, IEEE binary16. And numbers of any dtype, one at a time. */
#ifndef LPLAN_RUNTIME_CORE_BF16_H
#define LPLAN_RUNTIME_CORE_BF16_H

#include <stdint.h>
#include <string.h>

#include "runtime/lp.h"

static inline float lp_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t lp_bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float lp_bf16_to_f32(uint16_t bits)
{
    return lp_f32_of_bits((uint32_t)bits << 16);
}

static inline uint16_t lp_f32_to_bf16(float value)
{
    uint32_t wide = lp_bits_of_f32(value);
    if ((wide & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((wide >> 16) | 0x40u);
    return (uint16_t)((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
}

/* The exponent is 112 larger in fp32; a subnormal is what is left of 2^-14 + x. */
static inline float lp_f16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)(bits & 0x7fffu) << 13, sign = (uint32_t)(bits & 0x8000u) << 16;
    if (wide >= 31u << 23)
        return lp_f32_of_bits(sign | (wide + (224u << 23)));
    if (wide >= 1u << 23)
        return lp_f32_of_bits(sign | (wide + (112u << 23)));
    float value = lp_f32_of_bits(wide + (113u << 23)) - lp_f32_of_bits(113u << 23);
    return sign ? -value : value;
}

static inline uint16_t lp_f32_to_f16(float value)
{
    uint32_t wide = lp_bits_of_f32(value), sign = wide >> 16 & 0x8000u;
    wide &= 0x7fffffffu;
    if (wide > 255u << 23)
        return (uint16_t)(sign | 0x7e00u);
    if (wide >= 143u << 23)
        return (uint16_t)(sign | 0x7c00u);
    if (wide < 113u << 23) /* 0.5 + x keeps multiples of 2^-24 */
        return (uint16_t)(sign | (lp_bits_of_f32(lp_f32_of_bits(wide) + 0.5f) - (126u << 23)));
    return (uint16_t)(sign | ((wide - (112u << 23) + 0xfffu + (wide >> 13 & 1u)) >> 13));
}

static inline double lp_number_at(const void *data, LpDtype dtype, int64_t index)
{
    switch (dtype) {
    case LP_F64:
        return ((const double *)data)[index];
    case LP_BF16:
        return lp_bf16_to_f32(((const uint16_t *)data)[index]);
    case LP_F16:
        return lp_f16_to_f32(((const uint16_t *)data)[index]);
    default:
        return ((const float *)data)[index];
    }
}

static inline void lp_number_put(void *data, LpDtype dtype, int64_t index, double value)
{
    switch (dtype) {
    case LP_F64:
        ((double *)data)[index] = value;
        break;
    case LP_BF16:
        ((uint16_t *)data)[index] = lp_f32_to_bf16((float)value);
        break;
    case LP_F16:
        ((uint16_t *)data)[index] = lp_f32_to_f16((float)value);
        break;
    default:
        ((float *)data)[index] = (float)value;
    }
}

#endif
