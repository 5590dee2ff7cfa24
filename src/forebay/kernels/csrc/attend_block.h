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

// Queries [token, token + tokens) of the step, all of row `row`, for KV heads [group, group_end).
struct Unit {
    int64_t row, token, tokens, group, group_end;
    int64_t position;           // of the first query
    int64_t first_block, end_block;
};

// Softmax of each query row over some keys: largest score, sum of weights, weighted sum of values.
struct State {
    float* largest;
    float* sum;
    float* values;  // [rows, padded], in the order of `load_pair`

    // Whole vectors of rows, so that those after the last may be read.
    static int64_t rounded(int64_t rows) { return (rows + W - 1) / W * W; }
    static int64_t floats(int64_t rows, int64_t padded) { return rows * padded + 2 * rounded(rows); }
    State(float* memory, int64_t rows, int64_t padded)
        : largest(memory + rows * padded), sum(largest + rounded(rows)), values(memory) {}
};

// The pages of a block in K and V, and the keys of the block that comes next. The pages of a layer lie far apart in
// memory, where the processor's own prefetching finds no pattern: while keys are scored, their values are asked for,
// and while values are gathered, the next block's keys, so that memory has something to do all the time.
constexpr int64_t PAGES = BLOCK / PAGE;
template <class T>
struct Pages {
    const T* keys[PAGES];  // after the unit's last page, that one again
    const T* values[PAGES];
    const T* next[PAGES];
};

// FRESH: the block is not in the cache yet.
template <bool FRESH, int MR, int NP, class T>
INLINE void score_pages(const float* q, int64_t dim, const T* const* pages, const T* const* values, float* scores) {
    vf sum[MR][NP][KEY_VECTORS];
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++)
#pragma GCC unroll 4
            for (int v = 0; v < KEY_VECTORS; v++) sum[m][p][v] = vf{};
    for (int64_t d = 0; d < dim; d++)
        for (int p = 0; p < NP; p++) {
            vf key[KEY_VECTORS];
            const float* row = q + d;
            if (p > 0) forget(row);
            const T* at = pages[p] + d * PAGE;
            if constexpr (FRESH) __builtin_prefetch(values[p] + d * PAGE);
            if constexpr (KEY_VECTORS == 1)
                key[0] = load_natural(at);
            else
                for (int v = 0; v < KEY_VECTORS; v += 2) load_pair(at + v * W, key[v], key[v + 1]);
#pragma GCC unroll 12
            for (int m = 0; m < MR; m++) {
                vf x = splat(row[m * dim]);
                for (int v = 0; v < KEY_VECTORS; v++) sum[m][p][v] = multiply_add(sum[m][p][v], x, key[v]);
            }
        }
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
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
template <bool FRESH, int MR, class T>
void score(const float* q, int64_t dim, const Pages<T>& pages, int64_t count, float* scores) {
    constexpr int NP = pages_in_registers(MR);
    int64_t p = 0;
    for (; p + NP <= count; p += NP)
        score_pages<FRESH, MR, NP>(q, dim, pages.keys + p, pages.values + p, scores + p * PAGE);
    for (; p < count; p++) score_pages<FRESH, MR, 1>(q, dim, pages.keys + p, pages.values + p, scores + p * PAGE);
}

// Turn one row's scores of keys [0, keys) into weights; only keys [low, high) are visible. Returns the largest score.
ONCE float weigh(float* scores, int64_t keys, int64_t low, int64_t high, float* sum) {
    constexpr int N = 4, STEP = N * W, LANES = PAGE / W;  // as many sums as a page has keys, whatever W is
    int64_t width = (keys + STEP - 1) / STEP * STEP;
    for (int64_t i = 0; i < std::min(low, width); i++) scores[i] = NOTHING;
    for (int64_t i = std::max<int64_t>(high, 0); i < width; i++) scores[i] = NOTHING;
    vf best = splat(NOTHING);
    for (int64_t i = 0; i < width; i += W) best = maximum(best, load(scores + i));
    vf largest = spread_max(best), totals[LANES] = {};
    for (int64_t i = 0; i < width; i += STEP) {
        vf weight[N];
#pragma GCC unroll 4
        for (int v = 0; v < N; v++) weight[v] = load(scores + i + v * W) - largest;
        power_of_two(weight);
#pragma GCC unroll 4
        for (int v = 0; v < N; v++) {
            store(scores + i + v * W, weight[v]);
            totals[v % LANES] += weight[v];
        }
    }
    *sum = sum_of_lanes(totals);
    return largest[0];
}

