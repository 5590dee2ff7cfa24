// What weights gather from a block's values. Where the weights come from: attend_score.h.
#pragma once

#include "attend_score.h"

// tile += weights [MR, keys of a page] · V [keys, NP panels], pairs of keys at a time. What stands after the last key may
// be no number.
template <int MR, int NP>
INLINE void multiply_paired(Tile<MR, NP>& tile, const float* weights, const bf16* values, int64_t dim, int64_t keys) {
    for (int64_t key = 0; key < keys; key += 2, values += 2 * dim) {
        bool alone = key + 1 == keys;
#pragma GCC unroll 4
        for (int p = 0; p < NP; p++) {
            const bf16* at = values + p * PANEL;
            const float* row = weights + key / 2;
            if (p > 0) forget(row);
            vf first = pair_up(at, at + dim), second = pair_up(at + W, at + dim + W);
            if (alone) first = (vf)((vu)first & 0xffffu), second = (vf)((vu)second & 0xffffu);
            add_columns<bf16_pair>(tile, p, row, BLOCK, first, second);
        }
    }
}

// out = weights [MR, keys] · V, NP panels of 2W dimensions from `panel` on. `next` (or null): pages whose keys are
// asked for meanwhile, as large a share of each as of V is read.
template <int MR, int NP, class T>
INLINE void gather_panels(
    const float* weights, const Held<T>* const* pages, const Held<T>* const* next, int64_t keys, int64_t dim,
    int64_t panel, float* out, int64_t padded
) {
    constexpr int64_t LINE = 64 / sizeof(Held<T>);
    Tile<MR, NP> tile = {};
    for (int64_t p = 0; p * PAGE < keys; p++) {
        const Held<T>* ahead = next ? next[p] + panel * PANEL * PAGE : nullptr;
        for (int64_t at = 0; ahead && at < NP * PANEL * PAGE; at += LINE) __builtin_prefetch(ahead + at);
        const Held<T>* values = pages[p] + panel * PANEL;
        const float* row = weights + p * PAGE / (IN_PAIRS<T> ? 2 : 1);
        int64_t left = keys - p * PAGE;
        if constexpr (IN_PAIRS<T>)
            multiply_paired(tile, row, values, dim, std::min<int64_t>(left, PAGE));
        else if (left >= PAGE)
            multiply(tile, row, BLOCK, values, PANEL, dim, PAGE);  // a constant number of them is faster
        else
            multiply(tile, row, BLOCK, values, PANEL, dim, left);
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
void gather_rest(const float* weights, const Held<T>* const* pages, int64_t keys, int64_t dim, float* out) {
    typedef float eight __attribute__((vector_size(32)));
    for (int64_t d = dim / PANEL * PANEL; d < dim; d += 8) {
        eight sum = {};
        for (int64_t at = 0; at < (IN_PAIRS<T> ? (keys + 1) / 2 * 2 : keys); at++) {
            int64_t j = IN_PAIRS<T> ? at ^ 1 : at;  // of a pair, the odd one comes first
            if (j >= keys) continue;
            const Held<T>* value = pages[j / PAGE] + j % PAGE * dim + d;
            float weight = IN_PAIRS<T> ? widen(((const bf16*)weights)[j]) : weights[j];
            for (int i = 0; i < 8; i++) sum[i] = multiply_add((float)sum[i], weight, widen(value[i]));
        }
        for (int i = 0; i < 8; i++) out[d / PANEL * PANEL + pair_place<T>((d + i) % PANEL)] = sum[i];
    }
}

template <int MR, class T>
void gather(
    const float* weights, const Held<T>* const* pages, const Held<T>* const* next, int64_t keys, int64_t dim,
    float* out, int64_t padded
) {
    constexpr int NP = panels_beside(MR);
    int64_t panels = dim / PANEL, panel = 0;
    for (; panel + NP <= panels; panel += NP)
        gather_panels<MR, NP, T>(weights, pages, next, keys, dim, panel, out, padded);
    for (; panel < panels; panel++) gather_panels<MR, 1, T>(weights, pages, next, keys, dim, panel, out, padded);
    if (panels * PANEL < dim)
        for (int m = 0; m < MR; m++) gather_rest<T>(weights + m * BLOCK, pages, keys, dim, out + m * padded);
}
