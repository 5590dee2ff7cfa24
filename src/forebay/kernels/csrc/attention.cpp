// Causal attention over KV pages. Projections and the rotary embedding are elsewhere.
//
// Keys are taken in blocks of 128, aligned to position 0 whatever the step computes. Each block gives every query a
// softmax of its own (largest score, sum, weighted values), and the blocks are merged in order. A query's result is
// therefore the same bits in any tile of queries and with the blocks spread over any threads.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "multiply.h"

namespace {

constexpr int BLOCK = 128;               // keys of a block
constexpr int GROUP = 6;                 // most query rows of a register tile
constexpr int KEY_VECTORS = PAGE / W;    // vectors that hold a page's keys of one dimension
constexpr int TILE_ROWS = 96;            // about this many query rows (tokens x heads of a group) share a pass over the KV
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

// The state of a softmax for each query row: largest score, sum of weights, weighted sum of values.
struct State {
    float* largest;
    float* sum;
    float* values;  // [rows, padded], in the order of `load_pair`

    static int64_t floats(int64_t rows, int64_t padded) { return rows * (padded + 2); }
    State(float* memory, int64_t rows, int64_t padded)
        : largest(memory + rows * padded), sum(largest + rows), values(memory) {}
};

// Memory of one thread, kept between calls.
float* scratch(int64_t floats) {
    struct Free {
        void operator()(float* p) const { std::free(p); }
    };
    thread_local std::unique_ptr<float, Free> memory;
    thread_local int64_t size = 0;
    if (size < floats) {
        memory.reset((float*)std::aligned_alloc(64, (floats * 4 + 63) / 64 * 64));
        size = floats;
    }
    return memory.get();
}

template <int MR, int NP, class T>
INLINE void score_pages(const float* q, int64_t dim, const T* const* pages, float* scores) {
    vf sum[MR][NP][KEY_VECTORS] = {};
    for (int64_t d = 0; d < dim; d++) {
        vf key[NP][KEY_VECTORS];
        for (int p = 0; p < NP; p++) {
            const T* at = pages[p] + d * PAGE;
            if constexpr (KEY_VECTORS == 1)
                key[p][0] = load_natural(at);
            else
                for (int v = 0; v < KEY_VECTORS; v += 2) load_pair(at + v * W, key[p][v], key[p][v + 1]);
        }
        for (int m = 0; m < MR; m++) {
            vf x = splat(q[m * dim + d]);
            for (int p = 0; p < NP; p++)
                for (int v = 0; v < KEY_VECTORS; v++) sum[m][p][v] += x * key[p][v];
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
void score(const float* q, int64_t dim, const T* const* pages, int64_t count, float* scores) {
    constexpr int NP = pages_in_registers(MR);
    int64_t p = 0;
    for (; p + NP <= count; p += NP) score_pages<MR, NP>(q, dim, pages + p, scores + p * PAGE);
    for (; p < count; p++) score_pages<MR, 1>(q, dim, pages + p, scores + p * PAGE);
}

// Turn one row's scores of keys [0, keys) into weights; only keys [low, high) are visible. Returns the largest score.
float weigh(float* scores, int64_t keys, int64_t low, int64_t high, float* sum) {
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
INLINE void gather_panels(const float* weights, const T* const* pages, int64_t keys, int64_t dim, float* out, int64_t padded) {
    Tile<MR, NP> tile = {};
    for (int64_t p = 0; p * PAGE < keys; p++)
        multiply(tile, weights + p * PAGE, BLOCK, pages[p], PANEL, dim, std::min<int64_t>(PAGE, keys - p * PAGE));
    for (int m = 0; m < MR; m++)
        for (int p = 0; p < NP; p++) {
            store(out + m * padded + p * PANEL, tile.sum[m][p][0]);
            store(out + m * padded + p * PANEL + W, tile.sum[m][p][1]);
        }
}

// The dimensions after the last whole panel, one at a time, in the place where `load_pair` would put them.
template <class T>
void gather_rest(const float* weights, const T* const* pages, int64_t keys, int64_t dim, float* out) {
    for (int64_t d = dim / PANEL * PANEL; d < dim; d++) {
        float sum = 0;
        for (int64_t j = 0; j < keys; j++) sum += weights[j] * widen(pages[j / PAGE][j % PAGE * dim + d]);
        out[d / PANEL * PANEL + pair_place<T>(d % PANEL)] = sum;
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
    const Attention<T>& job, const Unit& unit, int64_t row, int64_t start, const T* const* keys, const T* const* values,
    const float* q, float* scores, State& state
) {
    int64_t heads = job.heads_of_group(), dim = job.dim, padded = job.padded();
    int64_t first = unit.position + row / heads, last = unit.position + (row + MR - 1) / heads;
    int64_t count = std::min<int64_t>(BLOCK, last + 1 - start);
    for (int m = 0; m < MR; m++) state.largest[row + m] = NOTHING;
    if (count <= 0 || first - job.window + 1 >= start + BLOCK) return;
    score<MR>(q + row * dim, dim, keys, (count + PAGE - 1) / PAGE, scores);
    for (int m = 0; m < MR; m++) {
        int64_t position = unit.position + (row + m) / heads, high = position + 1 - start;
        state.largest[row + m] = weigh(scores + m * BLOCK, count, high - job.window, high, state.sum + row + m);
    }
    gather<MR>(scores, values, count, dim, state.values + row * padded, padded);
}

template <class T, int MR = GROUP>
INLINE void attend_group(
    int64_t count, const Attention<T>& job, const Unit& unit, int64_t row, int64_t start, const T* const* keys,
    const T* const* values, const float* q, float* scores, State& state
) {
    if (count == MR) return attend_rows<MR>(job, unit, row, start, keys, values, q, scores, state);
    if constexpr (MR > 1) attend_group<T, MR - 1>(count, job, unit, row, start, keys, values, q, scores, state);
}

// All query rows of a unit against one block.
template <class T>
void attend_block(
    const Attention<T>& job, const Unit& unit, int64_t block, const float* q, float* scores, State& state
) {
    constexpr int64_t PAGES = BLOCK / PAGE;
    const T *keys[PAGES], *values[PAGES];
    const int32_t* table = job.page_table + unit.row * job.table_stride;
    int64_t end = (unit.position + unit.tokens - 1) / PAGE + 1;  // pages that the unit's last query sees
    int64_t within_page = unit.group * job.dim * PAGE;
    for (int64_t p = 0; p < PAGES && block * PAGES + p < end; p++) {
        int64_t page = table[block * PAGES + p] * job.page_stride + within_page;
        keys[p] = job.keys + page;
        values[p] = job.values + page;
    }
    int64_t rows = unit.tokens * job.heads_of_group();
    for (int64_t row = 0; row < rows; row += GROUP)
        attend_group<T>(std::min<int64_t>(GROUP, rows - row), job, unit, row, block * BLOCK, keys, values, q, scores, state);
}

// Add a block's state to what the blocks before it gave.
void merge(State& all, const State& block, int64_t rows, int64_t padded) {
    for (int64_t row = 0; row < rows; row++) {
        if (block.largest[row] == NOTHING) continue;
        float largest = std::max(all.largest[row], block.largest[row]);
        vf before = exponential(splat(all.largest[row] - largest)), now = exponential(splat(block.largest[row] - largest));
        all.largest[row] = largest;
        all.sum[row] = all.sum[row] * before[0] + block.sum[row] * now[0];
        float* values = all.values + row * padded;
        const float* added = block.values + row * padded;
        for (int64_t d = 0; d < padded; d += W) store(values + d, load(values + d) * before + load(added + d) * now);
    }
}

void clear(State& state, int64_t rows, int64_t padded) {
    std::fill_n(state.largest, rows, NOTHING);
    std::fill_n(state.sum, rows, 0.0f);
    std::fill_n(state.values, rows * padded, 0.0f);
}

// The unit's query rows, scaled, [rows, dim].
template <class T>
void collect_queries(const Attention<T>& job, const Unit& unit, float* q) {
    int64_t heads = job.heads_of_group(), dim = job.dim, stride = (job.query_heads + 2 * job.kv_heads) * dim;
    for (int64_t t = 0; t < unit.tokens; t++) {
        const float* from = job.qkv + (unit.token + t) * stride + unit.group * heads * dim;
        for (int64_t i = 0; i < heads * dim; i++) q[t * heads * dim + i] = from[i] * job.scale;
    }
}

template <class T>
void write_out(const Attention<T>& job, const Unit& unit, const State& state) {
    int64_t heads = job.heads_of_group(), dim = job.dim, padded = job.padded();
    for (int64_t row = 0; row < unit.tokens * heads; row++) {
        int64_t token = unit.token + row / heads, head = unit.group * heads + row % heads;
        float* out = job.out + (token * job.query_heads + head) * dim;
        for (int64_t d = 0; d < padded; d += PANEL) {
            const float* at = state.values + row * padded + d;
            vf first = load(at) / state.sum[row], second = load(at + W) / state.sum[row];
            float natural[PANEL];
            store_pair<T>(natural, first, second);
            std::memcpy(out + d, natural, std::min<int64_t>(PANEL, dim - d) * 4);
        }
    }
}

template <class T>
std::vector<Unit> plan(const Attention<T>& job) {
    std::vector<Unit> units;
    int64_t step = std::max<int64_t>(1, TILE_ROWS / job.heads_of_group());
    for (int64_t row = 0; row < job.rows; row++) {
        int64_t begin = job.row_starts[row], end = job.row_starts[row + 1];
        for (int64_t token = begin; token < end; token += step) {
            int64_t tokens = std::min(step, end - token), position = job.context[row] - (end - token);
            int64_t first = std::max<int64_t>(0, position - job.window + 1) / BLOCK;
            int64_t last = (position + tokens - 1) / BLOCK;
            for (int64_t group = 0; group < job.kv_heads; group++)
                units.push_back({row, token, tokens, group, position, first, last + 1});
        }
    }
    return units;
}

// Each unit on one thread, the later ones (longer contexts, as a rule) first.
template <class T>
void run_units(const Attention<T>& job, const std::vector<Unit>& units, int threads) {
    int64_t padded = job.padded(), heads = job.heads_of_group();
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t i = (int64_t)units.size() - 1; i >= 0; i--) {
        const Unit& unit = units[i];
        int64_t rows = unit.tokens * heads, state = State::floats(rows, padded);
        float* memory = scratch(2 * state + rows * job.dim + GROUP * BLOCK);
        State all(memory, rows, padded), block(memory + state, rows, padded);
        float *q = memory + 2 * state, *scores = q + rows * job.dim;
        collect_queries(job, unit, q);
        clear(all, rows, padded);
        for (int64_t b = unit.first_block; b < unit.end_block; b++) {
            attend_block(job, unit, b, q, scores, block);
            merge(all, block, rows, padded);
        }
        write_out(job, unit, all);
    }
}

// Few units over long contexts: the blocks of a unit spread over the threads, then merged in order.
template <class T>
void run_blocks(const Attention<T>& job, const std::vector<Unit>& units, int threads) {
    struct Task {
        const Unit* unit;
        int64_t block, at;
    };
    int64_t padded = job.padded(), heads = job.heads_of_group(), floats = 0;
    std::vector<Task> tasks;
    for (const Unit& unit : units)
        for (int64_t b = unit.first_block; b < unit.end_block; b++) {
            tasks.push_back({&unit, b, floats});
            floats += State::floats(unit.tokens * heads, padded);
        }
    std::unique_ptr<float[]> states(new float[floats]);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < (int64_t)tasks.size(); i++) {
        const Unit& unit = *tasks[i].unit;
        int64_t rows = unit.tokens * heads;
        float *q = scratch(rows * job.dim + GROUP * BLOCK), *scores = q + rows * job.dim;
        State state(states.get() + tasks[i].at, rows, padded);
        collect_queries(job, unit, q);
        attend_block(job, unit, tasks[i].block, q, scores, state);
    }
    const Task* task = tasks.data();
    for (const Unit& unit : units) {
        int64_t rows = unit.tokens * heads;
        State all(scratch(State::floats(rows, padded)), rows, padded);
        clear(all, rows, padded);
        for (int64_t b = unit.first_block; b < unit.end_block; b++, task++)
            merge(all, State(states.get() + task->at, rows, padded), rows, padded);
        write_out(job, unit, all);
    }
}

template <class T>
void attention(const Attention<T>& job, int threads) {
    std::vector<Unit> units = plan(job);
    int64_t blocks = 0;
    for (const Unit& unit : units) blocks += unit.end_block - unit.first_block;
    if (threads > 1 && (int64_t)units.size() < 4 * threads && blocks > (int64_t)units.size())
        run_blocks(job, units, threads);
    else
        run_units(job, units, blocks > 1 ? threads : 1);
}

}  // namespace

// `window` is at least as large as any context when there is none.
extern "C" void forebay_attention(
    const float* qkv, float* out, const void* keys, const void* values, int64_t page_stride, const int32_t* row_starts,
    const int32_t* context, const int32_t* page_table, int64_t table_stride, int64_t rows, int64_t query_heads,
    int64_t kv_heads, int64_t dim, int64_t window, float scale, int bytes, int threads
) {
    if (bytes == 2)
        attention(
            Attention<bf16>{
                qkv, out, (const bf16*)keys, (const bf16*)values, page_stride, row_starts, context, page_table,
                table_stride, rows, query_heads, kv_heads, dim, window, scale
            },
            threads
        );
    else
        attention(
            Attention<float>{
                qkv, out, (const float*)keys, (const float*)values, page_stride, row_starts, context, page_table,
                table_stride, rows, query_heads, kv_heads, dim, window, scale
            },
            threads
        );
}
