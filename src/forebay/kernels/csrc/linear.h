// Matrix products over panels of plain numbers: tiles, the end of a row, and how the work is cut for the threads. Which
// panels there are is the caller's: packed weights (gemm.cpp) or widened ones (quantised.cpp).
//
// Panels hold fp32 or pairs of bf16. With pairs, x is fp32 too, and the pairs are widened (T is bf16), or x has pairs in
// the place of its numbers, and they are multiplied as such (T is bf16_pair).
#pragma once

#include <unistd.h>

#include <algorithm>

#include "multiply.h"
#include "share.h"

template <class T>
struct Linear {
    typedef std::conditional_t<std::is_same_v<T, float>, float, bf16_pair> Value;

    const float* x;
    const Value* panels;
    const float* bias;
    const float* residual;
    float* out;
    int64_t rows, outputs, inputs;  // inputs: of x's numbers, whatever they hold
    int64_t few = 0;    // quantised: up to so many rows weights become fp32 in registers
    int64_t first = 0;  // the panel of the matrix that `panels` begins with

    int64_t panel_size() const { return (std::is_same_v<T, bf16> ? (inputs + 1) / 2 : inputs) * PANEL; }
    const Value* panel(int64_t index) const { return panels + (index - first) * panel_size(); }
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

// What a tile asks the memory for meanwhile: its part of each of the panels that come `distance` later. No parts: nothing.
struct Ahead {
    int64_t distance, part, parts;
};

// As `multiply`, of some words of the rows and panels: a word is a number of fp32 or a pair.
template <int MR, int NP, class T>
INLINE void multiply_words(
    Tile<MR, NP>& tile, const Linear<T>& job, int64_t row, int64_t panel, int64_t word, int64_t words
) {
    const float* x = job.x + row * job.inputs;
    auto* from = job.panel(panel) + word * PANEL;
    if constexpr (std::is_same_v<T, bf16>) {
        int64_t inputs = std::min(2 * words, job.inputs - 2 * word);
        multiply_widened(tile, x + 2 * word, job.inputs, from, job.panel_size(), inputs);
    } else
        multiply(tile, x + word, job.inputs, from, job.panel_size(), PANEL, words);
}

template <int MR, int NP, class T>
INLINE void tile_at(const Linear<T>& job, int64_t row, int64_t panel, const Ahead& ahead) {
    constexpr int64_t STEP = 8, LINE = 64;  // words between two looks ahead, bytes
    Tile<MR, NP> tile = {};
    int64_t words = job.panel_size() / PANEL, bytes = job.panel_size() * 4, lines = 0;
    const char* next = nullptr;
    if (ahead.parts > 0) {
        next = (const char*)job.panel(panel + ahead.distance) + bytes / ahead.parts * ahead.part;
        lines = (STEP * PANEL * 4 / LINE + ahead.parts - 1) / ahead.parts;
    }
    for (int64_t word = 0; word < words; word += STEP) {
        for (int64_t line = 0; line < lines; line++, next += LINE)
            for (int p = 0; p < NP; p++) __builtin_prefetch(next + p * bytes, 0, 2);
        if (word + STEP <= words)  // a constant number of them is faster
            multiply_words(tile, job, row, panel, word, STEP);
        else
            multiply_words(tile, job, row, panel, word, words - word);
    }
    finish_tile(job, row, panel, tile);
}

template <int MR, class T>
void rows_at(const Linear<T>& job, int64_t row, int64_t panel, int64_t end, const Ahead& ahead) {
    constexpr int NP = panels_beside(MR);
    for (; panel + NP <= end; panel += NP) tile_at<MR, NP>(job, row, panel, ahead);
    for (; panel < end; panel++) tile_at<MR, 1>(job, row, panel, ahead);
}

template <class T, int MR = ROWS>
INLINE void rows_of(
    int64_t count, const Linear<T>& job, int64_t row, int64_t panel, int64_t end, const Ahead& ahead
) {
    if (count == MR) return rows_at<MR>(job, row, panel, end, ahead);
    if constexpr (MR > 1) rows_of<T, MR - 1>(count, job, row, panel, end, ahead);
}

// How many rows a register tile should take when `rows` are left: as even as can be, but no tile that has too few
// chains of additions to hide their latency (four rows where 16 registers allow no second panel) if one row more
// avoids it.
INLINE int64_t next_rows(int64_t rows) {
    auto starved = [](int64_t count) { return count > 1 && 2 * count * panels_beside((int)count) < ENOUGH_CHAINS; };
    if (rows <= ROWS) return rows;
    int64_t tiles = (rows + ROWS - 1) / ROWS, even = (rows + tiles - 1) / tiles;
    return even < ROWS && (starved(even) || starved(rows - even)) ? even + 1 : even;
}

// The panels that pass under all rows at a time.
INLINE int64_t panel_steps(int64_t rows) {
    int64_t step = 1;
    for (int64_t left = rows, count; left > 0; left -= count) {
        count = next_rows(left);
        step = std::max<int64_t>(step, panels_beside((int)count));
    }
    return step;
}

// Rows [row, row_end) times panels [first, last). FRESH: the panels come from memory and not from a cache, so all tiles
// together ask for as many that follow. One and two rows only stream them, which the processor's own prefetching does
// better; more rows compute long enough for its streams to break off.
template <bool FRESH, class T>
void pass_under(const Linear<T>& job, int64_t row, int64_t row_end, int64_t first, int64_t last) {
    Ahead ahead = {last - first, 0, 0};
    if (FRESH && row_end - row > 2)
        for (int64_t left = row_end - row; left > 0; left -= next_rows(left)) ahead.parts++;
    for (int64_t count; row < row_end; row += count, ahead.part++) {
        count = next_rows(row_end - row);
        rows_of(count, job, row, first, last, ahead);
    }
}

// Cut a product into blocks, `work(row, row_end, panel, panel_end)` each: whole steps of `grain` panels. A block of x
// takes about `cache` bytes.
template <class Work>
void spread(
    int64_t rows, int64_t outputs, int64_t inputs, int64_t cache, int64_t grain, int threads, const Work& work
) {
    // Below so many multiply-adds starting threads costs more than it saves.
    if (rows * outputs * inputs < 1 << 17) threads = 1;
    int64_t panels = (outputs + PANEL - 1) / PANEL;
    int64_t fit = std::max<int64_t>(cache / (inputs * 4) / ROWS, 2) * ROWS;
    int64_t row_blocks = (rows + fit - 1) / fit;
    int64_t row_step = (rows + row_blocks - 1) / row_blocks;
    row_step = row_blocks > 1 ? (row_step + ROWS - 1) / ROWS * ROWS : row_step;
    row_blocks = (rows + row_step - 1) / row_step;
    // Eight tasks a thread or more, so that a thread that is held up, or has one task more than the other, costs little.
    int64_t wanted = std::max<int64_t>(1, threads * 8 / row_blocks);
    int64_t panel_step = std::max(grain, panels / wanted / grain * grain);
    int64_t panel_blocks = (panels + panel_step - 1) / panel_step;
    share(row_blocks * panel_blocks, threads, [&](int64_t task) {
        int64_t row = task / panel_blocks * row_step, panel = task % panel_blocks * panel_step;
        work(row, std::min(row + row_step, rows), panel, std::min(panel + panel_step, panels));
    });
}

// Half of the second-level cache: bytes of rows that stay in it while panels pass by.
inline int64_t room_for_rows() {
    static const int64_t bytes = std::max<int64_t>(256 << 10, sysconf(_SC_LEVEL2_CACHE_SIZE) / 2);
    return bytes;
}

template <class T>
void all_rows(const Linear<T>& job, int threads) {
    auto work = [&](int64_t row, int64_t row_end, int64_t panel, int64_t end) {
        int64_t step = panel_steps(row_end - row);
        for (; panel < end; panel += step) pass_under<true>(job, row, row_end, panel, std::min(panel + step, end));
    };
    spread(job.rows, job.outputs, job.inputs, room_for_rows(), panel_steps(job.rows), threads, work);
}

// Calls `round(row)` for each row of x.
template <class T, class Round>
void round_all(const Linear<T>& job, int threads, const Round& round) {
    // So few are done before the other threads are awake.
    share(job.rows, job.rows * job.inputs < 1 << 15 ? 1 : threads, round);
}

// Some rows at a time, which bounds the memory that `work` takes for rounded ones.
template <class T, class Work>
void by_rows(const Linear<T>& job, const Work& work) {
    constexpr int64_t most = 512;
    for (int64_t row = 0; row < job.rows; row += most) {
        Linear<T> part = job;
        part.x += row * job.inputs;
        part.out += row * job.outputs;
        if (job.residual) part.residual += row * job.outputs;
        part.rows = std::min(most, job.rows - row);
        work(part);
    }
}
