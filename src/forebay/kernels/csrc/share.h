// How the tasks of one operation are shared among the threads. What a task is, the operations say.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

// Run `work(task)` for tasks [0, tasks). Each thread goes through a stretch of its own, so that what it asks the memory
// for ahead is what it needs next; one that is done takes tasks from the stretches of those that are not, so that a
// thread that is held up costs little.
template <class Work>
void share(int64_t tasks, int threads, const Work& work) {
    if (threads <= 1) {
        for (int64_t task = 0; task < tasks; task++) work(task);
        return;
    }
    constexpr int MOST = 64;  // stretches; threads beyond share them
    struct alignas(64) Stretch {
        std::atomic<int64_t> next;
        int64_t end;
    };
    Stretch stretches[MOST];
    int count = std::min(threads, MOST);
    for (int i = 0; i < count; i++) {
        stretches[i].next.store(tasks * i / count, std::memory_order_relaxed);
        stretches[i].end = tasks * (i + 1) / count;
    }
#pragma omp parallel num_threads(threads)
    for (int i = 0, own = omp_get_thread_num(); i < count; i++) {
        Stretch& stretch = stretches[(own + i) % count];
        for (int64_t task; (task = stretch.next.fetch_add(1, std::memory_order_relaxed)) < stretch.end;) work(task);
    }
}
