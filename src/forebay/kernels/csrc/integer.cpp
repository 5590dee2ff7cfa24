// Linear layers over quantised weights with inputs rounded to 8 bits: products of integers, exact sums of 32 of them,
// and one multiplication by both scales. Up to twice as fast as fp32 (quantised.cpp) with AVX2, not the same numbers.
//
// 32 inputs of a row share a scale: the largest of them becomes 127. A row's result is the same bits in any batch: each
// output adds its blocks in the order of k, two multiply-adds each, whatever the number of rows. What the product means
// exactly is `rounded_inputs` in quantised.py times the dequantised weights.
#include <cmath>

#include "integer_dot.h"
#include "quantised.h"
#include "scratch.h"

namespace {

// 32 inputs of one row, each value * scale.
template <class Q>
struct Inputs {
    typename Dot<Q::bits>::Input values[GROUP];
    float scale;
    float total;  // of the values, times scale: what an offset is multiplied with
    int32_t sum;  // of the values
};

constexpr int AT_ONCE = 64;  // rows whose sums stay in the first-level cache
constexpr int TILE = 4;      // rows whose integer sums stay in registers

// Rounded rows: [rows / AT_ONCE][groups][AT_ONCE, or what is left], so that one run after the other is read.
template <class Q>
struct Rounded {
    Inputs<Q>* inputs;
    int64_t rows, groups;

    Inputs<Q>* at(int64_t group, int64_t row) const {
        int64_t first = row / AT_ONCE * AT_ONCE, together = std::min<int64_t>(AT_ONCE, rows - first);
        return inputs + first * groups + group * together + row - first;
    }
};

constexpr float LEAST = 1e-36f;  // as in quantised.py: where nothing is larger, all become 0; 127 / LEAST is finite

// What the largest magnitude is not, the group isn't either: infinity and NaN become a scale that is NaN.
template <class Q>
INLINE void round_inputs(const float* x, Inputs<Q>& out) {
    const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, halves to even
    auto larger = [](vi a, vi b) { return a > b ? a : b; };
    vi most_bits = {};  // as integers, magnitudes are in order, and NaN is the largest
    for (int i = 0; i < GROUP; i += W) most_bits = larger(most_bits, (vi)((vu)load(x + i) & 0x7fffffffu));
    vf most = (vf)over_lanes(most_bits, larger);
    vf factor = most > LEAST ? splat(127.0f) / most : vf{};
    vi values[GROUP / W];
    vu sum = {};
#pragma GCC unroll 8
    for (int i = 0; i < GROUP / W; i++) {
        vf scaled = load(x + i * W) * factor;
        now(scaled);  // rounded before the addition, not fused with it
        values[i] = (vi)((vu)(scaled + magic) - (vu)magic);
        sum += (vu)values[i];
    }
    place_inputs<Q::bits>(values, out.values);
    out.sum = (int32_t)over_lanes(sum, [](vu a, vu b) { return a + b; })[0];
    out.scale = most[0] / 127.0f + (most[0] - most[0]);
    out.total = out.scale * (float)out.sum;
}

template <class Q>
Rounded<Q> round_rows(const Linear<float>& job, int threads) {
    int64_t groups = job.inputs / GROUP;
    Rounded<Q> rounded{(Inputs<Q>*)scratch(job.rows * groups * sizeof(Inputs<Q>) / 4), job.rows, groups};
    round_all(job, threads, [&](int64_t row) {
        const float* x = job.x + row * job.inputs;
        for (int64_t g = 0; g < groups; g++) round_inputs(x + g * GROUP, *rounded.at(g, row));
    });
    return rounded;
}

// The numbers of W columns of a block.
template <class Q>
struct Factors {
    vf scale, offset;

