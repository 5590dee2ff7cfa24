// What some query rows make of a block's keys: scores, and the weights of a softmax of their own.
//
// T says how K and V are held and multiplied: float; bf16, widened; or bf16_pair, which is bf16 too, but multiplied as
// such with queries and weights rounded to bf16, two numbers at a time.
#pragma once

#include <algorithm>
#include <cmath>

#include "multiply.h"

constexpr int BLOCK = 128;               // keys of a block
constexpr int GROUP = 6;                 // query rows of a register tile, where there are many
constexpr int MOST = std::max(GROUP, ACCUMULATORS / 3);  // query rows that are no more than one tile
constexpr int KEY_VECTORS = PAGE / W;    // vectors that hold a page's keys of one dimension
constexpr float NOTHING = -INFINITY;     // largest score where no key is visible

template <class T>
constexpr bool IN_PAIRS = std::is_same_v<T, bf16_pair>;

template <class T>
using Held = std::conditional_t<IN_PAIRS<T>, bf16, T>;

// The pages of a block in K and V, and the keys of the block that comes next. The pages of a layer lie far apart in
// memory, where the processor's own prefetching finds no pattern: while keys are scored, their values are asked for,
// and while values are gathered, the next block's keys, so that memory has something to do all the time.
constexpr int64_t PAGES = BLOCK / PAGE;
template <class T>
struct Pages {
    const Held<T>* keys[PAGES];  // after the unit's last page, that one again
    const Held<T>* values[PAGES];
    const Held<T>* next[PAGES];
};

// Sixteen keys of one dimension, or pairs of them of two.
template <class T>
INLINE void load_keys(const Held<T>* at, vf (&keys)[KEY_VECTORS]) {
    if constexpr (IN_PAIRS<T>)
        for (int v = 0; v < KEY_VECTORS; v++) keys[v] = pair_up(at + v * W, at + PAGE + v * W);
    else if constexpr (KEY_VECTORS == 1)
        keys[0] = load_natural(at);
    else
        for (int v = 0; v < KEY_VECTORS; v += 2) load_pair(at + v * W, keys[v], keys[v + 1]);
}

// What `load_keys` made, in order.
template <class T>
INLINE void store_scores(float* to, const vf (&scores)[KEY_VECTORS]) {
    if constexpr (IN_PAIRS<T> || KEY_VECTORS == 1)
        for (int v = 0; v < KEY_VECTORS; v++) store(to + v * W, scores[v]);
    else
        for (int v = 0; v < KEY_VECTORS; v += 2) store_pair<T>(to + v * W, scores[v], scores[v + 1]);
}

// `length`: numbers of a query. FRESH: the block is not in the cache yet.
template <bool FRESH, int MR, int NP, class T>
INLINE void score_pages(
    const float* q, int64_t length, const Held<T>* const* pages, const Held<T>* const* values, float* scores
) {
    constexpr int STEP = IN_PAIRS<T> ? 2 * PAGE : PAGE;
    vf sum[MR][NP][KEY_VECTORS];
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++)
#pragma GCC unroll 4
            for (int v = 0; v < KEY_VECTORS; v++) sum[m][p][v] = vf{};
    for (int64_t d = 0; d < length; d++)
        for (int p = 0; p < NP; p++) {
            vf key[KEY_VECTORS];
            const float* row = q + d;
            if (p > 0) forget(row);
            if constexpr (FRESH) __builtin_prefetch(values[p] + d * STEP);
            load_keys<T>(pages[p] + d * STEP, key);
#pragma GCC unroll 12
            for (int m = 0; m < MR; m++) {
                vf x = splat(row[m * length]);
                for (int v = 0; v < KEY_VECTORS; v++) sum[m][p][v] = add_product<T>(sum[m][p][v], x, key[v]);
            }
        }
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++) store_scores<T>(scores + m * BLOCK + p * PAGE, sum[m][p]);
}

constexpr int pages_in_registers(int rows) {
    int pages = ACCUMULATORS / (KEY_VECTORS * rows);
    return pages >= 4 ? 4 : pages >= 2 ? 2 : 1;
}

// Scores of MR query rows [MR, length] with the pages of a block → [MR, BLOCK].
template <bool FRESH, int MR, class T>
void score(const float* q, int64_t length, const Pages<T>& pages, int64_t count, float* scores) {
    constexpr int NP = pages_in_registers(MR);
    int64_t p = 0;
    for (; p + NP <= count; p += NP)
        score_pages<FRESH, MR, NP, T>(q, length, pages.keys + p, pages.values + p, scores + p * PAGE);
    for (; p < count; p++)
        score_pages<FRESH, MR, 1, T>(q, length, pages.keys + p, pages.values + p, scores + p * PAGE);
}

// A row's weights of W keys from `key` on, as they are multiplied; returns them.
template <class T>
INLINE vf store_weights(float* row, int64_t key, vf weights) {
    if constexpr (IN_PAIRS<T>) {
        vh rounded = narrow(weights);
        std::memcpy((bf16*)row + key, &rounded, sizeof rounded);
        return (vf)(__builtin_convertvector(rounded, vu) << 16);
    }
    store(row + key, weights);
    return weights;
}

// Turn one row's scores of keys [0, keys) into weights; only keys [low, high) are visible. Returns the largest score.
template <class T>
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
        power_of_two<std::conditional_t<IN_PAIRS<T>, Coarse, Fine>>(weight);
#pragma GCC unroll 4
        for (int v = 0; v < N; v++) totals[v % LANES] += store_weights<T>(scores, i + v * W, weight[v]);
    }
    *sum = sum_of_lanes(totals);
    return largest[0];
}
