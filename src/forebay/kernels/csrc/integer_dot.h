// Sums of products of small integers: W columns of weights, 4 or 8 bits, times 8-bit inputs of one row. All sums are
// exact, so it doesn't matter to the bits which instructions there are and in which order they add.
//
// A `Dot` says, for weights of BITS bits: which vectors the words of a block become (`unpack`), how inputs lie beside
// them (`Input`, `place`), and how a vector is multiplied and added (`add`). Each vector has one 32-bit lane a column.
#pragma once

#include "quantised_blocks.h"

constexpr int QUARTERS = 8;  // words of four bytes that 32 inputs make

typedef int16_t vs __attribute__((vector_size(W * 4)));

// The 32 bits at `p` in every lane.
INLINE vu repeat(const void* p) {
    uint32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return bits - vu{};
}

// The low, then the high halves of the bytes of a block's words: four inputs a lane, the even and the odd ones of eight.
INLINE void unpack_halves(const vu* words, vu* out) {
#pragma GCC unroll 4
    for (int w = 0; w < 4; w++) {
        out[2 * w] = words[w] & 0x0f0f0f0fu;
        out[2 * w + 1] = words[w] >> 4 & 0x0f0f0f0fu;
    }
}
constexpr int place_in_halves(int input) { return input / 8 * 8 + input % 2 * 4 + input % 8 / 2; }

// Four products of bytes and their sum, a lane. x86 takes weights without a sign: WEIGHT_ZERO is what stands for 0 then.
#if defined(FOREBAY_AVX512) && defined(__AVX512VNNI__)
constexpr int WEIGHT_ZERO = 128;
INLINE vi dot_bytes(vi sum, vu weights, vu inputs) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)inputs);
}
#define FOREBAY_DOT_BYTES
#elif defined(FOREBAY_AVX2) && defined(__AVXVNNI__)
constexpr int WEIGHT_ZERO = 128;
INLINE vi dot_bytes(vi sum, vu weights, vu inputs) {
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)inputs);
}
#define FOREBAY_DOT_BYTES
#elif defined(FOREBAY_NEON) && defined(__ARM_FEATURE_DOTPROD)
constexpr int WEIGHT_ZERO = 0;
INLINE vi dot_bytes(vi sum, vu weights, vu inputs) {
    return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)weights, (int8x16_t)inputs);
}
#define FOREBAY_DOT_BYTES
#elif defined(FOREBAY_AVX512) && defined(__AVX512BW__)
INLINE vs pairs(vu weights, vu inputs) { return (vs)_mm512_maddubs_epi16((__m512i)weights, (__m512i)inputs); }
INLINE vi pairs(vs weights, vs inputs) { return (vi)_mm512_madd_epi16((__m512i)weights, (__m512i)inputs); }
#define FOREBAY_DOT_PAIRS
#elif defined(FOREBAY_AVX2)
INLINE vs pairs(vu weights, vu inputs) { return (vs)_mm256_maddubs_epi16((__m256i)weights, (__m256i)inputs); }
INLINE vi pairs(vs weights, vs inputs) { return (vi)_mm256_madd_epi16((__m256i)weights, (__m256i)inputs); }
#define FOREBAY_DOT_PAIRS
#endif

// Makes the compiler have `v` at this place. Integers may be added in any order, and it would make all products first,
// which takes more registers than there are.
template <class V>
INLINE void now(V& v) {
#if defined(FOREBAY_LANES)
    asm("" : "+m"(v));  // such a vector may fit no register
#elif defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
}

template <int BITS>
struct Dot;

#if defined(FOREBAY_DOT_BYTES)

template <>
struct Dot<4> {
    typedef int8_t Input;
    typedef vi Sum;
    static constexpr int vectors = QUARTERS;
    static constexpr int place(int input) { return place_in_halves(input); }
    INLINE void unpack(const vu* words, vu* out) { unpack_halves(words, out); }
    INLINE void add(Sum& sum, vu weights, vu inputs) { sum = dot_bytes(sum, weights, inputs); }
    INLINE vi total(Sum sum, int32_t) { return sum; }
};

// Weights plus WEIGHT_ZERO, which adds so many times the sum of the inputs.
template <>
struct Dot<8> {
    typedef int8_t Input;
    typedef vi Sum;
    static constexpr int vectors = QUARTERS;
    static constexpr int place(int input) { return input; }
    INLINE void unpack(const vu* words, vu* out) {
        for (int w = 0; w < QUARTERS; w++) out[w] = words[w] ^ 0x01010101u * WEIGHT_ZERO;
    }
    INLINE void add(Sum& sum, vu weights, vu inputs) { sum = dot_bytes(sum, weights, inputs); }
    INLINE vi total(Sum sum, int32_t inputs) { return sum - WEIGHT_ZERO * inputs; }
};

#elif defined(FOREBAY_DOT_PAIRS)

