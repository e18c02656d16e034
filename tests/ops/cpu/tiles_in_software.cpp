// The passes for bfloat16 in tile registers alone, their intrinsics replaced by plain C++. Working memory is new
// in every pass, no larger than asked for, and NaN: a pass that uses what it has not written shows it.
#include <stdlib.h>

#include "vectors_in_software.h"

namespace in_software {

inline int allocate_nan(void** memory, size_t alignment, size_t bytes) {
    const int status = posix_memalign(memory, alignment, bytes);
    if (status == 0) memset(*memory, 0xff, bytes);
    return status;
}

}  // namespace in_software

#define posix_memalign in_software::allocate_nan
#include "passes.cpp"

namespace {

void forget_workspace() {
    for (Scratch* scratch : {&workspace().packed, &workspace().weights, &workspace().terms, &workspace().offsets,
                             &workspace().sums, &workspace().statistics}) {
        free(scratch->memory);
        scratch->memory = nullptr;
        scratch->bytes = 0;
    }
}

}  // namespace

#define PASS(name)                                                                   \
    __attribute__((visibility("default"))) int name(const Problem* problem, int) { \
        forget_workspace();                                                          \
        return name##_amx(problem);                                                  \
    }

extern "C" {
PASS(acf_forward)
PASS(acf_input_gradient)
PASS(acf_weight_gradient)
}
