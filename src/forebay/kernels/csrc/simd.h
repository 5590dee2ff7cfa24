// Vectors of W floats in GCC's vector extensions, bf16 conversion and exp. No operation on tensors.
//
// One source for AVX-512 (W = 16), AVX2 (8) and 128-bit sets such as NEON (4). Without -ffast-math the compiler keeps
// the order of additions as written, which is what makes results independent of the batch. With FOREBAY_LANES, which
// tests define, vectors have so many lanes on any processor, and no instruction set is named.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(FOREBAY_LANES)
constexpr int W = FOREBAY_LANES;
constexpr int ACCUMULATORS = W == 8 ? 12 : 24;
#elif defined(__AVX512F__)
#define FOREBAY_AVX512
constexpr int W = 16;
constexpr int ACCUMULATORS = 24;  // of 32 registers
#elif defined(__AVX2__)
#define FOREBAY_AVX2
constexpr int W = 8;
constexpr int ACCUMULATORS = 12;  // of 16 registers
#elif defined(__aarch64__)
#define FOREBAY_NEON
constexpr int W = 4;
constexpr int ACCUMULATORS = 24;
#else
constexpr int W = 4;
constexpr int ACCUMULATORS = 12;
#endif

constexpr int PAGE = 16;  // tokens of a KV page

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef uint16_t vh __attribute__((vector_size(W * 2)));

#define INLINE static inline __attribute__((always_inline))
// Compiled once: where a sum of two products may be fused in two ways, all callers must get the same one.
#define ONCE static __attribute__((noinline))

struct bf16 {
    uint16_t bits;
};

INLINE vf splat(float x) { return x - vf{}; }  // x - 0 is x for every x, so this is a plain broadcast

INLINE vf load(const float* p) {
    vf v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float* p, vf v) { std::memcpy(p, &v, sizeof v); }

// One vector of values in order.
INLINE vf load_natural(const float* p) { return load(p); }
INLINE vf load_natural(const bf16* p) {
    vh v;
    std::memcpy(&v, p, sizeof v);
    return (vf)(__builtin_convertvector(v, vu) << 16);
}

// Two vectors of 2W consecutive values. 32 bits: the first and the second W. bf16: the even and the odd ones, because that
// needs no shuffle: one shift and one mask widen 2W values.
INLINE void load_pair(const float* p, vf& first, vf& second) {
    first = load(p);
    second = load(p + W);
}
INLINE void load_pair(const bf16* p, vf& first, vf& second) {
    vu v;
    std::memcpy(&v, p, sizeof v);
    first = (vf)(v << 16);
    second = (vf)(v & 0xffff0000u);
}

// Where value i of 2W stands after `load_pair` of T: the place within the two vectors.
template <class T>
constexpr int pair_place(int i) {
    return sizeof(T) == 2 ? (i % 2) * W + i / 2 : i;
}

// Write the two vectors of a `load_pair` of T back in natural order.
template <class T>
INLINE void store_pair(float* p, vf first, vf second) {
    if (sizeof(T) == 4) {
        store(p, first);
        store(p + W, second);
        return;
    }
    vi low, high;
    for (int i = 0; i < W; i++) {
        low[i] = i / 2 + (i % 2) * W;
        high[i] = low[i] + W / 2;
    }
    store(p, __builtin_shuffle(first, second, low));
    store(p + W, __builtin_shuffle(first, second, high));
}

// Write 64 aligned bytes past the caches where the processor can; `streamed` ends a run of them.
#if defined(__AVX2__)
INLINE void stream_line(char* to, const char* from) {
    __m256i first = _mm256_loadu_si256((const __m256i*)from), second = _mm256_loadu_si256((const __m256i*)from + 1);
    _mm256_stream_si256((__m256i*)to, first);
    _mm256_stream_si256((__m256i*)to + 1, second);
}
INLINE void streamed() { _mm_sfence(); }
#else
INLINE void stream_line(char* to, const char* from) { std::memcpy(to, from, 64); }
INLINE void streamed() {}
#endif

// sum + a * b, rounded once where the processor can. Written as a sum of a product, the compiler may or may not fuse it,
// as it finds best for each place; results would depend on the place, the compiler and the processor.
INLINE float multiply_add(float sum, float a, float b) {
#if defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, sum);
#else
    return sum + a * b;
#endif
}
INLINE vf multiply_add(vf sum, vf a, vf b) {
#if defined(FOREBAY_AVX512)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(FOREBAY_AVX2) && defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(FOREBAY_NEON)
    return (vf)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#elif defined(FOREBAY_LANES) && defined(__FMA__)
    for (int i = 0; i < W; i += 4) {
        __m128 parts[3];
        const vf* whole[3] = {&a, &b, &sum};
        for (int j = 0; j < 3; j++) std::memcpy(parts + j, (const float*)whole[j] + i, sizeof *parts);
        parts[2] = _mm_fmadd_ps(parts[0], parts[1], parts[2]);
        std::memcpy((float*)&sum + i, parts + 2, sizeof *parts);
    }
    return sum;
#else
    for (int i = 0; i < W; i++) sum[i] = multiply_add((float)sum[i], (float)a[i], (float)b[i]);
    return sum;
#endif
}

