// Linear layers and embedding over weights of 4 or 8 bits with a scale (and offset) for 32 inputs of a column.
//
// A weight becomes fp32 before it is multiplied: value * scale is exact (at most 8 + 11 bits, or 4 + 17 for Q4_K), so
// there is one rounding at most, and fused and separate multiply-adds agree. From there all is as with fp32 weights, in
// the same order: a quantised matrix gives the very bits that its dequantised fp32 matrix gives. Few rows: weights
// become fp32 in registers, again for each tile of rows. Many rows: some panels become fp32 in the second-level cache,
// and all rows pass over them. What is few is measured (`crossover.py`).
#include "quantised.h"
#include "quantised_blocks.h"
#include "scratch.h"

namespace {

// tile += x[MR, K] · NP panels, each `panel_bytes` after the one before.
template <class Q, int MR, int NP>
INLINE void multiply_quantised(
    Tile<MR, NP>& tile, const float* x, int64_t x_row, const char* blocks, int64_t panel_bytes, int64_t groups
) {
    typedef Columns<Q> C;
    for (int64_t g = 0; g < groups; g++, blocks += Q::block_bytes, x += GROUP) {
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++) prefetch_block<Q>(blocks + (NP + p) * panel_bytes);
        C columns[NP][2];
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) columns[p][h] = C::of(blocks + p * panel_bytes, h);
        for (int w = 0; w < Q::words; w++) {
            vu words[NP][2];
#pragma GCC unroll 4
            for (int p = 0; p < NP; p++)
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) words[p][h] = word<Q>(blocks + p * panel_bytes, w, h);
#pragma GCC unroll 8
            for (int i = 0; i < Q::in_word; i++) {
#pragma GCC unroll 4
                for (int p = 0; p < NP; p++) {
                    const float* row = x + w * Q::in_word + i;
                    if (p > 0) forget(row);
                    vf first = C::weights(words[p][0], i, columns[p][0]);
                    vf second = C::weights(words[p][1], i, columns[p][1]);
                    add_columns<float>(tile, p, row, x_row, first, second);
                }
            }
        }
    }
}

template <class Q, int MR, int NP>
INLINE void few_tile(const Linear<float>& job, const Panels<Q>& panels, int64_t row, int64_t panel) {
    Tile<MR, NP> tile = {};
    const char* blocks = panels.panel(panel);
    multiply_quantised<Q>(tile, job.x + row * job.inputs, job.inputs, blocks, panels.bytes(), panels.groups);
    finish_tile(job, row, panel, tile);
}

constexpr int few_beside(int64_t rows) { return rows == 1 ? 2 : 1; }  // as `panels_beside`; scales need registers too

template <class Q, int MR>
ONCE void few_rows_at(const Linear<float>& job, const Panels<Q>& panels, int64_t row, int64_t panel, int64_t end) {
    constexpr int NP = few_beside(MR);
    for (; panel + NP <= end; panel += NP) few_tile<Q, MR, NP>(job, panels, row, panel);
    for (; panel < end; panel++) few_tile<Q, MR, 1>(job, panels, row, panel);
}

template <class Q, int MR = ROWS>
INLINE void rows_of_tile(
    int64_t rows, const Linear<float>& job, const Panels<Q>& panels, int64_t row, int64_t panel, int64_t end
) {
    if (rows == MR) return few_rows_at<Q, MR>(job, panels, row, panel, end);
    if constexpr (MR > 1) rows_of_tile<Q, MR - 1>(rows, job, panels, row, panel, end);
}

// Rows [row, row_end) times panels [panel, end): all rows of a panel, which stays in the cache, before the next.
template <class Q>
void few_rows(
    const Linear<float>& job, const Panels<Q>& panels, int64_t row, int64_t row_end, int64_t panel, int64_t end
) {
    if (row_end - row <= ROWS) return rows_of_tile<Q>(row_end - row, job, panels, row, panel, end);
    for (; panel < end; panel++)
        for (int64_t at = row, count; at < row_end; at += count) {
            count = next_rows(row_end - at);
            rows_of_tile<Q>(count, job, panels, at, panel, panel + 1);
        }
}

// One panel as fp32 [K, PANEL].
template <class Q>
void widen_panel(const Panels<Q>& panels, int64_t panel, float* out) {
    const char* block = panels.panel(panel);
    for (int64_t g = 0; g < panels.groups; g++, block += Q::block_bytes, out += GROUP * PANEL)
        for (int h = 0; h < 2; h++) {
            auto columns = Columns<Q>::of(block, h);
            for (int w = 0; w < Q::words; w++) {
                vu words = word<Q>(block, w, h);
#pragma GCC unroll 8
                for (int i = 0; i < Q::in_word; i++)
                    store(out + (w * Q::in_word + i) * PANEL + h * W, Columns<Q>::weights(words, i, columns));
            }
        }
}

