// Vectors of floats by the compilers' own vector extension: one source serves every instruction set.
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(ACF_ISA_AVX2) || defined(ACF_ISA_AVX512)
#include <immintrin.h>
#endif

#define ACF_INLINE static inline __attribute__((always_inline))

namespace {

#if defined(ACF_ISA_AVX512)
constexpr int VECTOR_LANES = 16;
#elif defined(ACF_ISA_AVX2)
constexpr int VECTOR_LANES = 8;
#else
constexpr int VECTOR_LANES = 4;  // SSE2 and NEON
#endif

constexpr int smaller(int a, int b) { return a < b ? a : b; }

// What panels hold: a float, or a pair of bfloat16 (the first in the low half) that one instruction multiplies by
// another pair, adding both products to a float.
#if defined(ACF_ISA_AVX512BF16)
typedef uint32_t Packed;
typedef uint16_t PackedNumber;
constexpr int DEPTH = 2;  // numbers per element of a panel
#else
typedef float Packed;
typedef float PackedNumber;
constexpr int DEPTH = 1;
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
ACF_DEFINE_VECTOR(8)
ACF_DEFINE_VECTOR(16)

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

// Pairs of bfloat16 that lie together: their bits, in a vector of floats.
template <int LANES>
ACF_INLINE typename Vector<LANES>::exact load(const uint32_t* from) {
    typename Vector<LANES>::exact bits;
    memcpy(&bits, from, sizeof bits);
    return bits;
}

template <int LANES>
ACF_INLINE void store(float* to, typename Vector<LANES>::exact value) {
    *reinterpret_cast<typename Vector<LANES>::loose*>(to) = value;
}

template <int LANES>
ACF_INLINE void store(uint32_t* to, typename Vector<LANES>::exact bits) {
    memcpy(to, &bits, sizeof bits);
}

// sum += x * w, or both products of each pair.
template <int LANES>
ACF_INLINE void add_products(typename Vector<LANES>::exact& sum, float x, typename Vector<LANES>::exact w) {
    sum += x * w;
}
#if defined(ACF_ISA_AVX512BF16)
template <int LANES>
ACF_INLINE void add_products(typename Vector<LANES>::exact& sum, uint32_t x, typename Vector<LANES>::exact w) {
    if constexpr (LANES == 16)
        sum = (Vector<16>::exact)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(x), (__m512bh)w);
    else
        sum = (Vector<8>::exact)_mm256_dpbf16_ps((__m256)sum, (__m256bh)_mm256_set1_epi32(x), (__m256bh)w);
}
#endif

// Past the caches, to an address that a vector divides; for results too large to be found there again.
template <int LANES>
ACF_INLINE void store_past_caches(float* to, typename Vector<LANES>::exact value) {
#if defined(ACF_ISA_AVX512)
    if constexpr (LANES == 16) return _mm512_stream_ps(to, (__m512)value);
#endif
#if defined(ACF_ISA_AVX512) || defined(ACF_ISA_AVX2)
    if constexpr (LANES == 8) return _mm256_stream_ps(to, (__m256)value);
#endif
    store<LANES>(to, value);
}

// bfloat16, rounded to nearest even; a NaN stays a NaN because its quiet bit is set before the cut.
template <int LANES>
ACF_INLINE void store(uint16_t* to, typename Vector<LANES>::exact value) {
#if defined(ACF_ISA_AVX512BF16)
    if constexpr (LANES == 16) {
        const __m256bh halves = _mm512_cvtneps_pbh((__m512)value);
        memcpy(to, &halves, sizeof halves);
        return;
    } else if constexpr (LANES == 8) {
        const __m128bh halves = _mm256_cvtneps_pbh((__m256)value);
        memcpy(to, &halves, sizeof halves);
        return;
    }
#endif
    typedef typename Vector<LANES>::bits Bits;
    Bits bits = (Bits)value;
    Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    Bits is_nan = (Bits)((bits & 0x7fffffffu) > 0x7f800000u);
    Bits chosen = (is_nan & ((bits >> 16) | 0x40u)) | (~is_nan & rounded);
    auto halves = __builtin_convertvector(chosen, typename Vector<LANES>::half_bits);
    memcpy(to, &halves, sizeof halves);
}

template <int LANES>
ACF_INLINE void store_past_caches(uint16_t* to, typename Vector<LANES>::exact value) {
    store<LANES>(to, value);
}

// COUNT vectors that lie side by side; every two of bfloat16 make a cache line.
template <int LANES, int COUNT, typename To>
ACF_INLINE void store_row(To* to, const typename Vector<LANES>::exact (&values)[COUNT], bool past_caches) {
#if defined(ACF_ISA_AVX512BF16)
    if constexpr (LANES == 16 && COUNT % 2 == 0 && sizeof(To) == 2) {
#pragma GCC unroll 2
        for (int v = 0; v < COUNT; v += 2) {
            const __m512i line = (__m512i)_mm512_cvtne2ps_pbh((__m512)values[v + 1], (__m512)values[v]);
            if (past_caches)
                _mm512_stream_si512(reinterpret_cast<__m512i*>(to + v * LANES), line);
            else
                _mm512_storeu_si512(to + v * LANES, line);
        }
        return;
    }
#endif
#pragma GCC unroll 4
    for (int v = 0; v < COUNT; v++) {
        if (past_caches)
            store_past_caches<LANES>(to + v * LANES, values[v]);
        else
            store<LANES>(to + v * LANES, values[v]);
    }
}

// Stores past the caches are ordered with nothing; this makes them visible before what follows.
ACF_INLINE void finish_stores() {
#if defined(ACF_ISA_AVX512) || defined(ACF_ISA_AVX2)
    _mm_sfence();
#endif
}

}  // namespace
