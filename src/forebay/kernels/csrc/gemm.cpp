// Linear layers and embedding over packed weights of bf16 or fp32. Quantised weights, attention and row operations are
// elsewhere.
//
// Packed: panels [ceil(N / PANEL)][K][PANEL], zero-padded, each row of a panel ordered so that `load_pair` yields the
// columns in order. Few rows: the panels are streamed from memory once for all rows. Many rows: a block of rows stays
// in the second-level cache while the panels pass by.
#include "linear.h"
#include "quantised.h"

namespace {

template <class T>
void linear(const Linear<T>& job, int threads) {
    constexpr int64_t CACHE = 256 << 10;
    auto work = [&](int64_t row, int64_t row_end, int64_t panel, int64_t end) {
        int64_t step = panel_steps(row_end - row);
        for (; panel < end; panel += step) pass_under<true>(job, row, row_end, panel, std::min(panel + step, end));
    };
    spread(job.rows, job.outputs, job.inputs, CACHE, panel_steps(job.rows), threads, work);
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
void embed(const int32_t* ids, const T* panels, float* out, int64_t tokens, int64_t inputs) {
    int place[PANEL];
    for (int i = 0; i < PANEL; i++) place[pair_place<T>(i)] = i;
#pragma omp parallel for schedule(static) if (tokens >= 16)
    for (int64_t t = 0; t < tokens; t++) {
        const T* column = panels + ids[t] / PANEL * inputs * PANEL + place[ids[t] % PANEL];
        for (int64_t k = 0; k < inputs; k++) out[t * inputs + k] = widen(column[k * PANEL]);
    }
}

}  // namespace

extern "C" {

int64_t forebay_panel() { return PANEL; }

void forebay_linear(
    const float* x, const void* panels, const float* bias, const float* residual, float* out, int64_t rows,
    int64_t outputs, int64_t inputs, int format, int few, int threads
) {
    if (format == BF16)
        linear(Linear<bf16>{x, (const bf16*)panels, bias, residual, out, rows, outputs, inputs}, threads);
    else if (format == FP32)
        linear(Linear<float>{x, (const float*)panels, bias, residual, out, rows, outputs, inputs}, threads);
    else {
        auto work = few == INT8_INPUTS ? integer_linear : quantised_linear;
        work(format, {x, nullptr, bias, residual, out, rows, outputs, inputs, few}, (const char*)panels, threads);
    }
}

// Into panels of `format`, BF16 or FP32, from a matrix of the same type.
void forebay_pack(const void* weight, void* out, int64_t outputs, int64_t inputs, int format) {
    if (format == BF16)
        pack((const bf16*)weight, (bf16*)out, outputs, inputs);
    else
        pack((const float*)weight, (float*)out, outputs, inputs);
}

// Index of the first id that is out of range, or -1.
int64_t forebay_embed(
    const int32_t* ids, const void* panels, float* out, int64_t tokens, int64_t outputs, int64_t inputs, int format
) {
    for (int64_t t = 0; t < tokens; t++)
        if (ids[t] < 0 || ids[t] >= outputs) return t;
    if (format == BF16)
        embed(ids, (const bf16*)panels, out, tokens, inputs);
    else if (format == FP32)
        embed(ids, (const float*)panels, out, tokens, inputs);
    else
        quantised_embed(format, ids, (const char*)panels, out, tokens, inputs);
    return -1;
}
}
