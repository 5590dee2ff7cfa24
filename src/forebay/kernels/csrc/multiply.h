// The one inner loop of matrix products: a few rows of fp32 times panels of 2W columns, accumulated in registers.
//
// Every sum over k is one chain of multiply-adds in the order of k, whatever the number of rows or panels: vectors lie
// across columns, never across k. So a row's result is the same bits in any batch.
#pragma once

#include "simd.h"

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

// tile += a[MR, k] · b[k, NP panels]. Rows of `a` lie `a_row` apart, panels of b `b_panel`, their rows `b_row`. With
// AHEAD the NP panels after these are asked for meanwhile.
template <bool AHEAD, int MR, int NP, class T>
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
            if constexpr (AHEAD) __builtin_prefetch(b + (NP + p) * b_panel + i * b_row, 0, 2);
#pragma GCC unroll 12
            for (int m = 0; m < MR; m++) {
                vf x = splat(row[m * a_row]);
                tile.sum[m][p][0] = multiply_add(tile.sum[m][p][0], x, first);
                tile.sum[m][p][1] = multiply_add(tile.sum[m][p][1], x, second);
            }
        }
    }
}
