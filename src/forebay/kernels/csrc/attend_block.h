// Attention of some queries to one block of 128 keys. Which blocks there are, and who takes them: attention.cpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "multiply.h"

constexpr int BLOCK = 128;               // keys of a block
constexpr int GROUP = 6;                 // most query rows of a register tile
constexpr int KEY_VECTORS = PAGE / W;    // vectors that hold a page's keys of one dimension
constexpr float NOTHING = -INFINITY;     // largest score where no key is visible

template <class T>
struct Attention {
    const float* qkv;
    float* out;
    const T* keys;    // the layer's K of page 0, [G, D, 16]
    const T* values;  // the layer's V of page 0, [G, 16, D]
    int64_t page_stride;
    const int32_t* row_starts;
    const int32_t* context;
    const int32_t* page_table;
    int64_t table_stride, rows, query_heads, kv_heads, dim, window;
    float scale;

    int64_t heads_of_group() const { return query_heads / kv_heads; }
    int64_t padded() const { return (dim + PANEL - 1) / PANEL * PANEL; }
};

// Queries [token, token + tokens) of the step, all of row `row`, for one KV head.
struct Unit {
    int64_t row, token, tokens, group;
    int64_t position;           // of the first query
    int64_t first_block, end_block;
};

// Softmax of each query row over some keys: largest score, sum of weights, weighted sum of values.
struct State {
    float* largest;
    float* sum;
    float* values;  // [rows, padded], in the order of `load_pair`

    static int64_t floats(int64_t rows, int64_t padded) { return rows * (padded + 2); }
    State(float* memory, int64_t rows, int64_t padded)
        : largest(memory + rows * padded), sum(largest + rows), values(memory) {}
};

// The pages of a block in K and V. The pages of a layer lie far apart in memory, where the processor's own prefetching
// finds no pattern: while some keys are used, the next ones and their values are asked for.
constexpr int64_t PAGES = BLOCK / PAGE;
constexpr int64_t AHEAD = 4;
template <class T>
struct Pages {
    const T* keys[PAGES + AHEAD];  // also those of the next block; after the last page, that one again
    const T* values[PAGES + AHEAD];
};

template <int MR, int NP, class T>
INLINE void score_pages(const float* q, int64_t dim, const T* const* pages, const T* const* values, float* scores) {
    vf sum[MR][NP][KEY_VECTORS] = {};
    for (int64_t d = 0; d < dim; d++)
        for (int p = 0; p < NP; p++) {
            vf key[KEY_VECTORS];
            const float* row = q + d;
            if (p > 0) forget(row);
            const T* at = pages[p] + d * PAGE;
            __builtin_prefetch(pages[p + NP] + d * PAGE);
            __builtin_prefetch(values[p] + d * PAGE);
            if constexpr (KEY_VECTORS == 1)
                key[0] = load_natural(at);
            else
                for (int v = 0; v < KEY_VECTORS; v += 2) load_pair(at + v * W, key[v], key[v + 1]);
            for (int m = 0; m < MR; m++) {
                vf x = splat(row[m * dim]);
                for (int v = 0; v < KEY_VECTORS; v++) sum[m][p][v] += x * key[v];
            }
        }
    for (int m = 0; m < MR; m++)
        for (int p = 0; p < NP; p++) {
            float* at = scores + m * BLOCK + p * PAGE;
            if constexpr (KEY_VECTORS == 1)
                store(at, sum[m][p][0]);
            else
                for (int v = 0; v < KEY_VECTORS; v += 2) store_pair<T>(at + v * W, sum[m][p][v], sum[m][p][v + 1]);
        }
}

constexpr int pages_in_registers(int rows) {
    int pages = ACCUMULATORS / (KEY_VECTORS * rows);
    return pages >= 4 ? 4 : pages >= 2 ? 2 : 1;
}

// Scores of MR query rows [MR, dim] with the pages of a block → [MR, BLOCK].
template <int MR, class T>
void score(const float* q, int64_t dim, const Pages<T>& pages, int64_t count, float* scores) {
    constexpr int NP = pages_in_registers(MR);
    int64_t p = 0;
    for (; p + NP <= count; p += NP) score_pages<MR, NP>(q, dim, pages.keys + p, pages.values + p, scores + p * PAGE);
    for (; p < count; p++) score_pages<MR, 1>(q, dim, pages.keys + p, pages.values + p, scores + p * PAGE);
}

// Turn one row's scores of keys [0, keys) into weights; only keys [low, high) are visible. Returns the largest score.
ONCE float weigh(float* scores, int64_t keys, int64_t low, int64_t high, float* sum) {
    int64_t width = (keys + PAGE - 1) / PAGE * PAGE;
    for (int64_t i = 0; i < std::min(low, width); i++) scores[i] = NOTHING;
    for (int64_t i = std::max<int64_t>(high, 0); i < width; i++) scores[i] = NOTHING;
    vf best = splat(NOTHING);
    for (int64_t i = 0; i < width; i += W) best = maximum(best, load(scores + i));
    float largest = horizontal_max(best);
    vf total = {};
    for (int64_t i = 0; i < width; i += W) {
        vf weight = exponential(load(scores + i) - largest);
        store(scores + i, weight);
        total += weight;
    }
    *sum = horizontal_sum(total);
    return largest;
}

