// Linear layers and embedding over packed weights of bf16 or fp32. Quantised weights, attention and row operations are
// elsewhere.
//
// Packed: panels [ceil(N / PANEL)][K][PANEL] of fp32, [ceil(N / PANEL)][ceil(K / 2)][PANEL] of pairs of bf16, zero-padded.
// Few rows: the panels are streamed from memory once for all rows. Many rows: a block of rows stays in the second-level
// cache while the panels pass by. Pairs of bf16 are widened, or multiplied as they are with inputs rounded to bf16,
// which processors that have it do twice as fast. In pairs or not, whatever the number of rows.
#include "linear.h"
#include "quantised.h"
#include "scratch.h"

namespace {

// Rows of fp32 as rows of pairs of bf16; an odd one out gets a zero.
INLINE void round_row(const float* x, int64_t inputs, bf16* out) {
    int64_t k = 0;
    for (; k + W <= inputs; k += W) {
        vh rounded = narrow(load(x + k));
        std::memcpy(out + k, &rounded, sizeof rounded);
    }
    for (; k < inputs; k++) narrow(x[k], out + k);
    if (inputs % 2) out[inputs] = {};
}

void rounded_linear(const Linear<bf16>& job, int threads) {
    by_rows(job, [&](const Linear<bf16>& part) {
        int64_t pairs = (part.inputs + 1) / 2;
        float* rounded = scratch(part.rows * pairs);
        round_all(part, threads, [&](int64_t row) {
            round_row(part.x + row * part.inputs, part.inputs, (bf16*)(rounded + row * pairs));
        });
        all_rows(
            Linear<bf16_pair>{
                rounded, part.panels, part.bias, part.residual, part.out, part.rows, part.outputs, pairs
            },
            threads
        );
    });
}

// Rows of T below each other, `in_value` consecutive ones of a row in a Value of the panels.
template <class T>
struct Packed {
    static constexpr int in_value = 4 / sizeof(T);
    int64_t inputs;

    int64_t at(int64_t column, int64_t k) const {
        int64_t values = (inputs + in_value - 1) / in_value, value = column / PANEL * values + k / in_value;
        return (value * PANEL + column % PANEL) * in_value + k % in_value;
    }
};

template <class T>
void pack(const T* weight, T* out, int64_t outputs, int64_t inputs) {
    Packed<T> packed{inputs};
    int64_t whole = (inputs + packed.in_value - 1) / packed.in_value * packed.in_value;
#pragma omp parallel for schedule(static)
    for (int64_t panel = 0; panel < (outputs + PANEL - 1) / PANEL; panel++)
        for (int64_t k = 0; k < whole; k++)
            for (int64_t column = panel * PANEL; column < (panel + 1) * PANEL; column++)
                out[packed.at(column, k)] = column < outputs && k < inputs ? weight[column * inputs + k] : T{};
}

template <class T>
void embed(const int32_t* ids, const T* panels, float* out, int64_t tokens, int64_t inputs) {
    Packed<T> packed{inputs};
#pragma omp parallel for schedule(static) if (tokens >= 16)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t k = 0; k < inputs; k++) out[t * inputs + k] = widen(panels[packed.at(ids[t], k)]);
}

}  // namespace

extern "C" {

int64_t forebay_panel() { return PANEL; }

// Whether products of bf16 are faster than those of fp32 here.
int forebay_multiplies_bf16() { return MULTIPLIES_BF16; }

void forebay_linear(
    const float* x, const void* panels, const float* bias, const float* residual, float* out, int64_t rows,
    int64_t outputs, int64_t inputs, int format, int few, int threads
) {
    if (format == BF16) {
        auto work = few == ROUNDED_INPUTS ? rounded_linear : all_rows<bf16>;
        work({x, (const bf16_pair*)panels, bias, residual, out, rows, outputs, inputs}, threads);
    } else if (format == FP32)
        all_rows(Linear<float>{x, (const float*)panels, bias, residual, out, rows, outputs, inputs}, threads);
    else {
        auto work = few == ROUNDED_INPUTS ? integer_linear : quantised_linear;
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