template <class Q>
void linear(const Linear<float>& job, const Panels<Q>& panels, int threads) {
    constexpr int64_t CACHE = 512 << 10;  // twice what plain weights get, so that a widened panel serves more rows
    auto work = [&](int64_t row, int64_t row_end, int64_t panel, int64_t end) {
        if (row_end - row <= job.few) return few_rows<Q>(job, panels, row, row_end, panel, end);
        int64_t step = panel_steps(row_end - row), size = job.inputs * PANEL;
        Linear<float> widened = job;
        float* memory = scratch(step * size);
        widened.panels = memory;
        for (; panel < end; panel += step) {
            int64_t last = std::min(panel + step, end);
            for (int64_t p = panel; p < last; p++) widen_panel(panels, p, memory + (p - panel) * size);
            widened.first = panel;
            pass_under<false>(widened, row, row_end, panel, last);
        }
    };
    int64_t grain = job.rows <= job.few ? few_beside(job.rows) : panel_steps(job.rows);
    spread(job.rows, job.outputs, job.inputs, CACHE, grain, threads, work);
}

template <class Q>
void embed(const int32_t* ids, const Panels<Q>& panels, float* out, int64_t tokens) {
    for (int64_t t = 0; t < tokens; t++) {
        const char* block = panels.panel(ids[t] / PANEL);
        int column = ids[t] % PANEL, half = column / W, lane = column % W;
        for (int64_t g = 0; g < panels.groups; g++, block += Q::block_bytes) {
            auto columns = Columns<Q>::of(block, half);
            for (int w = 0; w < Q::words; w++) {
                vu words = word<Q>(block, w, half);
#pragma GCC unroll 8
                for (int i = 0; i < Q::in_word; i++) *out++ = Columns<Q>::weights(words, i, columns)[lane];
            }
        }
    }
}

// A word of values of BITS bits from bytes in order.
template <int BITS>
INLINE uint32_t packed(const uint8_t* values) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, values, 32 / BITS);
    if (BITS == 8) return (uint32_t)bytes;
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ff;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
    return (uint32_t)(bytes | bytes >> 16);
}

// values uint8 (4 bits, below 16) or int8 [N, K]; scale and offset [N, K / 32].
template <class Q>
void pack(
    const uint8_t* values, const typename Q::Scale* scale, const typename Q::Scale* offset, char* out, int64_t outputs,
    int64_t groups
) {
#pragma omp parallel for schedule(static)
    for (int64_t panel = 0; panel < (outputs + PANEL - 1) / PANEL; panel++)
        for (int64_t g = 0; g < groups; g++) {
            char* block = out + (panel * groups + g) * Q::block_bytes;
            std::memset(block, 0, Q::block_bytes);
            auto* numbers = (typename Q::Scale*)block;
            auto* words = (uint32_t*)(block + Q::values_at);
            for (int64_t c = 0; c < std::min<int64_t>(PANEL, outputs - panel * PANEL); c++) {
                int64_t at = (panel * PANEL + c) * groups + g;
                numbers[c] = scale[at];
                if (Q::has_offset) numbers[PANEL + c] = offset[at];
                const uint8_t* of_column = values + at * GROUP;
                for (int w = 0; w < Q::words; w++)
                    words[w * PANEL + c] = packed<Q::bits>(of_column + w * Q::in_word);
            }
        }
}

}  // namespace

void quantised_linear(int format, const Linear<float>& job, const char* panels, int threads) {
    with_format(format, [&](auto q) { linear(job, Panels<decltype(q)>{panels, job.inputs / GROUP}, threads); });
}

void quantised_embed(int format, const int32_t* ids, const char* panels, float* out, int64_t tokens, int64_t inputs) {
    with_format(format, [&](auto q) { embed(ids, Panels<decltype(q)>{panels, inputs / GROUP}, out, tokens); });
}

extern "C" {

// Bytes that a matrix takes in `format`; inputs are a multiple of 32.
int64_t forebay_quantised_bytes(int64_t outputs, int64_t inputs, int format) {
    int64_t bytes = 0;
    with_format(format, [&](auto q) {
        bytes = (outputs + PANEL - 1) / PANEL * (inputs / GROUP) * decltype(q)::block_bytes;
    });
    return bytes;
}

void forebay_pack_quantised(
    const uint8_t* values, const void* scale, const void* offset, char* out, int64_t outputs, int64_t inputs, int format
) {
    with_format(format, [&](auto q) {
        typedef typename decltype(q)::Scale S;
        pack<decltype(q)>(values, (const S*)scale, (const S*)offset, out, outputs, inputs / GROUP);
    });
}
}
