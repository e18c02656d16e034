// The C interface: the instruction set is chosen once, by what the processor has and the system saves.
#include "problem.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define ACF_X86 1
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace {

enum InstructionSet : int { PORTABLE = 0, AVX2 = 1, AVX512 = 2, AVX512BF16 = 3, AMX = 4 };

#ifdef ACF_X86
uint64_t saved_register_state() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux saves tile registers of processes that asked for them; the answer holds for all threads.
bool may_use_tiles() {
#if defined(ACF_HAS_amx) && defined(__linux__) && defined(SYS_arch_prctl)
    constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const bool has_tiles = (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16 and AMX-TILE
    const bool saved = (saved_register_state() >> 17 & 3) == 3;
    return has_tiles && saved && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

int detect() {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return PORTABLE;
    const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1;
    if (!fma || !osxsave || !avx) return PORTABLE;
    const uint64_t saved = saved_register_state();
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return PORTABLE;
    const bool avx2 = b >> 5 & 1;
    // F, DQ, BW and VL: what the AVX-512 objects are compiled for.
    const bool avx512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
    if (!avx512 || !avx2 || (saved & 0xe6) != 0xe6) return avx2 ? AVX2 : PORTABLE;
#ifdef ACF_HAS_avx512bf16  // else the compiler did not know it
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1)) return may_use_tiles() ? AMX : AVX512BF16;
#endif
    return AVX512;
}
#else
int detect() { return PORTABLE; }
#endif

}  // namespace

extern "C" {

// The best instruction set that can run here, of the enumeration above.
__attribute__((visibility("default"))) int acf_best_instruction_set() {
    static const int best = detect();
    return best;
}

// Products of bfloat16 pairs and tiles of them serve bfloat16 only; the rest is AVX-512.
#ifdef ACF_HAS_amx
#define ACF_DISPATCH_TILES(pass) \
    if (instruction_set == AMX && problem->bfloat16) return pass##_amx(problem);
#else
#define ACF_DISPATCH_TILES(pass)
#endif
#ifdef ACF_HAS_avx512bf16
#define ACF_DISPATCH_PAIRS(pass) \
    if (instruction_set >= AVX512BF16 && problem->bfloat16) return pass##_avx512bf16(problem);
#else
#define ACF_DISPATCH_PAIRS(pass)
#endif

#ifdef ACF_X86
#define ACF_DISPATCH(pass, Argument, tiles)                                                         \
    __attribute__((visibility("default"))) int pass(const Argument* problem, int instruction_set) { \
        tiles ACF_DISPATCH_PAIRS(pass)                                                              \
        if (instruction_set >= AVX512) return pass##_avx512(problem);                               \
        if (instruction_set == AVX2) return pass##_avx2(problem);                                   \
        return pass##_portable(problem);                                                            \
    }
#else
#define ACF_DISPATCH(pass, Argument, pairs) \
    __attribute__((visibility("default"))) int pass(const Argument* problem, int) { return pass##_portable(problem); }
#endif

ACF_DISPATCH(acf_forward, Problem, ACF_DISPATCH_TILES(acf_forward))
ACF_DISPATCH(acf_input_gradient, Problem, ACF_DISPATCH_TILES(acf_input_gradient))
ACF_DISPATCH(acf_weight_gradient, Problem, ACF_DISPATCH_TILES(acf_weight_gradient))
ACF_DISPATCH(acf_mlp_forward, MlpProblem, )
ACF_DISPATCH(acf_mlp_backward, MlpProblem, )
}
