// Products of bf16, two at a time: pairs in 32 bits, and what there is to multiply them. Plain bf16 is in simd.h.
#pragma once

#include "simd.h"

// Two consecutive numbers in 32 bits: what one lane of a product of bf16 takes.
struct bf16_pair {
    bf16 even, odd;
};

INLINE void load_pair(const bf16_pair* p, vf& first, vf& second) { load_pair((const float*)p, first, second); }

// W pairs, of W values and of the W others.
INLINE vf pair_up(const bf16* even, const bf16* odd) {
#if defined(FOREBAY_AVX512) && defined(__AVX512BW__)
    static constexpr Order<uint16_t, 2 * W> alternating([](int i) { return i / 2 + i % 2 * W; });
    __m256i low = _mm256_loadu_si256((const __m256i*)even), high = _mm256_loadu_si256((const __m256i*)odd);
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return (vf)_mm512_permutexvar_epi16(_mm512_load_si512(alternating.place), both);
#else
    vh low, high;
    std::memcpy(&low, even, sizeof low);
    std::memcpy(&high, odd, sizeof high);
    return (vf)(__builtin_convertvector(low, vu) | __builtin_convertvector(high, vu) << 16);
#endif
}

// sum + a.odd * b.odd + a.even * b.even, of lanes that are pairs of bf16. x86 adds them one after the other, each
// rounded once, and takes subnormal numbers for 0; ARM adds both products first.
#if defined(FOREBAY_AVX512) && defined(__AVX512BF16__)
constexpr bool MULTIPLIES_BF16 = true;
INLINE vf multiply_add_pairs(vf sum, vf a, vf b) {
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#elif defined(FOREBAY_NEON) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
constexpr bool MULTIPLIES_BF16 = true;
INLINE vf multiply_add_pairs(vf sum, vf a, vf b) {
    return (vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b);
}
#else
constexpr bool MULTIPLIES_BF16 = false;  // fp32 is faster
INLINE vf multiply_add_pairs(vf sum, vf a, vf b) {
    sum = multiply_add(sum, (vf)((vu)a & 0xffff0000u), (vf)((vu)b & 0xffff0000u));
    return multiply_add(sum, (vf)((vu)a << 16), (vf)((vu)b << 16));
}
#endif