    INLINE Factors of(const char* block, int half) {
        auto* numbers = (const typename Q::Scale*)block + half * W;
        return {load_scales(numbers), Q::has_offset ? load_scales(numbers + PANEL) : vf{}};
    }
};

template <class Q>
INLINE void unpack(const char* block, int half, vu* out) {
    vu words[Q::words];
#pragma GCC unroll 8
    for (int w = 0; w < Q::words; w++) words[w] = word<Q>(block, w, half);
    Dot<Q::bits>::unpack(words, out);
}

// sum += one block of W columns times the inputs, of which `dots` are the products of integers.
template <class Q>
INLINE void add_block(vf& sum, const Factors<Q>& factors, const Inputs<Q>& x, typename Dot<Q::bits>::Sum dots) {
    vf products = __builtin_convertvector(Dot<Q::bits>::total(dots, x.sum), vf);
    sum = multiply_add(sum, products, factors.scale * x.scale);
    if (Q::has_offset) sum = multiply_add(sum, factors.offset, splat(x.total));
}

// MR rows of one block of a panel, whose weights are unpacked: sums [MR][PANEL].
template <class Q, int MR>
INLINE void tile_block(
    const vu (*weights)[Dot<Q::bits>::vectors], const Factors<Q>* factors, const Inputs<Q>* x, float* sums
) {
    typedef Dot<Q::bits> D;
    typename D::Sum dots[MR][2] = {};
#pragma GCC unroll 16
    for (int j = 0; j < D::vectors; j++) {
        vu columns[2] = {weights[0][j], weights[1][j]};
        now(columns[0]);  // loaded once, not again for every row
        now(columns[1]);
#pragma GCC unroll 4
        for (int m = 0; m < MR; m++) {
            vu inputs = repeat(x[m].values + j * GROUP / D::vectors);
            D::add(dots[m][0], columns[0], inputs);
            D::add(dots[m][1], columns[1], inputs);
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            vf sum = load(sums + m * PANEL + h * W);
            add_block<Q>(sum, factors[h], x[m], dots[m][h]);
            store(sums + m * PANEL + h * W, sum);
        }
}

// Rows [row, row + count) times one panel.
template <class Q>
ONCE void panel_under_rows(
    const Linear<float>& job, const Panels<Q>& panels, const Rounded<Q>& x, int64_t row, int64_t count, int64_t panel
) {
    alignas(64) float sums[AT_ONCE * PANEL];
    std::fill(sums, sums + count * PANEL, 0.0f);
    const char* block = panels.panel(panel);
    for (int64_t g = 0; g < panels.groups; g++, block += Q::block_bytes) {
        prefetch_block<Q>(block + panels.bytes());
        vu weights[2][Dot<Q::bits>::vectors];
        Factors<Q> factors[2];
        for (int h = 0; h < 2; h++) {
            unpack<Q>(block, h, weights[h]);
            factors[h] = Factors<Q>::of(block, h);
        }
        const Inputs<Q>* inputs = x.at(g, row);
        int64_t m = 0;
        for (; m + TILE <= count; m += TILE) tile_block<Q, TILE>(weights, factors, inputs + m, sums + m * PANEL);
        for (; m < count; m++) tile_block<Q, 1>(weights, factors, inputs + m, sums + m * PANEL);
    }
    for (int64_t m = 0; m < count; m++)
        finish(job, row + m, panel * PANEL, load(sums + m * PANEL), load(sums + m * PANEL + W));
}

// One row times one panel: nothing but the panel comes from memory, and every value of it is used once.
template <class Q>
ONCE void panel_under_row(
    const Linear<float>& job, const Panels<Q>& panels, const Rounded<Q>& x, int64_t row, int64_t panel
) {
    typedef Dot<Q::bits> D;
    vf sums[2] = {};
    const char* block = panels.panel(panel);
    for (int64_t g = 0; g < panels.groups; g++, block += Q::block_bytes) {
        const Inputs<Q>& inputs = *x.at(g, row);
        prefetch_block<Q>(block + panels.bytes());
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            vu weights[D::vectors];
            unpack<Q>(block, h, weights);
            typename D::Sum dots = {};
#pragma GCC unroll 16
            for (int j = 0; j < D::vectors; j++)
                D::add(dots, weights[j], repeat(inputs.values + j * GROUP / D::vectors));
            add_block<Q>(sums[h], Factors<Q>::of(block, h), inputs, dots);
        }
    }
    finish(job, row, panel * PANEL, sums[0], sums[1]);
}

template <class Q>
void linear(const Linear<float>& job, const Panels<Q>& panels, int threads) {
    Rounded<Q> x = round_rows<Q>(job, threads);
    // AT_ONCE rows and the panels of a task stay in the second-level cache, so tasks take all rows.
    auto work = [&](int64_t, int64_t, int64_t first, int64_t end) {
        for (int64_t row = 0; row < job.rows; row += AT_ONCE) {
            int64_t count = std::min<int64_t>(AT_ONCE, job.rows - row);
            for (int64_t panel = first; panel < end; panel++)
                if (count == 1)
                    panel_under_row(job, panels, x, row, panel);
                else
                    panel_under_rows(job, panels, x, row, count, panel);
        }
    };
    spread(job.rows, job.outputs, job.inputs, INT64_MAX, 1, threads, work);
}

}  // namespace

void integer_linear(int format, const Linear<float>& job, const char* panels, int threads) {
    with_format(format, [&](auto q) {
        Panels<decltype(q)> blocks{panels, job.inputs / GROUP};
        by_rows(job, [&](const Linear<float>& part) { linear(part, blocks, threads); });
    });
}
