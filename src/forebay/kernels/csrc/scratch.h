// Memory of one thread, kept between calls and as large as the largest request so far.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

inline float* scratch(int64_t floats) {
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
