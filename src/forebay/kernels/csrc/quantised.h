// How weights are stored, and the linear layers over quantised ones (quantised.cpp).
#pragma once

#include "linear.h"

// Numbers as in `library.py`. INT4: weight = value * scale + offset; INT8: weight = value * scale; scale and offset of
// 32 consecutive inputs are fp16 or fp32.
enum Format { FP32 = 0, BF16 = 1, INT4_FP16 = 2, INT4_FP32 = 3, INT8_FP16 = 4 };

// In the place of a number of rows that are few: inputs are rounded, beside quantised weights to 8 bits, beside bf16 to
// bf16, and products are made of what they are rounded to.
constexpr int ROUNDED_INPUTS = -1;

// `job` without panels: they are quantised and at `panels`.
void quantised_linear(int format, const Linear<float>& job, const char* panels, int threads);
void integer_linear(int format, const Linear<float>& job, const char* panels, int threads);  // integer.cpp
void quantised_embed(int format, const int32_t* ids, const char* panels, float* out, int64_t tokens, int64_t inputs);
