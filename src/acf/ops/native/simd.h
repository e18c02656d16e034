// Vectors of floats by the compilers' own vector extension: one source serves every instruction set.
#pragma once
#include <stdint.h>
#include <string.h>

#define ACF_INLINE static inline __attribute__((always_inline))

namespace {

#if defined(ACF_ISA_AVX512)
constexpr int VECTOR_LANES = 16;
#elif defined(ACF_ISA_AVX2)
constexpr int VECTOR_LANES = 8;
#else
constexpr int VECTOR_LANES = 4;  // SSE2 and NEON
#endif

template <int LANES>
struct Vector;

// `loose` may lie at any address; `exact` is the type arithmetic is done in.
#define ACF_DEFINE_VECTOR(lanes)                                                         \
    template <>                                                                          \
    struct Vector<lanes> {                                                               \
        typedef float exact __attribute__((vector_size(4 * lanes)));                     \
        typedef float loose __attribute__((vector_size(4 * lanes), aligned(4), may_alias)); \
        typedef uint32_t bits __attribute__((vector_size(4 * lanes)));                   \
        typedef uint16_t half_bits __attribute__((vector_size(2 * lanes)));              \
    };
ACF_DEFINE_VECTOR(4)
#if defined(ACF_ISA_AVX2) || defined(ACF_ISA_AVX512)
ACF_DEFINE_VECTOR(8)
#endif
#if defined(ACF_ISA_AVX512)
ACF_DEFINE_VECTOR(16)
#endif

template <int LANES>
ACF_INLINE typename Vector<LANES>::exact load(const float* from) {
    return *reinterpret_cast<const typename Vector<LANES>::loose*>(from);
}

template <int LANES>
ACF_INLINE typename Vector<LANES>::exact load(const uint16_t* from) {
    typename Vector<LANES>::half_bits halves;
    memcpy(&halves, from, sizeof halves);
    auto bits = __builtin_convertvector(halves, typename Vector<LANES>::bits) << 16;
    return (typename Vector<LANES>::exact)bits;
}

template <int LANES>
ACF_INLINE void store(float* to, typename Vector<LANES>::exact value) {
    *reinterpret_cast<typename Vector<LANES>::loose*>(to) = value;
}

// bfloat16, rounded to nearest even; a NaN stays a NaN because its quiet bit is set before the cut.
template <int LANES>
ACF_INLINE void store(uint16_t* to, typename Vector<LANES>::exact value) {
    typedef typename Vector<LANES>::bits Bits;
    Bits bits = (Bits)value;
    Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    Bits is_nan = (Bits)((bits & 0x7fffffffu) > 0x7f800000u);
    Bits chosen = (is_nan & ((bits >> 16) | 0x40u)) | (~is_nan & rounded);
    auto halves = __builtin_convertvector(chosen, typename Vector<LANES>::half_bits);
    memcpy(to, &halves, sizeof halves);
}

ACF_INLINE float to_float(float value) { return value; }
ACF_INLINE float to_float(uint16_t value) {
    uint32_t bits = static_cast<uint32_t>(value) << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Copy `count` (a multiple of 4) numbers, converting between storage types.
template <typename From, typename To>
ACF_INLINE void copy_numbers(const From* from, To* to, int64_t count) {
    int64_t at = 0;
    for (; at + VECTOR_LANES <= count; at += VECTOR_LANES)
        store<VECTOR_LANES>(to + at, load<VECTOR_LANES>(from + at));
    for (; at < count; at += 4) store<4>(to + at, load<4>(from + at));
}

}  // namespace
