// Matrix products over panels of plain numbers: tiles, the end of a row, and how the work is cut for the threads. Which
// panels there are is the caller's: packed weights (gemm.cpp) or widened ones (quantised.cpp).
#pragma once

#include <algorithm>

#include "multiply.h"

template <class T>
struct Linear {
    const float* x;
    const T* panels;
    const float* bias;
    const float* residual;
    float* out;
    int64_t rows, outputs, inputs;
    int64_t first = 0;  // the panel of the matrix that `panels` begins with

    const T* panel(int64_t index) const { return panels + (index - first) * inputs * PANEL; }
};

// One row of one panel: add bias and residual, keep within N.
template <class T>
ONCE void finish(const Linear<T>& job, int64_t row, int64_t column, vf first, vf second) {
    float* out = job.out + row * job.outputs + column;
    const float* bias = job.bias ? job.bias + column : nullptr;
    const float* residual = job.residual ? job.residual + row * job.outputs + column : nullptr;
    if (column + PANEL <= job.outputs) {
        if (bias) first += load(bias), second += load(bias + W);
        if (residual) first += load(residual), second += load(residual + W);
        store(out, first);
        store(out + W, second);
        return;
    }
    float values[PANEL];
    store(values, first);
    store(values + W, second);
    for (int64_t i = 0; i < job.outputs - column; i++) {
        float value = values[i];
        if (bias) value += bias[i];
        if (residual) value += residual[i];
        out[i] = value;
    }
}

template <int MR, int NP, class T>
INLINE void finish_tile(const Linear<T>& job, int64_t row, int64_t panel, const Tile<MR, NP>& tile) {
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++)
            finish(job, row + m, (panel + p) * PANEL, tile.sum[m][p][0], tile.sum[m][p][1]);
}

template <int MR, int NP, class T>
INLINE void tile_at(const Linear<T>& job, int64_t row, int64_t panel) {
    Tile<MR, NP> tile = {};
    int64_t panel_size = job.inputs * PANEL;
    multiply(tile, job.x + row * job.inputs, job.inputs, job.panel(panel), panel_size, PANEL, job.inputs);
    finish_tile(job, row, panel, tile);
}

template <int MR, class T>
void rows_at(const Linear<T>& job, int64_t row, int64_t panel, int64_t end) {
    constexpr int NP = panels_beside(MR);
    for (; panel + NP <= end; panel += NP) tile_at<MR, NP>(job, row, panel);
    for (; panel < end; panel++) tile_at<MR, 1>(job, row, panel);
}

template <class T, int MR = ROWS>
INLINE void rows_of(int count, const Linear<T>& job, int64_t row, int64_t panel, int64_t end) {
    if (count == MR) return rows_at<MR>(job, row, panel, end);
    if constexpr (MR > 1) rows_of<T, MR - 1>(count, job, row, panel, end);
}

// Groups of at most ROWS rows, and the panels that pass under all of them at a time.
INLINE int64_t row_groups(int64_t rows) { return (rows + ROWS - 1) / ROWS; }
INLINE int64_t panel_steps(int64_t rows) {
    int64_t groups = row_groups(rows);
    return panels_beside((int)((rows + groups - 1) / groups));
}

// Rows [row, row_end) times panels [first, last).
template <class T>
void pass_under(const Linear<T>& job, int64_t row, int64_t row_end, int64_t first, int64_t last) {
    int64_t rows = row_end - row, groups = row_groups(rows);
    for (int64_t group = 0; group < groups; group++) {
        int64_t begin = row + rows * group / groups, end = row + rows * (group + 1) / groups;
        rows_of<T>((int)(end - begin), job, begin, first, last);
    }
}

// Cut a product into blocks, `work(row, row_end, panel, panel_end)` each. A block of x takes about `cache` bytes.
template <class Work>
void spread(int64_t rows, int64_t outputs, int64_t inputs, int64_t cache, int threads, const Work& work) {
    // Below so many multiply-adds starting threads costs more than it saves.
    if (rows * outputs * inputs < 1 << 17) threads = 1;
    int64_t panels = (outputs + PANEL - 1) / PANEL;
    int64_t fit = std::max<int64_t>(cache / (inputs * 4) / ROWS, 2) * ROWS;
    int64_t row_blocks = (rows + fit - 1) / fit;
    int64_t row_step = (rows + row_blocks - 1) / row_blocks;
    row_step = row_blocks > 1 ? (row_step + ROWS - 1) / ROWS * ROWS : row_step;
    row_blocks = (rows + row_step - 1) / row_step;
    // About eight tasks a thread, so that a thread that is held up costs little; whole steps of four panels.
    int64_t wanted = std::max<int64_t>(1, threads * 8 / row_blocks);
    int64_t panel_step = std::max<int64_t>(4, (panels / wanted + 3) / 4 * 4);
    int64_t panel_blocks = (panels + panel_step - 1) / panel_step;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t task = 0; task < row_blocks * panel_blocks; task++) {
        int64_t row = task / panel_blocks * row_step, panel = task % panel_blocks * panel_step;
        work(row, std::min(row + row_step, rows), panel, std::min(panel + panel_step, panels));
    }
}
