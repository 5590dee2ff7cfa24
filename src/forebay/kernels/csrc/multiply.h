// The one inner loop of matrix products: a few rows of fp32 times panels of 2W columns, accumulated in registers.
//
// Every sum over k is one chain of multiply-adds in the order of k, whatever the number of rows or panels: vectors lie
// across columns, never across k. So a row's result is the same bits in any batch.
#pragma once

#include "simd.h"

constexpr int PANEL = 2 * W;     // columns of a panel
constexpr int ROWS = ACCUMULATORS / 2;  // most rows of a register tile

// Panels that fit into the registers beside `rows` rows: enough chains to hide the latency of a multiply-add.
constexpr int panels_beside(int rows) {
    int panels = ACCUMULATORS / (2 * rows);
    return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

template <int MR, int NP>
struct Tile {
    vf sum[MR][NP][2];
};

// tile += a[MR, k] · b[k, NP panels]. `a` has rows `a_row` apart; b's panels lie `b_panel` apart, their rows `b_row` apart.
template <int MR, int NP, class T>
INLINE void multiply(
    Tile<MR, NP>& tile, const float* a, int64_t a_row, const T* b, int64_t b_panel, int64_t b_row, int64_t k
) {
#pragma GCC unroll 2
    for (int64_t i = 0; i < k; i++) {
        vf column[NP][2];
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++) load_pair(b + p * b_panel + i * b_row, column[p][0], column[p][1]);
#pragma GCC unroll 12
        for (int m = 0; m < MR; m++) {
            vf x = splat(a[m * a_row + i]);
#pragma GCC unroll 4
            for (int p = 0; p < NP; p++) {
                tile.sum[m][p][0] += x * column[p][0];
                tile.sum[m][p][1] += x * column[p][1];
            }
        }
    }
}
