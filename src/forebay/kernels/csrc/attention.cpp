// Causal attention over KV pages: which thread attends to what. Projections and the rotary embedding are elsewhere.
//
// Keys are taken in blocks of 128, aligned to position 0 whatever the step computes. Each block gives every query a
// softmax of its own (largest score, sum, weighted values), and the blocks are merged in order. A query's result is
// therefore the same bits in any tile of queries and with the blocks spread over any threads.
#include <vector>

#include "attend_block.h"
#include "scratch.h"

namespace {

constexpr int TILE_ROWS = 96;  // about this many query rows (tokens x heads of a group) share a pass over the KV
constexpr float LOG2_E = 1.44269504f;
constexpr int64_t SERIAL_WORK = 1 << 19;  // multiply-adds, some 20 us, below which starting threads costs too much

// Add a block's state to what the blocks before it gave.
ONCE void merge(const State& all, const State& block, int64_t rows, int64_t padded) {
    float before[W], now[W];  // what W rows' sums count, set once for all of them
    for (int64_t row = 0; row < rows; row++) {
        int64_t lane = row % W;
        if (lane == 0) {
            vf old = load(all.largest + row), added = load(block.largest + row), largest = maximum(old, added);
            vf weights[] = {old - largest, added - largest};
            power_of_two(weights);
            store(before, weights[0]);
            store(now, weights[1]);
        }
        if (block.largest[row] == NOTHING) continue;
        all.largest[row] = std::max(all.largest[row], block.largest[row]);
        all.sum[row] = multiply_add(all.sum[row] * before[lane], block.sum[row], now[lane]);
        vf kept = splat(before[lane]), taken = splat(now[lane]);
        float* values = all.values + row * padded;
        const float* added = block.values + row * padded;
        for (int64_t d = 0; d < padded; d += W)
            store(values + d, multiply_add(load(values + d) * kept, load(added + d), taken));
    }
}

void clear(const State& state, int64_t rows, int64_t padded) {
    std::fill_n(state.largest, rows, NOTHING);
    std::fill_n(state.sum, rows, 0.0f);
    std::fill_n(state.values, rows * padded, 0.0f);
}

// The unit's query rows, [groups, rows, dim], scaled for weights that are powers of two, and in pairs where T is.
template <class T>
void collect_queries(const Attention<T>& job, const Unit& unit, float* q) {
    int64_t heads = job.heads_of_group(), dim = job.dim, stride = (job.query_heads + 2 * job.kv_heads) * dim;
    float scale = job.scale * LOG2_E;
    for (int64_t group = unit.group; group < unit.group_end; group++)
        for (int64_t t = 0; t < unit.tokens; t++, q += heads * job.query()) {
            const float* from = job.qkv + (unit.token + t) * stride + group * heads * dim;
            for (int64_t i = 0; i < heads * dim; i++)
                if constexpr (IN_PAIRS<T>)
                    narrow(from[i] * scale, (bf16*)q + i);
                else
                    q[i] = from[i] * scale;
        }
}

template <class T>
void write_out(const Attention<T>& job, const Unit& unit, int64_t group, const State& state) {
    int64_t heads = job.heads_of_group(), dim = job.dim, padded = job.padded();
    for (int64_t row = 0; row < unit.tokens * heads; row++) {
        int64_t token = unit.token + row / heads, head = group * heads + row % heads;
        float* out = job.out + (token * job.query_heads + head) * dim;
        vf share = splat(1.0f / state.sum[row]);
        for (int64_t d = 0; d < padded; d += PANEL) {
            const float* at = state.values + row * padded + d;
            vf first = load(at) * share, second = load(at + W) * share;
            if (d + PANEL <= dim) {
                store_pair<T>(out + d, first, second);
                continue;
            }
            float natural[PANEL];
            store_pair<T>(natural, first, second);
            std::memcpy(out + d, natural, (dim - d) * 4);
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
            // The KV heads of a page lie side by side: few queries take them all, which reads memory in longer runs.
            int64_t groups = tokens * job.query_heads <= TILE_ROWS ? job.kv_heads : 1;
            for (int64_t group = 0; group < job.kv_heads; group += groups)
                units.push_back({row, token, tokens, group, group + groups, position, first, last + 1});
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
        int64_t rows = unit.tokens * heads, groups = unit.group_end - unit.group, floats = State::floats(rows, padded);
        float* memory = scratch((groups + 1) * floats + groups * rows * job.query() + MOST * BLOCK);
        State block(memory + groups * floats, rows, padded);
        auto all = [&](int64_t g) { return State(memory + g * floats, rows, padded); };
        float *q = memory + (groups + 1) * floats, *scores = q + groups * rows * job.query();
        collect_queries(job, unit, q);
        for (int64_t g = 0; g < groups; g++) clear(all(g), rows, padded);
        for (int64_t b = unit.first_block; b < unit.end_block; b++)
            for (int64_t g = 0; g < groups; g++) {
                attend_block(job, unit, unit.group + g, b, q + g * rows * job.query(), scores, block);
                merge(all(g), block, rows, padded);
            }
        for (int64_t g = 0; g < groups; g++) write_out(job, unit, unit.group + g, all(g));
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
            floats += (unit.group_end - unit.group) * State::floats(unit.tokens * heads, padded);
        }
    std::unique_ptr<float[]> states(new float[floats]);
    auto of_block = [&](int64_t at, int64_t group, int64_t rows) {
        return State(states.get() + at + group * State::floats(rows, padded), rows, padded);
    };
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < (int64_t)tasks.size(); i++) {
        const Unit& unit = *tasks[i].unit;
        int64_t rows = unit.tokens * heads, groups = unit.group_end - unit.group;
        float *q = scratch(groups * rows * job.query() + MOST * BLOCK), *scores = q + groups * rows * job.query();
        collect_queries(job, unit, q);
        for (int64_t g = 0; g < groups; g++) {
            State state = of_block(tasks[i].at, g, rows);
            attend_block(job, unit, unit.group + g, tasks[i].block, q + g * rows * job.query(), scores, state);
        }
    }
    const Task* task = tasks.data();
    for (const Unit& unit : units) {
        int64_t rows = unit.tokens * heads, blocks = unit.end_block - unit.first_block;
        State all(scratch(State::floats(rows, padded)), rows, padded);
        for (int64_t g = 0; g < unit.group_end - unit.group; g++) {
            clear(all, rows, padded);
            for (int64_t b = 0; b < blocks; b++) merge(all, of_block(task[b].at, g, rows), rows, padded);
            write_out(job, unit, unit.group + g, all);
        }
        task += blocks;
    }
}

template <class T>
void attention(const Attention<T>& job, int threads) {
    std::vector<Unit> units = plan(job);
    int64_t blocks = 0, work = 0;
    for (const Unit& unit : units) {
        int64_t count = unit.end_block - unit.first_block;
        blocks += count;
        work += unit.tokens * job.heads_of_group() * (unit.group_end - unit.group) * count * BLOCK * job.dim * 2;
    }
    if (work < SERIAL_WORK) threads = 1;
    if (threads > 1 && (int64_t)units.size() < 4 * threads && blocks > (int64_t)units.size())
        run_blocks(job, units, threads);
    else
        run_units(job, units, threads);
}

}  // namespace

// `window` is at least as large as any context when there is none. K and V of 2 bytes are bf16; with `rounded`, queries
// and weights become bf16 too.
extern "C" void forebay_attention(
    const float* qkv, float* out, const void* keys, const void* values, int64_t page_stride, const int32_t* row_starts,
    const int32_t* context, const int32_t* page_table, int64_t table_stride, int64_t rows, int64_t query_heads,
    int64_t kv_heads, int64_t dim, int64_t window, float scale, int bytes, int rounded, int threads
) {
    auto attend = [&](auto how) {
        typedef decltype(how) T;
        attention(
            Attention<T>{
                qkv, out, (const Held<T>*)keys, (const Held<T>*)values, page_stride, row_starts, context, page_table,
                table_stride, rows, query_heads, kv_heads, dim, window, scale
            },
            threads
        );
    };
    if (bytes == 4)
        attend(float());
    else if (rounded)
        attend(bf16_pair());
    else
        attend(bf16());
}