// Two products and their sum in 16 bits: 32 products of at most 15 * 127 stay below 2^15.
template <>
struct Dot<4> {
    typedef int8_t Input;
    typedef vs Sum;
    static constexpr int vectors = QUARTERS;
    static constexpr int place(int input) { return place_in_halves(input); }
    INLINE void unpack(const vu* words, vu* out) { unpack_halves(words, out); }
    INLINE void add(Sum& sum, vu weights, vu inputs) {
        sum += pairs(weights, inputs);
        now(sum);
    }
    INLINE vi total(Sum sum, int32_t) { return pairs(sum, vs{} + 1); }
};

// Products of 8 bits need their sums in 32: weights and inputs are widened, the even and the odd bytes of a word.
template <>
struct Dot<8> {
    typedef int16_t Input;
    typedef vi Sum;
    static constexpr int vectors = 2 * QUARTERS;
    static constexpr int place(int input) { return input / 4 * 4 + input % 2 * 2 + input % 4 / 2; }
    INLINE void unpack(const vu* words, vu* out) {
        for (int w = 0; w < QUARTERS; w++) {
            out[2 * w] = (vu)((vs)((vs)words[w] << 8) >> 8);
            out[2 * w + 1] = (vu)((vs)words[w] >> 8);
        }
    }
    INLINE void add(Sum& sum, vu weights, vu inputs) {
        sum += pairs((vs)weights, (vs)inputs);
        now(sum);
    }
    INLINE vi total(Sum sum, int32_t) { return sum; }
};

#else

// Byte after byte, sign and all: those of 4 bits have none.
struct DotInLanes {
    typedef int8_t Input;
    typedef vi Sum;
    static constexpr int vectors = QUARTERS;
    INLINE vi byte(vu words, int i) { return (vi)(words << (24 - 8 * i)) >> 24; }
    INLINE void add(Sum& sum, vu weights, vu inputs) {
        for (int i = 0; i < 4; i++) sum += byte(weights, i) * byte(inputs, i);
    }
    INLINE vi total(Sum sum, int32_t) { return sum; }
};

template <>
struct Dot<4> : DotInLanes {
    static constexpr int place(int input) { return place_in_halves(input); }
    INLINE void unpack(const vu* words, vu* out) { unpack_halves(words, out); }
};

template <>
struct Dot<8> : DotInLanes {
    static constexpr int place(int input) { return input; }
    INLINE void unpack(const vu* words, vu* out) {
        for (int w = 0; w < QUARTERS; w++) out[w] = words[w];
    }
};

#endif

// Which input stands at place `at` of sixteen.
template <class D>
constexpr int inverse(int at) {
    int input = 0;
    while (D::place(input) != at) input++;
    return input;
}

// Values [GROUP] as bytes or as 16 bits, in order.
#if defined(FOREBAY_AVX512)
INLINE void narrow_all(const vi* values, int8_t* out) {
    for (int i = 0; i < 2; i++) _mm_storeu_si128((__m128i*)out + i, _mm512_cvtepi32_epi8((__m512i)values[i]));
}
INLINE void narrow_all(const vi* values, int16_t* out) {
    for (int i = 0; i < 2; i++) _mm256_storeu_si256((__m256i*)out + i, _mm512_cvtepi32_epi16((__m512i)values[i]));
}
#elif defined(FOREBAY_AVX2)
INLINE __m256i narrow_pair(const vi* values) { return _mm256_packs_epi32((__m256i)values[0], (__m256i)values[1]); }
INLINE void narrow_all(const vi* values, int8_t* out) {
    __m256i mixed = _mm256_packs_epi16(narrow_pair(values), narrow_pair(values + 2));
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i*)out, _mm256_permutevar8x32_epi32(mixed, order));
}
INLINE void narrow_all(const vi* values, int16_t* out) {
    for (int i = 0; i < 2; i++) {
        __m256i mixed = narrow_pair(values + 2 * i);
        _mm256_storeu_si256((__m256i*)out + i, _mm256_permute4x64_epi64(mixed, 0b11011000));
    }
}
#else
template <class Input>
INLINE void narrow_all(const vi* values, Input* out) {
    for (int i = 0; i < GROUP; i++) out[i] = (Input)values[i / W][i % W];
}
#endif

// Values [GROUP] to where their products are made from. No value moves further than within sixteen.
template <int BITS>
INLINE void place_inputs(const vi* values, typename Dot<BITS>::Input* out) {
    typedef typename Dot<BITS>::Input sixteen __attribute__((vector_size(16 * sizeof(*out))));
    static constexpr Order<typename Dot<BITS>::Input, 16> order(inverse<Dot<BITS>>);
    narrow_all(values, out);
    sixteen from, part;
    std::memcpy(&from, order.place, sizeof from);
    for (int at = 0; at < GROUP; at += 16) {
        std::memcpy(&part, out + at, sizeof part);
        part = __builtin_shuffle(part, from);
        std::memcpy(out + at, &part, sizeof part);
    }
}