// values += weights [MR, keys] · V, NP panels of 2W dimensions.
template <int MR, int NP, class T>
INLINE void gather_panels(
    const float* weights, const T* const* pages, int64_t keys, int64_t dim, float* out, int64_t padded
) {
    Tile<MR, NP> tile = {};
    for (int64_t p = 0; p * PAGE < keys; p++)
        multiply(tile, weights + p * PAGE, BLOCK, pages[p], PANEL, dim, std::min<int64_t>(PAGE, keys - p * PAGE));
    for (int m = 0; m < MR; m++)
        for (int p = 0; p < NP; p++) {
            store(out + m * padded + p * PANEL, tile.sum[m][p][0]);
            store(out + m * padded + p * PANEL + W, tile.sum[m][p][1]);
        }
}

// The dimensions after the last whole panel, eight at a time, put where `load_pair` would put them.
template <class T>
void gather_rest(const float* weights, const T* const* pages, int64_t keys, int64_t dim, float* out) {
    typedef float eight __attribute__((vector_size(32)));
    for (int64_t d = dim / PANEL * PANEL; d < dim; d += 8) {
        eight sum = {};
        for (int64_t j = 0; j < keys; j++) {
            const T* at = pages[j / PAGE] + j % PAGE * dim + d;
            eight value;
            for (int i = 0; i < 8; i++) value[i] = widen(at[i]);
            sum += weights[j] * value;
        }
        for (int i = 0; i < 8; i++) out[d / PANEL * PANEL + pair_place<T>((d + i) % PANEL)] = sum[i];
    }
}

template <int MR, class T>
void gather(const float* weights, const T* const* pages, int64_t keys, int64_t dim, float* out, int64_t padded) {
    constexpr int NP = panels_beside(MR);
    int64_t panels = dim / PANEL, p = 0;
    auto at = [&](int64_t panel, const T** moved) {
        for (int64_t i = 0; i * PAGE < keys; i++) moved[i] = pages[i] + panel * PANEL;
    };
    const T* moved[BLOCK / PAGE];
    for (; p + NP <= panels; p += NP) {
        at(p, moved);
        gather_panels<MR, NP>(weights, moved, keys, dim, out + p * PANEL, padded);
    }
    for (; p < panels; p++) {
        at(p, moved);
        gather_panels<MR, 1>(weights, moved, keys, dim, out + p * PANEL, padded);
    }
    if (panels * PANEL < dim)
        for (int m = 0; m < MR; m++) gather_rest(weights + m * BLOCK, pages, keys, dim, out + m * padded);
}

// One group of MR query rows, the first of which is `row` of the unit, against one block.
template <int MR, class T>
void attend_rows(
    const Attention<T>& job, const Unit& unit, int64_t row, int64_t start, const Pages<T>& pages, const float* q,
    float* scores, State& state
) {
    int64_t heads = job.heads_of_group(), dim = job.dim, padded = job.padded();
    int64_t first = unit.position + row / heads, last = unit.position + (row + MR - 1) / heads;
    int64_t count = std::min<int64_t>(BLOCK, last + 1 - start);
    for (int m = 0; m < MR; m++) state.largest[row + m] = NOTHING;
    if (count <= 0 || first - job.window + 1 >= start + BLOCK) return;
    score<MR>(q + row * dim, dim, pages, (count + PAGE - 1) / PAGE, scores);
    for (int m = 0; m < MR; m++) {
        int64_t position = unit.position + (row + m) / heads, high = position + 1 - start;
        state.largest[row + m] = weigh(scores + m * BLOCK, count, high - job.window, high, state.sum + row + m);
    }
    gather<MR>(scores, pages.values, count, dim, state.values + row * padded, padded);
}

template <class T, int MR = GROUP>
INLINE void attend_group(
    int64_t count, const Attention<T>& job, const Unit& unit, int64_t row, int64_t start, const Pages<T>& pages,
    const float* q, float* scores, State& state
) {
    if (count == MR) return attend_rows<MR>(job, unit, row, start, pages, q, scores, state);
    if constexpr (MR > 1) attend_group<T, MR - 1>(count, job, unit, row, start, pages, q, scores, state);
}

// All query rows of a unit against one block.
template <class T>
void attend_block(
    const Attention<T>& job, const Unit& unit, int64_t block, const float* q, float* scores, State& state
) {
    Pages<T> pages;
    const int32_t* table = job.page_table + unit.row * job.table_stride;
    int64_t last = (unit.position + unit.tokens - 1) / PAGE;  // page that the unit's last query is in
    int64_t within_page = unit.group * job.dim * PAGE;
    for (int64_t p = 0; p < PAGES + AHEAD; p++) {
        int64_t page = table[std::min(block * PAGES + p, last)] * job.page_stride + within_page;
        pages.keys[p] = job.keys + page;
        pages.values[p] = job.values + page;
    }
    int64_t rows = unit.tokens * job.heads_of_group();
    for (int64_t row = 0; row < rows; row += GROUP)
        attend_group<T>(std::min<int64_t>(GROUP, rows - row), job, unit, row, block * BLOCK, pages, q, scores, state);
}
