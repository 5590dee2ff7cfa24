// All transformer layers of a step in one call, or a whole decode step: the operations of the other files in order, on
// buffers that stay. Nothing is computed here. What it saves is the way through Python between them, which for a small
// model is a quarter of a decode step, and that the other threads fall asleep meanwhile.
#include <cstdint>

extern "C" {

int64_t forebay_embed(const int32_t*, const void*, float*, int64_t, int64_t, int64_t, int);
void forebay_rms_norm(const float*, const float*, float*, int64_t, int64_t, float, int);
void forebay_silu_mul(const float*, float*, int64_t, int64_t, int);
void forebay_linear(
    const float*, const void*, const float*, const float*, float*, int64_t, int64_t, int64_t, int, int, int
);
void forebay_rope_and_store(
    float*, const float*, const int32_t*, const int32_t*, const float*, const float*, void*, void*, int64_t, int64_t,
    int64_t, int64_t, int64_t, float, int, int
);
void forebay_attention(
    const float*, float*, const void*, const void*, int64_t, const int32_t*, const int32_t*, const int32_t*, int64_t,
    int64_t, int64_t, int64_t, int64_t, int64_t, float, int, int, int
);

// Fields as in `layer_table.py`.
struct Matrix {
    const void* panels;
    int64_t format, few;
};

struct Layer {
    const float *attn_norm, *qkv_bias, *q_norm, *k_norm, *output_bias, *mlp_norm, *gate_up_bias, *down_bias;
    Matrix qkv, output, gate_up, down;
    int64_t window;
};

struct Shape {
    int64_t layers, hidden, query_heads, kv_heads, dim, inner, kv_bytes, rounded, page_stride, layer_bytes;
    const float* cos_sin;
    float eps, scale;
};

// What is before and after the layers.
struct Ends {
    Matrix embed, head;
    const float* final_norm;
    int64_t known, vocabulary;  // rows of `embed` and of `head`
};

struct Step {
    const int32_t *positions, *slots, *row_starts, *context, *page_table;
    int64_t table_stride, rows, tokens;
};

// `hidden` [tokens, hidden] in place. `work` holds tokens * (hidden + qkv + query_heads * dim + 3 * inner) floats.
void forebay_layers(
    const Layer* layers, const Shape* shape, const Step* step, char* pages, float* hidden, float* work, int threads
) {
    const Shape& s = *shape;
    int64_t tokens = step->tokens, mixed_size = s.query_heads * s.dim, qkv_size = mixed_size + 2 * s.kv_heads * s.dim;
    float* normed = work;
    float* qkv = normed + tokens * s.hidden;
    float* mixed = qkv + tokens * qkv_size;
    float* gate_up = mixed + tokens * mixed_size;
    float* activated = gate_up + tokens * 2 * s.inner;
    auto linear = [&](const float* x, const Matrix& weight, const float* bias, const float* residual, float* out,
                      int64_t outputs, int64_t inputs) {
        forebay_linear(
            x, weight.panels, bias, residual, out, tokens, outputs, inputs, (int)weight.format, (int)weight.few,
            threads
        );
    };
    for (int64_t i = 0; i < s.layers; i++) {
        const Layer& layer = layers[i];
        char *keys = pages + i * s.layer_bytes, *values = keys + s.layer_bytes / 2;
        forebay_rms_norm(hidden, layer.attn_norm, normed, tokens, s.hidden, s.eps, threads);
        linear(normed, layer.qkv, layer.qkv_bias, nullptr, qkv, qkv_size, s.hidden);
        forebay_rope_and_store(
            qkv, s.cos_sin, step->positions, step->slots, layer.q_norm, layer.k_norm, keys, values, s.page_stride,
            tokens, s.query_heads, s.kv_heads, s.dim, s.eps, (int)s.kv_bytes, threads
        );
        forebay_attention(
            qkv, mixed, keys, values, s.page_stride, step->row_starts, step->context, step->page_table,
            step->table_stride, step->rows, s.query_heads, s.kv_heads, s.dim, layer.window, s.scale, (int)s.kv_bytes,
            (int)s.rounded, threads
        );
        linear(mixed, layer.output, layer.output_bias, hidden, hidden, s.hidden, mixed_size);
        forebay_rms_norm(hidden, layer.mlp_norm, normed, tokens, s.hidden, s.eps, threads);
        linear(normed, layer.gate_up, layer.gate_up_bias, nullptr, gate_up, 2 * s.inner, s.hidden);
        forebay_silu_mul(gate_up, activated, tokens, s.inner, threads);
        linear(activated, layer.down, layer.down_bias, hidden, hidden, s.hidden, s.inner);
    }
}

// Token ids to logits [tokens, vocabulary] of all of them. `hidden` and `work` are as for `forebay_layers`, but `hidden`
// is written first. Returns the index of the first id that is out of range, with nothing done, or -1.
int64_t forebay_decode(
    const Layer* layers, const Shape* shape, const Ends* ends, const Step* step, const int32_t* ids, char* pages,
    float* hidden, float* work, float* logits, int threads
) {
    const Matrix &embed = ends->embed, &head = ends->head;
    int64_t tokens = step->tokens, size = shape->hidden;
    int64_t wrong = forebay_embed(ids, embed.panels, hidden, tokens, ends->known, size, (int)embed.format);
    if (wrong >= 0) return wrong;
    forebay_layers(layers, shape, step, pages, hidden, work, threads);
    forebay_rms_norm(hidden, ends->final_norm, work, tokens, size, shape->eps, threads);
    forebay_linear(
        work, head.panels, nullptr, nullptr, logits, tokens, ends->vocabulary, size, (int)head.format, (int)head.few,
        threads
    );
    return -1;
}
}
