// Working memory that is kept between calls: fresh pages from the system cost more than the copies made into them.
#pragma once
#include <stdint.h>
#include <stdlib.h>

namespace {

// One growing, 64-byte aligned buffer per purpose and calling thread; worker threads get parts of it.
struct Scratch {
    void* memory = nullptr;
    size_t bytes = 0;

    ~Scratch() { free(memory); }

    template <typename T>
    T* take(int64_t count) {
        size_t wanted = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64 + 64;
        if (wanted > bytes) {
            free(memory);
            bytes = 0;
            memory = nullptr;
            if (posix_memalign(&memory, 64, wanted) != 0) {
                memory = nullptr;
                return nullptr;
            }
            bytes = wanted;
        }
        return static_cast<T*>(memory);
    }
};

struct Workspace {
    Scratch packed, weights, terms, offsets, sums, statistics;
};

Workspace& workspace() {
    static thread_local Workspace kept;
    return kept;
}

}  // namespace