INLINE float widen(float x) { return x; }
INLINE float widen(bf16 x) {
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Round to nearest even, as torch does.
INLINE void narrow(float x, float* out) { *out = x; }
INLINE void narrow(float x, bf16* out) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    out->bits = x != x ? 0x7fc0 : (uint16_t)rounded;
}

INLINE vh narrow(vf x) {
#if defined(FOREBAY_AVX512) && defined(__AVX512BF16__)
    return (vh)_mm512_cvtneps_pbh((__m512)x);  // numbers below fp32's least normal one become 0
#else
    vu bits = (vu)x, rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return __builtin_convertvector(x == x ? rounded : vu{} + 0x7fc0u, vh);
#endif
}

INLINE vf maximum(vf a, vf b) { return a > b ? a : b; }

// Where a shuffle takes each of N values from, known to the compiler (which builds it anew each time otherwise).
template <class T, int N>
struct Order {
    alignas(64) T place[N];

    template <class From>
    constexpr explicit Order(From from) : place() {
        for (int i = 0; i < N; i++) place[i] = (T)from(i);
    }
};

// The same in every lane: what `join` makes of all lanes, halves first.
template <int HALF = W / 2, class V, class Join>
INLINE V over_lanes(V v, const Join& join) {
    static constexpr Order<int32_t, W> rotated([](int i) { return (i + HALF) % W; });
    vi from;
    std::memcpy(&from, rotated.place, sizeof from);
    v = join(v, __builtin_shuffle(v, from));
    if constexpr (HALF > 1) return over_lanes<HALF / 2>(v, join);
    return v;
}

// The sum of N vectors' lanes, halves first: the same order for any W, when N * W is the same.
template <int N>
INLINE float sum_of_lanes(vf (&sums)[N]) {
#pragma GCC unroll 4
    for (int half = N / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    return over_lanes(sums[0], [](vf a, vf b) { return a + b; })[0];
}

// The largest in every lane.
INLINE vf spread_max(vf v) { return over_lanes(v, maximum); }

INLINE float horizontal_max(vf v) { return spread_max(v)[0]; }

// e^x to about 1e-7 relative; exactly 1 at 0 and exactly 0 below -87 (so a masked score weighs nothing).
INLINE vf exponential(vf x) {
    const vf low = splat(-87.0f), high = splat(88.0f), magic = splat(12582912.0f);  // 1.5 * 2^23: rounds to an integer
    vi vanishes = x < low;
    vf t = x < low ? low : (x > high ? high : x);
    vf shifted = multiply_add(magic, t, splat(1.44269504f));
    vf n = shifted - magic;
    vf r = multiply_add(t, n, splat(-0.693359375f));
    r = multiply_add(r, n, splat(2.12194440e-4f));
    vf p = splat(1.9875691500e-4f);
    p = multiply_add(splat(1.3981999507e-3f), p, r);
    p = multiply_add(splat(8.3334519073e-3f), p, r);
    p = multiply_add(splat(4.1665795894e-2f), p, r);
    p = multiply_add(splat(1.6666665459e-1f), p, r);
    p = multiply_add(splat(5.0000001201e-1f), p, r);
    p = multiply_add(r, p, r * r) + 1.0f;
    vi exponent = ((vi)shifted - (vi)magic) << 23;
    vf result = (vf)((vi)p + exponent);
    return vanishes ? vf{} : result;
}

// 2^r for |r| <= 1/2, highest power first: to about 1e-7, and to 1e-4, which is enough for what becomes bf16.
struct Fine {
    static constexpr int degree = 6;
    static constexpr float terms[] = {1.535336188319500e-4f, 1.339887440266574e-3f, 9.618437357674640e-3f,
                                      5.550332471162809e-2f, 2.402264791363012e-1f, 6.931472028550421e-1f, 1.0f};
};
struct Coarse {
    static constexpr int degree = 3;
    static constexpr float terms[] = {5.500869080424309e-2f, 2.422106266021729e-1f, 6.932829022407532e-1f, 1.0f};
};

// 2^x for x <= 0, relatively as exact as the polynomial; exactly 1 at 0 and exactly 0 below -126 (so a masked score
// weighs nothing). Several vectors at a time: one after the other, they wait for each other's chains of multiply-adds,
// of which processors look too few ahead.
template <class Polynomial = Fine, int N>
INLINE void power_of_two(vf (&x)[N]) {
    const vf low = splat(-126.0f), magic = splat(12582912.0f);  // 1.5 * 2^23: rounds to an integer
    vf r[N], p[N];
    vi exponent[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) {
        vf t = maximum(low, x[i]), shifted = t + magic;
        r[i] = t - (shifted - magic);
        exponent[i] = ((vi)shifted - (vi)magic) << 23;
        p[i] = splat(Polynomial::terms[0]);
    }
#pragma GCC unroll 6
    for (int term = 1; term <= Polynomial::degree; term++)
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) p[i] = multiply_add(splat(Polynomial::terms[term]), p[i], r[i]);
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) x[i] = x[i] < low ? vf{} : (vf)((vi)p[i] + exponent[i]);
}
