// How quantised weights lie in memory and become fp32. The products are in quantised.cpp.
//
// Packed: panels [ceil(N / PANEL)][K / 32] of blocks. A block: the scales of PANEL columns (4 bits: then the offsets),
// then words [32 / n][2][W] of 32 bits, each of n consecutive inputs of one column, the first in the lowest bits.
#pragma once

#include "multiply.h"
#include "quantised.h"

constexpr int GROUP = 32;  // inputs that share a scale

struct half {
    uint16_t bits;
};

INLINE vf load_scales(const float* p) { return load(p); }
#if defined(FOREBAY_AVX512)
INLINE vf load_scales(const half* p) { return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
#elif defined(FOREBAY_AVX2) && defined(__F16C__)
INLINE vf load_scales(const half* p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
#elif defined(FOREBAY_NEON)
INLINE vf load_scales(const half* p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits))); }
#else
// Shifted into place, an fp16 is an fp32 with an exponent too small by 112; this holds for subnormal ones too.
INLINE vf load_scales(const half* p) {
    vh halves;
    std::memcpy(&halves, p, sizeof halves);
    vu bits = __builtin_convertvector(halves, vu);
    vf magnitude = (vf)((bits & 0x7fffu) << 13) * splat(0x1p112f);
    return (vf)((vu)magnitude | (bits & 0x8000u) << 16);
}
#endif

template <int BITS, class S>
struct Quantised {
    typedef S Scale;
    static constexpr int bits = BITS;
    static constexpr bool has_offset = BITS == 4;
    static constexpr int in_word = 32 / BITS;          // inputs of a word
    static constexpr int words = GROUP / in_word;      // of a column in a block
    static constexpr int64_t values_at = (has_offset ? 2 : 1) * PANEL * sizeof(S);
    static constexpr int64_t block_bytes = values_at + words * PANEL * 4;
};

template <class Q>
INLINE vu word(const char* block, int index, int half) {
    vu words;
    std::memcpy(&words, block + Q::values_at + (index * 2 + half) * W * 4, sizeof words);
    return words;
}

// The scales and offsets of W columns of a block. Values are not shifted to a word's right end but masked where they
// stand, which makes them a power of two too large; `scale` has as much less, exactly.
template <class Q>
struct Columns {
    vf scale[Q::bits == 4 ? 2 : 1];  // 4 bits: of the lower value of a byte, then of the higher
    vf offset;

    INLINE Columns of(const char* block, int half) {
        auto* numbers = (const typename Q::Scale*)block + half * W;
        vf scale = load_scales(numbers);
        if constexpr (Q::bits == 4) return {{scale, scale * splat(0x1p-4f)}, load_scales(numbers + PANEL)};
        return {{scale * splat(0x1p-24f)}, vf{}};
    }

    // The weights of input `i` of a word; inputs are asked for in order, since `words` moves on.
    INLINE vf weights(vu& words, int i, const Columns& columns) {
        if constexpr (Q::bits == 4) {
            if (i > 0 && i % 2 == 0) words >>= 8;
            vi values = (vi)(words & (i % 2 ? 0xf0u : 0x0fu));
            return __builtin_convertvector(values, vf) * columns.scale[i % 2] + columns.offset;
        }
        vi values = (vi)(words << (24 - 8 * i) & 0xff000000u);
        return __builtin_convertvector(values, vf) * columns.scale[0];
    }
};

// Ask for a block. The processor's own prefetching ends at every page of 4 KiB, and a panel of 576 inputs has one and a
// half.
template <class Q>
INLINE void prefetch_block(const char* block) {
#pragma GCC unroll 16
    for (int64_t at = 0; at < Q::block_bytes; at += 64) __builtin_prefetch(block + at, 0, 2);
}

template <class Q>
struct Panels {
    const char* blocks;
    int64_t groups;

    int64_t bytes() const { return groups * Q::block_bytes; }
    const char* panel(int64_t index) const { return blocks + index * bytes(); }
};

// Calls `work` with the type that `format` means.
template <class Work>
INLINE void with_format(int format, const Work& work) {
    if (format == INT4_FP16)
        work(Quantised<4, half>());
    else if (format == INT4_FP32)
        work(Quantised<4, float>());
    else
        work(Quantised<8, half>());
}
