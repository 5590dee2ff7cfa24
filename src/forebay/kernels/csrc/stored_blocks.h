// What the blocks of a model file hold: for each type that is packed as it is stored, how 32 inputs of a row are read.
// Not the other way round, and no types that are decoded first. A row may begin at any byte.
#pragma once

#include <cmath>

#include "quantised_blocks.h"

// ggml's numbers for its types, as in `library.py`.
enum Stored { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, Q4_K = 12, BF16_STORED = 30 };

template <class T>
INLINE T at(const uint8_t* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

// With NaN and infinity, which `load_scales` need not know.
INLINE float widen(half x) {
    uint32_t magnitude = (uint32_t)(x.bits & 0x7fffu) << 13, sign = (uint32_t)(x.bits & 0x8000u) << 16, bits;
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (magnitude >= 0x7c00u << 13 ? bits | 0x7f800000u : bits) | sign;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// A scale, which is a multiple of fp16's least number, as fp16 or fp32; `lost` becomes other than 0 where fp16 would
// lose anything.
INLINE void narrow(float x, half* out, uint32_t& lost) {
    uint32_t sign, bits;
    std::memcpy(&sign, &x, sizeof sign);
    float small = std::fabs(x) * 0x1p-112f;  // exact: its exponent is now an fp16's, subnormal ones included
    std::memcpy(&bits, &small, sizeof bits);
    bool infinite = bits == 0x7f800000u, overflows = bits >= 0x7c00u << 13;
    lost |= (bits & 0x1fffu) | (overflows && !infinite);
    uint32_t magnitude = overflows ? 0x7c00u | (bits > 0x7f800000u ? 0x200u : 0) : bits >> 13;
    out->bits = (uint16_t)((sign >> 16 & 0x8000u) | magnitude);
}
INLINE void narrow(float x, float* out, uint32_t& lost) {
    half would_be;
    narrow(x, &would_be, lost);
    *out = x;
}

typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint16_t Pairs __attribute__((vector_size(16)));

// Pairs of values of 4 bits, a byte each, become a byte each, the first value lower: bytes 0, 2, 4, and so on.
INLINE Bytes join_pairs(Bytes values) {
    Pairs pairs = (Pairs)values;
    return (Bytes)(pairs | pairs >> 4);
}

// 32 values of 4 bits, a byte each, as four words, the first lowest.
INLINE void store_words(Bytes first, Bytes second, uint32_t* words) {
    const Bytes even = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
    Bytes bytes = __builtin_shuffle(join_pairs(first), join_pairs(second), even);
    std::memcpy(words, &bytes, sizeof bytes);
}

// 16 bytes with the first 16 values in their low halves and the others in their high ones.
INLINE void split_halves(const uint8_t* bytes, uint32_t* words) {
    Bytes both = at<Bytes>(bytes);
    store_words(both & 15, both >> 4, words);
}

// 32 inputs of a column of a packed block that is being made.
struct Column {
    float *scale, *offset;
    uint32_t* words;
};

struct BlockQ4_0 {
    static constexpr int bytes = 18, groups = 1;
    INLINE void read(const uint8_t* block, int, const Column& out) {
        float scale = widen(at<half>(block));
        *out.scale = scale;
        *out.offset = -8.0f * scale;
        split_halves(block + 2, out.words);
    }
};

struct BlockQ4_1 {
    static constexpr int bytes = 20, groups = 1;
    INLINE void read(const uint8_t* block, int, const Column& out) {
        *out.scale = widen(at<half>(block));
        *out.offset = widen(at<half>(block + 2));
        split_halves(block + 4, out.words);
    }
};

struct BlockQ8_0 {
    static constexpr int bytes = 34, groups = 1;
    INLINE void read(const uint8_t* block, int, const Column& out) {
        *out.scale = widen(at<half>(block));
        std::memcpy(out.words, block + 2, GROUP);
    }
};

// Eight groups share a scale and an offset, times 6 bits each: those of groups 0 to 3 in the low six bits of bytes 4 to
// 11, of 4 to 7 in the halves of bytes 12 to 15 and the upper two bits of bytes 4 to 11. Groups 2n and 2n + 1 are the
// low and high halves of 32 bytes.
struct BlockQ4_K {
    static constexpr int bytes = 144, groups = 8;
    INLINE void read(const uint8_t* block, int group, const Column& out) {
        const uint8_t *scales = block + 4 + group % 4, *offsets = scales + 4, *others = scales + 8;
        bool low = group < 4;
        int scale = low ? *scales & 63 : (*others & 15) | (*scales >> 6 << 4);
        int offset = low ? *offsets & 63 : (*others >> 4) | (*offsets >> 6 << 4);
        *out.scale = (float)scale * widen(at<half>(block));
        *out.offset = -((float)offset * widen(at<half>(block + 2)));
        const uint8_t* values = block + 16 + group / 2 * 32;
        Bytes first = at<Bytes>(values), second = at<Bytes>(values + 16);
        if (group % 2)
            store_words(first >> 4, second >> 4, out.words);
        else
            store_words(first & 15, second & 15, out.words);
    }
};
