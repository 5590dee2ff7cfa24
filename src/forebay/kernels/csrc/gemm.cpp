// Linear layers and embedding over packed weights. Attention and row operations are elsewhere.
//
// Packed: panels [ceil(N / PANEL)][K][PANEL], zero-padded, each row of a panel ordered so that `load_pair` yields the
// columns in order. Few rows: the panels are streamed from memory once for all rows. Many rows: a block of rows stays
// in the second-level cache while the panels pass by.
#include <algorithm>

#include "multiply.h"

namespace {

template <class T>
struct Linear {
    const float* x;
    const T* panels;
    const float* bias;
    const float* residual;
    float* out;
    int64_t rows, outputs, inputs;

    const T* panel(int64_t index) const { return panels + index * inputs * PANEL; }
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
INLINE void tile_at(const Linear<T>& job, int64_t row, int64_t panel) {
    Tile<MR, NP> tile = {};
    int64_t panel_size = job.inputs * PANEL;
    multiply(tile, job.x + row * job.inputs, job.inputs, job.panel(panel), panel_size, PANEL, job.inputs);
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++)
            finish(job, row + m, (panel + p) * PANEL, tile.sum[m][p][0], tile.sum[m][p][1]);
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

// Rows [row, row_end) times panels [panel, panel_end): `step` panels at a time pass under all row groups.
template <class T>
void block(const Linear<T>& job, int64_t row, int64_t row_end, int64_t panel, int64_t panel_end) {
    int64_t rows = row_end - row, groups = (rows + ROWS - 1) / ROWS;
    int64_t step = panels_beside((int)((rows + groups - 1) / groups));
    for (int64_t first = panel; first < panel_end; first += step) {
        int64_t last = std::min(first + step, panel_end);
        for (int64_t group = 0; group < groups; group++) {
            int64_t begin = row + rows * group / groups, end = row + rows * (group + 1) / groups;
            rows_of<T>((int)(end - begin), job, begin, first, last);
        }
    }
}

template <class T>
void linear(const Linear<T>& job, int threads) {
    // Below so many multiply-adds starting threads costs more than it saves.
    if (job.rows * job.outputs * job.inputs < 1 << 17) threads = 1;
    constexpr int64_t CACHE = 256 << 10;  // bytes of x kept in the second-level cache
    int64_t panels = (job.outputs + PANEL - 1) / PANEL;
    int64_t fit = std::max<int64_t>(CACHE / (job.inputs * 4) / ROWS, 2) * ROWS;
    int64_t row_blocks = (job.rows + fit - 1) / fit;
    int64_t row_step = (job.rows + row_blocks - 1) / row_blocks;
    row_step = row_blocks > 1 ? (row_step + ROWS - 1) / ROWS * ROWS : row_step;
    row_blocks = (job.rows + row_step - 1) / row_step;
    // About eight tasks a thread, so that a thread that is held up costs little; whole steps of four panels.
    int64_t wanted = std::max<int64_t>(1, threads * 8 / row_blocks);
    int64_t panel_step = std::max<int64_t>(4, (panels / wanted + 3) / 4 * 4);
    int64_t panel_blocks = (panels + panel_step - 1) / panel_step;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t task = 0; task < row_blocks * panel_blocks; task++) {
        int64_t row = task / panel_blocks * row_step, panel = task % panel_blocks * panel_step;
        block(job, row, std::min(row + row_step, job.rows), panel, std::min(panel + panel_step, panels));
    }
}

template <class T>
void pack(const T* weight, T* out, int64_t outputs, int64_t inputs) {
#pragma omp parallel for schedule(static)
    for (int64_t panel = 0; panel < (outputs + PANEL - 1) / PANEL; panel++)
        for (int64_t k = 0; k < inputs; k++)
            for (int i = 0; i < PANEL; i++) {
                // The value at storage index i is loaded into place pair_place(i), which is its column.
                int64_t column = panel * PANEL + pair_place<T>(i);
                out[(panel * inputs + k) * PANEL + i] = column < outputs ? weight[column * inputs + k] : T{};
            }
}

template <class T>
int64_t embed(const int32_t* ids, const T* panels, float* out, int64_t tokens, int64_t outputs, int64_t inputs) {
    int place[PANEL];
    for (int i = 0; i < PANEL; i++) place[pair_place<T>(i)] = i;
    for (int64_t t = 0; t < tokens; t++)
        if (ids[t] < 0 || ids[t] >= outputs) return t;
#pragma omp parallel for schedule(static) if (tokens >= 16)
    for (int64_t t = 0; t < tokens; t++) {
        const T* column = panels + ids[t] / PANEL * inputs * PANEL + place[ids[t] % PANEL];
        for (int64_t k = 0; k < inputs; k++) out[t * inputs + k] = widen(column[k * PANEL]);
    }
    return -1;
}

}  // namespace

extern "C" {

int64_t forebay_panel() { return PANEL; }

void forebay_linear(
    const float* x, const void* panels, const float* bias, const float* residual, float* out, int64_t rows,
    int64_t outputs, int64_t inputs, int bytes, int threads
) {
    if (bytes == 2)
        linear(Linear<bf16>{x, (const bf16*)panels, bias, residual, out, rows, outputs, inputs}, threads);
    else
        linear(Linear<float>{x, (const float*)panels, bias, residual, out, rows, outputs, inputs}, threads);
}

void forebay_pack(const void* weight, void* out, int64_t outputs, int64_t inputs, int bytes) {
    if (bytes == 2)
        pack((const bf16*)weight, (bf16*)out, outputs, inputs);
    else
        pack((const float*)weight, (float*)out, outputs, inputs);
}

// Index of the first id that is out of range, or -1.
int64_t forebay_embed(
    const int32_t* ids, const void* panels, float* out, int64_t tokens, int64_t outputs, int64_t inputs, int bytes
) {
    if (bytes == 2) return embed(ids, (const bf16*)panels, out, tokens, outputs, inputs);
    return embed(ids, (const float*)panels, out, tokens, outputs, inputs);
}
}
