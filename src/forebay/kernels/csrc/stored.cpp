// From the rows of a model file, as it stores them, to panels: no copy in between, each block read once. What panels of
// a format are is said in gemm.cpp and quantised_blocks.h.
//
// A call packs some rows below each other into some columns of the panels, on the caller's thread; calls for different
// panels may run at the same time. Reads the given rows and nothing else.
#include <algorithm>
#include <type_traits>

#include "quantised.h"
#include "stored_blocks.h"

namespace {

// Where rows go: `count` of them, the first into column `first` of the matrix.
struct Rows {
    const uint8_t* const* rows;
    int64_t first, count, inputs;

    int64_t end() const { return first + count; }
};

// Calls `work(panel, column, column_end, row)` for each panel that the rows reach, `row` pointing to that of `column`.
template <class Work>
INLINE void for_panels(const Rows& from, const Work& work) {
    for (int64_t column = from.first; column < from.end();) {
        int64_t panel = column / PANEL, end = std::min((panel + 1) * PANEL, from.end());
        work(panel, (int)(column % PANEL), (int)(end - panel * PANEL), from.rows + (column - from.first));
        column = end;
    }
}

// Columns [column, end) of a block; those after them become 0. Returns other than 0 where fp16 would lose some of a
// scale or offset of 4 bits; the scales of 8 bits are fp16 anyway.
template <class K, class Q>
INLINE uint32_t pack_block(const uint8_t* const* rows, int64_t offset, int group, char* block, int column, int end) {
    auto* numbers = (typename Q::Scale*)block;
    auto* words = (uint32_t*)(block + Q::values_at);
    float scales[PANEL] = {}, offsets[PANEL] = {};
    uint32_t of_columns[PANEL][Q::words] = {};
    for (int c = column; c < end; c++)
        K::read(rows[c - column] + offset, group, {scales + c, offsets + c, of_columns[c]});
    uint32_t lost = 0;
    for (int c = column; c < PANEL; c++) narrow(scales[c], numbers + c, lost);
    if (Q::has_offset)
        for (int c = column; c < PANEL; c++) narrow(offsets[c], numbers + PANEL + c, lost);
    for (int w = 0; w < Q::words; w++)
        for (int c = column; c < PANEL; c++) words[w * PANEL + c] = of_columns[c][w];
    return Q::has_offset ? lost : 0;
}

// Returns whether fp16 loses nothing; stops after a panel of fp16 that has lost something.
template <class K, class Q>
bool pack_quantised(const Rows& from, char* out) {
    int64_t groups = from.inputs / GROUP;
    uint32_t lost = 0;
    for_panels(from, [&](int64_t panel, int column, int end, const uint8_t* const* rows) {
        if (lost && sizeof(typename Q::Scale) == sizeof(half)) return;
        char* block = out + panel * groups * Q::block_bytes;
        for (int64_t g = 0; g < groups; g += K::groups)
            for (int i = 0; i < K::groups; i++, block += Q::block_bytes) {
                int64_t offset = g / K::groups * K::bytes;
                lost |= column == 0 && end == PANEL ? pack_block<K, Q>(rows, offset, i, block, 0, PANEL)
                                                    : pack_block<K, Q>(rows, offset, i, block, column, end);
            }
    });
    return !lost;
}

INLINE void convert(float x, float* out) { *out = x; }
INLINE void convert(float x, bf16* out) { narrow(x, out); }
INLINE void convert(half x, float* out) { *out = widen(x); }
INLINE void convert(half x, bf16* out) { narrow(widen(x), out); }
INLINE void convert(bf16 x, float* out) { *out = widen(x); }
INLINE void convert(bf16 x, bf16* out) { *out = x; }  // even NaN

constexpr int STEP = 32;  // inputs that are packed of all columns before the next: a cache line of bf16

// One step of turning W vectors of W numbers: squares of S numbers change places across the diagonal of squares of 2S.
template <int S>
INLINE void exchange(vu* rows) {
    vi upper, lower;
    for (int i = 0; i < W; i++) {
        upper[i] = i & S ? W + i - S : i;
        lower[i] = i & S ? W + i : i + S;
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; i++)
        if (!(i & S)) {
            vu first = rows[i], second = rows[i + S];
            rows[i] = __builtin_shuffle(first, second, upper);
            rows[i + S] = __builtin_shuffle(first, second, lower);
        }
}

// numbers[j][i] becomes numbers[i][j].
INLINE void turn(vu* numbers) {
    exchange<1>(numbers);
    exchange<2>(numbers);
    if constexpr (W > 4) exchange<4>(numbers);
    if constexpr (W > 8) exchange<8>(numbers);
}

// Columns' inputs as the words of 32 bits that panels are made of, and how many words STEP inputs are.
template <class T>
constexpr int WORDS = STEP * sizeof(T) / 4;
static_assert(WORDS<bf16> % W == 0, "whole tiles");

// Words [word, word + W) of a whole panel.
template <class T>
INLINE void store_tile(const T (&values)[PANEL][STEP], int word, char* to) {
    for (int h = 0; h < 2; h++) {
        vu tile[W];
        for (int j = 0; j < W; j++) std::memcpy(tile + j, (const char*)values[h * W + j] + word * 4, sizeof *tile);
        turn(tile);
        for (int k = 0; k < W; k++) std::memcpy(to + ((word + k) * PANEL + h * W) * 4, tile + k, sizeof *tile);
    }
}

template <class S, class T>
INLINE void load_some(const uint8_t* row, int count, T* values) {
    for (int i = 0; i < count; i++) convert(at<S>(row + i * sizeof(S)), values + i);
}

// STEP numbers of fp16.
INLINE void widen_step(const uint8_t* row, float* wide) {
#if defined(FOREBAY_AVX512) || defined(FOREBAY_NEON) || (defined(FOREBAY_AVX2) && defined(__F16C__))
    for (int i = 0; i < STEP; i += W) store(wide + i, load_scales((const half*)row + i));
#else
    for (int i = 0; i < STEP; i++) wide[i] = widen(at<half>(row + i * sizeof(half)));
#endif
}

template <class S, class T>
INLINE void load_step(const uint8_t* row, T* values) {
    if constexpr (std::is_same_v<S, half>) {
        float wide[STEP];
        widen_step(row, wide);
        for (int i = 0; i < STEP; i++) convert(wide[i], values + i);
    } else {
        load_some<S>(row, STEP, values);
    }
}

// The first words of the columns from `column` on.
template <class T>
INLINE void store_some(const T (&values)[PANEL][STEP], int column, int words, char* to) {
    for (int word = 0; word < words; word++)
        for (int c = column; c < PANEL; c++)
            std::memcpy(to + (word * PANEL + c) * 4, (const char*)values[c] + word * 4, 4);
}

// Rows of S into panels of T.
template <class S, class T>
void pack_plain(const Rows& from, T* out) {
    constexpr int in_word = STEP / WORDS<T>;
    int64_t words = (from.inputs + in_word - 1) / in_word;
    for_panels(from, [&](int64_t panel, int column, int end, const uint8_t* const* rows) {
        T values[PANEL][STEP] = {};
        for (int64_t k = 0; k < from.inputs; k += STEP) {
            int count = (int)std::min<int64_t>(STEP, from.inputs - k);
            char* to = (char*)out + (panel * words + k / in_word) * PANEL * 4;
            for (int c = column; c < end; c++) {
                const uint8_t* row = rows[c - column] + k * sizeof(S);
                if (count == STEP)
                    load_step<S>(row, values[c]);
                else
                    load_some<S>(row, count, values[c]);
                for (int i = count; i < STEP; i++) values[c][i] = T{};
            }
            if (column > 0 || count < STEP)
                store_some(values, column, (count + in_word - 1) / in_word, to);
            else
                for (int word = 0; word < WORDS<T>; word += W) store_tile(values, word, to);
        }
    });
}

template <class T>
bool pack_plain_from(int stored, const Rows& from, T* out) {
    if (stored == F32)
        pack_plain<float>(from, out);
    else if (stored == F16)
        pack_plain<half>(from, out);
    else
        pack_plain<bf16>(from, out);
    return true;
}

template <class Q>
bool pack_4_bits(int stored, const Rows& from, char* out) {
    if (stored == Q4_0) return pack_quantised<BlockQ4_0, Q>(from, out);
    if (stored == Q4_1) return pack_quantised<BlockQ4_1, Q>(from, out);
    return pack_quantised<BlockQ4_K, Q>(from, out);
}

}  // namespace

// Rows of the type `stored` into columns [first, first + count) of panels of a `format` that suits it; columns after
// them in their last panel become 0. Returns whether scales and offsets of 4 bits are exact as fp16. Where they are
// not, but `format` has them so, the panels are of no use.
extern "C" int forebay_pack_stored(
    const uint8_t* const* rows, int stored, void* panels, int64_t first, int64_t count, int64_t inputs, int format
) {
    Rows from{rows, first, count, inputs};
    if (format == BF16) return pack_plain_from(stored, from, (bf16*)panels);
    if (format == FP32) return pack_plain_from(stored, from, (float*)panels);
    if (format == INT4_FP16) return pack_4_bits<Quantised<4, half>>(stored, from, (char*)panels);
    if (format == INT4_FP32) return pack_4_bits<Quantised<4, float>>(stored, from, (char*)panels);
    return pack_quantised<BlockQ8_0, Quantised<8, half>>(from, (char*)panels);
}
