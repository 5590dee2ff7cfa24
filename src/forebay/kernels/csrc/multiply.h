// The one inner loop of matrix products: a few rows of fp32 times panels of 2W columns, accumulated in registers.
//
// Every sum over k is one chain of multiply-adds in the order of k, whatever the number of rows or panels: vectors lie
// across columns, never across k. So a row's result is the same bits in any batch.
#pragma once

#include <type_traits>

#include "pairs.h"

constexpr int PANEL = 2 * W;            // columns of a panel
constexpr int ROWS = ACCUMULATORS / 2;  // most rows of a register tile

constexpr int ENOUGH_CHAINS = 10;       // of additions: two start a cycle and take four, with a little slack

// Panels that fit into the registers beside `rows` rows: enough chains to hide the latency of a multiply-add.
constexpr int panels_beside(int rows) {
    int panels = ACCUMULATORS / (2 * rows);
    return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

template <int MR, int NP>
struct Tile {
    vf sum[MR][NP][2];
};

// Makes the compiler load what `p` points to again. It would keep a value for every row in a register across the
// panels, and then have too few for the sums.
INLINE void forget(const float*& p) { asm("" : "+r"(p)); }

// What a lane of `a` and one of b's type multiply to, added to `sum`.
template <class T>
INLINE vf add_product(vf sum, vf a, vf b) {
    if constexpr (std::is_same_v<T, bf16_pair>) return multiply_add_pairs(sum, a, b);
    return multiply_add(sum, a, b);
}

// Panel p of the tile += one number of each row, the first at `row`, times a row of that panel.
template <class T, int MR, int NP>
INLINE void add_columns(Tile<MR, NP>& tile, int p, const float* row, int64_t stride, vf first, vf second) {
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++) {
        vf x = splat(row[m * stride]);
        tile.sum[m][p][0] = add_product<T>(tile.sum[m][p][0], x, first);
        tile.sum[m][p][1] = add_product<T>(tile.sum[m][p][1], x, second);
    }
}

// tile += a[MR, k] · b[k, NP panels]; where b's are pairs, so are a's, and k counts them. Rows of `a` lie `a_row` apart,
// panels of b `b_panel`, their rows `b_row`.
template <int MR, int NP, class T>
INLINE void multiply(
    Tile<MR, NP>& tile, const float* a, int64_t a_row, const T* b, int64_t b_panel, int64_t b_row, int64_t k
) {
#pragma GCC unroll 2
    for (int64_t i = 0; i < k; i++) {
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++) {
            vf first, second;
            const float* row = a + i;
            if (p > 0) forget(row);
            load_pair(b + p * b_panel + i * b_row, first, second);
            add_columns<T>(tile, p, row, a_row, first, second);
        }
    }
}

// tile += one value of each row of `a` times the even ones of a row of b's pairs, or the ODD ones, widened.
template <int ODD, int MR, int NP>
INLINE void multiply_half(Tile<MR, NP>& tile, const float* a, int64_t a_row, const bf16_pair* b, int64_t b_panel) {
#pragma GCC unroll 4
    for (int p = 0; p < NP; p++) {
        const float *row = a, *pairs = (const float*)(b + p * b_panel);
        if (p > 0) forget(row);
        if (ODD) forget(pairs);  // loaded again, for keeping them takes registers from the sums
        vf columns[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            vu number = (vu)load(pairs + h * W);
            if (ODD) number >>= 16;
#if defined(FOREBAY_AVX2)
            asm("" : "+x"(number));  // not masked instead of shifted: of 16 registers none is left for a mask
#endif
            columns[h] = (vf)(number << 16);
        }
        add_columns<bf16>(tile, p, row, a_row, columns[0], columns[1]);
    }
}

// tile += a[MR, k] · b[k, NP panels] as `multiply` does it, but a's values are single ones, and b's pairs are widened.
template <int MR, int NP>
INLINE void multiply_widened(
    Tile<MR, NP>& tile, const float* a, int64_t a_row, const bf16_pair* b, int64_t b_panel, int64_t k
) {
    for (; k > 1; k -= 2, a += 2, b += PANEL) {
        multiply_half<0>(tile, a, a_row, b, b_panel);
        multiply_half<1>(tile, a + 1, a_row, b, b_panel);
    }
    if (k > 0) multiply_half<0>(tile, a, a_row, b, b_panel);
}