// out = weights [MR, keys] · V, NP panels of 2W dimensions from `panel` on. `next` (or null): pages whose keys are
// asked for meanwhile, as large a share of each as of V is read.
template <int MR, int NP, class T>
INLINE void gather_panels(
    const float* weights, const T* const* pages, const T* const* next, int64_t keys, int64_t dim, int64_t panel,
    float* out, int64_t padded
) {
    constexpr int64_t LINE = 64 / sizeof(T);
    Tile<MR, NP> tile = {};
    for (int64_t p = 0; p * PAGE < keys; p++) {
        const T* ahead = next ? next[p] + panel * PANEL * PAGE : nullptr;
        for (int64_t at = 0; ahead && at < NP * PANEL * PAGE; at += LINE) __builtin_prefetch(ahead + at);
        const T* values = pages[p] + panel * PANEL;
        const float* row = weights + p * PAGE;
        int64_t left = keys - p * PAGE;
        if (left >= PAGE)
            multiply<false>(tile, row, BLOCK, values, PANEL, dim, PAGE);  // a constant number of them is faster
        else
            multiply<false>(tile, row, BLOCK, values, PANEL, dim, left);
    }
    for (int m = 0; m < MR; m++)
        for (int p = 0; p < NP; p++) {
            float* at = out + m * padded + (panel + p) * PANEL;
            store(at, tile.sum[m][p][0]);
            store(at + W, tile.sum[m][p][1]);
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
            for (int i = 0; i < 8; i++) sum[i] = multiply_add((float)sum[i], weights[j], widen(at[i]));
        }
        for (int i = 0; i < 8; i++) out[d / PANEL * PANEL + pair_place<T>((d + i) % PANEL)] = sum[i];
    }
}

template <int MR, class T>
void gather(
    const float* weights, const T* const* pages, const T* const* next, int64_t keys, int64_t dim, float* out,
    int64_t padded
) {
    constexpr int NP = panels_beside(MR);
    int64_t panels = dim / PANEL, panel = 0;
    for (; panel + NP <= panels; panel += NP)
        gather_panels<MR, NP>(weights, pages, next, keys, dim, panel, out, padded);
    for (; panel < panels; panel++) gather_panels<MR, 1>(weights, pages, next, keys, dim, panel, out, padded);
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
    bool fresh = row == 0;  // the rows after the first find the block in the cache
    auto* scored = fresh ? score<true, MR, T> : score<false, MR, T>;
    scored(q + row * dim, dim, pages, (count + PAGE - 1) / PAGE, scores);
    for (int m = 0; m < MR; m++) {
        int64_t position = unit.position + (row + m) / heads, high = position + 1 - start;
        state.largest[row + m] = weigh(scores + m * BLOCK, count, high - job.window, high, state.sum + row + m);
    }
    const T* const* next = fresh ? pages.next : nullptr;
    gather<MR>(scores, pages.values, next, count, dim, state.values + row * padded, padded);
}

template <class T, int MR = GROUP>
INLINE void attend_group(
    int64_t count, const Attention<T>& job, const Unit& unit, int64_t row, int64_t start, const Pages<T>& pages,
    const float* q, float* scores, State& state
) {
    if (count == MR) return attend_rows<MR>(job, unit, row, start, pages, q, scores, state);
    if constexpr (MR > 1) attend_group<T, MR - 1>(count, job, unit, row, start, pages, q, scores, state);
}

// All query rows of a unit and one of its KV heads against one block.
template <class T>
void attend_block(
    const Attention<T>& job, const Unit& unit, int64_t group, int64_t block, const float* q, float* scores, State& state
) {
    Pages<T> pages;
    const int32_t* table = job.page_table + unit.row * job.table_stride;
    int64_t last = (unit.position + unit.tokens - 1) / PAGE;  // page that the unit's last query is in
    int64_t head = job.dim * PAGE;  // values of a KV head in a page
    bool last_head = group + 1 == unit.group_end;
    for (int64_t p = 0; p < PAGES; p++) {
        int64_t page = table[std::min(block * PAGES + p, last)] * job.page_stride;
        pages.keys[p] = job.keys + page + group * head;
        pages.values[p] = job.values + page + group * head;
        int64_t next = last_head ? table[std::min((block + 1) * PAGES + p, last)] * job.page_stride : page;
        pages.next[p] = job.keys + next + (last_head ? unit.group : group + 1) * head;
    }
    int64_t rows = unit.tokens * job.heads_of_group();
    for (int64_t row = 0; row < rows; row += GROUP)
        attend_group<T>(std::min<int64_t>(GROUP, rows - row), job, unit, row, block * BLOCK, pages, q, scores, state);
}
