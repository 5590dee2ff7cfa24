// Operations on one token at a time: norm, rotary embedding with the write to the KV pages, gated activation. Also the
// copy of whole pages and a plain read of memory, which measures the machine.
#include <cmath>

#include "simd.h"

namespace {

// Sum of squares in an order that depends on the length only: 32 sums, then halves of them.
INLINE float sum_of_squares(const float* x, int64_t n) {
    constexpr int LANES = 32;
    vf sums[LANES / W] = {};
    auto add = [&](const float* from) {
        for (int j = 0; j < LANES / W; j++) sums[j] = multiply_add(sums[j], load(from + j * W), load(from + j * W));
    };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) add(x + i);
    if (i < n) {
        float rest[LANES] = {};
        std::memcpy(rest, x + i, (n - i) * sizeof *x);
        add(rest);
    }
    return sum_of_lanes(sums);
}

INLINE void normalise(const float* x, const float* weight, float* out, int64_t n, float eps) {
    float factor = 1.0f / std::sqrt(sum_of_squares(x, n) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * factor * weight[i];
}

INLINE void rotate(float* head, const float* cos, const float* sin, int64_t half) {
    for (int64_t d = 0; d < half; d++) {
        float first = head[d], second = head[d + half];
        head[d] = multiply_add(-(second * sin[d]), first, cos[d]);
        head[d + half] = multiply_add(first * sin[d], second, cos[d]);
    }
}

struct Rope {
    float* qkv;
    const float* cos_sin;
    const int32_t* positions;
    const int32_t* slots;
    const float* q_norm;
    const float* k_norm;
    float eps;
    int64_t tokens, query_heads, kv_heads, dim;
    int64_t page_stride;  // values from a page to the next
};

// k and v point to the layer's part of page 0: K [G, D, 16], V [G, 16, D].
template <class T>
void rope_token(const Rope& job, T* keys, T* values, int64_t t) {
    int64_t dim = job.dim, half = dim / 2;
    float* head = job.qkv + t * (job.query_heads + 2 * job.kv_heads) * dim;
    const float* cos = job.cos_sin + job.positions[t] * dim;
    int64_t page = job.slots[t] / PAGE, offset = job.slots[t] % PAGE;
    for (int64_t h = 0; h < job.query_heads + job.kv_heads; h++, head += dim) {
        const float* norm = h < job.query_heads ? job.q_norm : job.k_norm;
        if (norm) normalise(head, norm, head, dim, job.eps);
        rotate(head, cos, cos + half, half);
        if (h < job.query_heads) continue;
        T* key = keys + page * job.page_stride + (h - job.query_heads) * dim * PAGE + offset;
        for (int64_t d = 0; d < dim; d++) narrow(head[d], key + d * PAGE);
    }
    for (int64_t g = 0; g < job.kv_heads; g++, head += dim) {
        T* value = values + page * job.page_stride + (g * PAGE + offset) * dim;
        for (int64_t d = 0; d < dim; d++) narrow(head[d], value + d);
    }
}

template <class T>
void rope(const Rope& job, T* keys, T* values, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t t = 0; t < job.tokens; t++) rope_token(job, keys, values, t);
}

INLINE vf silu(vf gate) { return gate / (exponential(-gate) + 1.0f); }

void silu_row(const float* gate, const float* up, float* out, int64_t n) {
    int64_t i = 0;
    for (; i + W <= n; i += W) store(out + i, silu(load(gate + i)) * load(up + i));
    if (i == n) return;
    float padded[W] = {};
    for (int64_t j = i; j < n; j++) padded[j - i] = gate[j];
    vf last = silu(load(padded));
    for (int64_t j = i; j < n; j++) out[j] = last[j - i] * up[j];
}

// Below so many values starting threads costs more than it saves.
int threads_for(int64_t values, int threads) { return values < 1 << 15 ? 1 : threads; }

}  // namespace

extern "C" {

void forebay_rms_norm(
    const float* x, const float* weight, float* out, int64_t tokens, int64_t n, float eps, int threads
) {
    threads = threads_for(tokens * n, threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t t = 0; t < tokens; t++) normalise(x + t * n, weight, out + t * n, n, eps);
}

void forebay_silu_mul(const float* gate_up, float* out, int64_t tokens, int64_t n, int threads) {
    threads = threads_for(2 * tokens * n, threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t t = 0; t < tokens; t++) silu_row(gate_up + 2 * t * n, gate_up + (2 * t + 1) * n, out + t * n, n);
}

void forebay_rope_and_store(
    float* qkv, const float* cos_sin, const int32_t* positions, const int32_t* slots, const float* q_norm,
    const float* k_norm, void* keys, void* values, int64_t page_stride, int64_t tokens, int64_t query_heads,
    int64_t kv_heads, int64_t dim, float eps, int bytes, int threads
) {
    threads = threads_for(tokens * (query_heads + 2 * kv_heads) * dim, threads);
    Rope job{qkv, cos_sin, positions, slots, q_norm, k_norm, eps, tokens, query_heads, kv_heads, dim, page_stride};
    if (bytes == 2)
        rope(job, (bf16*)keys, (bf16*)values, threads);
    else
        rope(job, (float*)keys, (float*)values, threads);
}

// Copy past the caches, which takes less of the memory's time: what is written is not read into them first, and what
// they hold stays. For pieces too large to be read from a cache soon; small or unaligned ones are simply copied.
void forebay_copy_past_caches(char* to, const char* from, int64_t bytes) {
    constexpr int64_t LINE = 64, LEAST = 64 << 10;
    if (bytes < LEAST || bytes % LINE || (uintptr_t)to % LINE) {
        std::memcpy(to, from, bytes);
        return;
    }
    for (int64_t at = 0; at < bytes; at += LINE) stream_line(to + at, from + at);
    streamed();
}

// Copy pages of `bytes` bytes: pairs [n][2] of page numbers.
void forebay_copy_pages(char* pages, const int64_t* pairs, int64_t n, int64_t bytes) {
    for (int64_t i = 0; i < n; i++) std::memcpy(pages + pairs[2 * i + 1] * bytes, pages + pairs[2 * i] * bytes, bytes);
}

// Read `n` values once, all threads together; the sum keeps the compiler from leaving the reads out.
float forebay_read(const float* x, int64_t n, int threads) {
    constexpr int64_t BLOCK = 1 << 16;
    float total = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : total)
    for (int64_t block = 0; block < n / BLOCK; block++) {
        const float* at = x + block * BLOCK;
        vf sums[8] = {};
        for (int64_t i = 0; i < BLOCK; i += 8 * W)
            for (int j = 0; j < 8; j++) sums[j] += load(at + i + j * W);
        for (int j = 0; j < 8; j++) total += sums[j][0];
    }
    return total;
}
}
