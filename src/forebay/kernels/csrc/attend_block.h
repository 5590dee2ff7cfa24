// Attention of some queries to one block of 128 keys. Which blocks there are, and who takes them: attention.cpp.
#pragma once

#include "attend_gather.h"

template <class T>
struct Attention {
    const float* qkv;
    float* out;
    const Held<T>* keys;    // the layer's K of page 0, [G, D, 16]
    const Held<T>* values;  // the layer's V of page 0, [G, 16, D]
    int64_t page_stride;
    const int32_t* row_starts;
    const int32_t* context;
    const int32_t* page_table;
    int64_t table_stride, rows, query_heads, kv_heads, dim, window;
    float scale;

    int64_t query() const { return IN_PAIRS<T> ? dim / 2 : dim; }  // numbers of 32 bits that a collected query is
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
    scored(q + row * job.query(), job.query(), pages, (count + PAGE - 1) / PAGE, scores);
    for (int m = 0; m < MR; m++) {
        int64_t position = unit.position + (row + m) / heads, high = position + 1 - start;
        state.largest[row + m] = weigh<T>(scores + m * BLOCK, count, high - job.window, high, state.sum + row + m);
    }
    const Held<T>* const* next = fresh ? pages.next : nullptr;
    gather<MR, T>(scores, pages.values, next, count, dim, state.values + row * padded, padded);
}

template <class T, int MR = MOST>
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
    int64_t step = rows <= MOST ? MOST : GROUP;
    for (int64_t row = 0; row < rows; row += step)
        attend_group<T>(std::min(step, rows - row), job, unit, row, block * BLOCK, pages, q, scores, state);
}
