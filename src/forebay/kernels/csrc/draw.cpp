// Logits to tokens: the most likely one, or a draw after temperature, top_k, top_p and min_p. The random number comes
// from the caller, and penalties and grammars have been applied. A row's token depends on its own logits only.
//
// Nothing is sorted but what the filters can keep: weights are counted in bins of an eighth of an octave first.
#include <algorithm>
#include <limits>
#include <vector>

#include "scratch.h"
#include "simd.h"

namespace {

// Fields as in `draw.py`.
struct Pick {
    double temperature, top_p, min_p, point;
    int64_t row, top_k;
};

constexpr int64_t BLOCK = 256;  // weights that are summed in fp32
constexpr int LANES = 16;      // of its sums, whatever W is
constexpr int BINS = 1024;
constexpr uint32_t ONE = 0x3f800000;

// Index of the first of the largest values; NaN never is.
int64_t largest(const float* x, int64_t n) {
    constexpr int CHAINS = 4;
    float best = -std::numeric_limits<float>::infinity();
    vf most[CHAINS];
    for (vf& m : most) m = splat(best);
    int64_t i = 0;
    for (; i + CHAINS * W <= n; i += CHAINS * W)
        for (int c = 0; c < CHAINS; c++) most[c] = maximum(load(x + i + c * W), most[c]);
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    for (vf& m : most) best = std::max(best, horizontal_max(m));
    for (i = 0; i < n; i++)
        if (x[i] == best) return i;
    return 0;
}

// The weights e^((logit - largest) / temperature) of a row, and their sums and maxima by block.
struct Weights {
    const float* values;
    int64_t size;
    const float* sums;
    const float* maxima;
    double total;

    int64_t blocks() const { return (size + BLOCK - 1) / BLOCK; }
    int64_t end(int64_t block) const { return std::min((block + 1) * BLOCK, size); }
};

Weights weigh(const float* x, int64_t n, float best, float inverse) {
    int64_t blocks = (n + BLOCK - 1) / BLOCK, padded = blocks * BLOCK;
    float* values = scratch(padded + 2 * blocks);
    float *sums = values + padded, *maxima = sums + blocks;
    double total = 0;
    std::fill(values + n, values + padded, 0.0f);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t i = block * BLOCK, end = std::min(i + BLOCK, n);
        vf sum[LANES / W] = {}, most = {};
        auto add = [&](const float* logits, float* out) {
            for (int v = 0; v < LANES / W; v++) {
                vf weight = exponential((load(logits + v * W) - best) * inverse);
                store(out + v * W, weight);
                sum[v] += weight;
                most = maximum(weight, most);
            }
        };
        for (; i + LANES <= end; i += LANES) add(x + i, values + i);
        if (i < end) {
            float rest[LANES];
            std::fill(rest, rest + LANES, -std::numeric_limits<float>::infinity());
            std::memcpy(rest, x + i, (end - i) * sizeof *x);
            add(rest, values + i);
        }
        sums[block] = sum_of_lanes(sum);
        maxima[block] = horizontal_max(most);
        total += sums[block];
    }
    return {values, n, sums, maxima, total};
}

// The first token whose cumulative weight, in the order of ids, is above the point; never one without weight.
int64_t draw_among_all(const Weights& weights, double point) {
    double target = point * weights.total, sum = 0;
    int64_t found = 0, block = 0;
    while (sum + weights.sums[block] <= target && block + 1 < weights.blocks()) sum += weights.sums[block++];
    while (weights.sums[block] == 0) block--;  // rounding led behind the last token with weight
    for (int64_t i = block * BLOCK; i < weights.end(block); i++) {
        if (weights.values[i] == 0) continue;
        found = i;
        sum += weights.values[i];
        if (sum > target) break;
    }
    return found;
}

int bin_of(float weight) {
    uint32_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    return bits >= ONE ? 0 : (int)((ONE - bits - 1) >> 20);
}

struct Candidate {
    float logit, weight;
    int32_t id;
};

template <class Work>
void each_above(const Weights& weights, float least, const Work& work) {
    for (int64_t block = 0; block < weights.blocks(); block++) {
        if (weights.maxima[block] < least) continue;
        for (int64_t i = block * BLOCK; i < weights.end(block); i++)
            if (weights.values[i] >= least && weights.values[i] > 0) work(i, weights.values[i]);
    }
}

// The last bin that can hold something which the filters keep.
int last_bin(const Weights& weights, const Pick& pick, float least) {
    int32_t counts[BINS] = {};
    double sums[BINS] = {};
    each_above(weights, least, [&](int64_t, float weight) {
        int bin = bin_of(weight);
        counts[bin]++;
        sums[bin] += weight;
    });
    int64_t count = 0;
    double sum = 0, enough = pick.top_p * weights.total * (1 + 1e-6);
    for (int bin = 0; bin < BINS; bin++) {
        count += counts[bin];
        sum += sums[bin];
        if (pick.top_k > 0 ? count >= pick.top_k : pick.top_p < 1 && sum >= enough) return bin;
    }
    return BINS - 1;
}

// What may be kept, by falling logit (rounding can swap weights), equal ones by id.
std::vector<Candidate> candidates(const float* x, const Weights& weights, const Pick& pick) {
    // With top_k, top_p counts by what top_k keeps, also where min_p then takes some of that away.
    double least = pick.top_k > 0 ? 0 : pick.min_p * (1 - 1e-6);
    if (pick.top_k == 0 && pick.top_p < 1)
        least = std::max(least, (1 - pick.top_p) * weights.total / (double)weights.size * 0.999);
    int last = last_bin(weights, pick, (float)least);
    std::vector<Candidate> found;
    each_above(weights, (float)least, [&](int64_t i, float weight) {
        if (bin_of(weight) <= last) found.push_back({x[i], weight, (int32_t)i});
    });
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    });
    return found;
}

int64_t draw_filtered(const float* x, const Weights& weights, const Pick& pick) {
    std::vector<Candidate> found = candidates(x, weights, pick);
    double total = weights.total, sum = 0;
    if (pick.top_k > 0 && pick.top_k <= weights.size) {
        if ((int64_t)found.size() > pick.top_k) found.resize(pick.top_k);
        total = 0;
        for (const Candidate& candidate : found) total += candidate.weight;
    }
    size_t kept = 0;
    double least = pick.min_p * found[0].weight;
    while (kept < found.size() && (kept == 0 || found[kept].weight >= least)) {
        sum += found[kept++].weight;
        if (pick.top_p < 1 && sum >= pick.top_p * total) break;
    }
    double target = pick.point * sum, reached = 0;
    for (size_t i = 0; i < kept; i++) {
        reached += found[i].weight;
        if (reached > target) return found[i].id;
    }
    return found[kept - 1].id;
}

int64_t token(const float* x, int64_t n, const Pick& pick) {
    int64_t best = largest(x, n);
    if (pick.temperature <= 0) return best;
    Weights weights = weigh(x, n, x[best], (float)(1 / pick.temperature));
    bool filters = pick.top_k > 0 || pick.top_p < 1 || pick.min_p > 0;
    return filters ? draw_filtered(x, weights, pick) : draw_among_all(weights, pick.point);
}

}  // namespace

extern "C" {

// One token for each pick from logits [rows, n] with at least one finite value a row.
void forebay_draw(const float* logits, int64_t n, const void* picks, int64_t count, int64_t* out, int threads) {
    const Pick* all = (const Pick*)picks;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && count > 1)
    for (int64_t i = 0; i < count; i++) out[i] = token(logits + all[i].row * n, n, all[i]);
}
}
