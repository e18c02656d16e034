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

// What panels hold: a float, or a pair of bfloat16 (the first in the low half) that one instruction multiplies by
// another pair, adding both products to a float.
#if defined(ACF_ISA_AVX512BF16)
typedef uint32_t Packed;
constexpr int DEPTH = 2;  // numbers per element of a panel
#else
typedef float Packed;
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

// Pairs of bfloat16 that lie together, and what follows: their bits, in a vector of floats.
template <int LANES>
ACF_INLINE typename Vector<LANES>::exact load(const uint32_t* from) {
    typename Vector<LANES>::exact bits;
    memcpy(&bits, from, sizeof bits);
    return bits;
}

// Where bfloat16 lie that become the first halves of pairs; the second halves lie `apart` further on, or are zero.
struct PairPointer {
    const uint16_t* first;
    int64_t apart;
    uint32_t kept_bits;  // 0xffff: second halves are zero; else all

    PairPointer operator+(int64_t count) const { return {first + count, apart, kept_bits}; }
};

template <int LANES>
ACF_INLINE typename Vector<LANES>::exact load(PairPointer from) {
    typedef typename Vector<LANES>::bits Bits;
    typename Vector<LANES>::half_bits low, high;
    memcpy(&low, from.first, sizeof low);
    memcpy(&high, from.first + from.apart, sizeof high);
    const Bits pairs = __builtin_convertvector(low, Bits) | __builtin_convertvector(high, Bits) << 16;
    return (typename Vector<LANES>::exact)(pairs & from.kept_bits);
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

// Stores past the caches are ordered with nothing; this makes them visible before what follows.
ACF_INLINE void finish_stores() {
#if defined(ACF_ISA_AVX512) || defined(ACF_ISA_AVX2)
    _mm_sfence();
#endif
}

ACF_INLINE float to_float(uint16_t value) {
    uint32_t bits = static_cast<uint32_t>(value) << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

ACF_INLINE void copy_number(const float* from, float* to) { *to = *from; }
ACF_INLINE void copy_number(const uint16_t* from, float* to) { *to = to_float(*from); }
ACF_INLINE void copy_number(const uint32_t* from, uint32_t* to) { memcpy(to, from, sizeof *to); }
ACF_INLINE void copy_number(PairPointer from, uint32_t* to) {
    *to = (from.first[0] | static_cast<uint32_t>(from.first[from.apart]) << 16) & from.kept_bits;
}
ACF_INLINE void copy_number(const float* from, uint16_t* to) {
    uint16_t four[4];
    store<4>(four, Vector<4>::exact{*from, 0, 0, 0});
    *to = four[0];
}

constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Copy `count` (a multiple of 4) numbers, converting between storage types. `From` is a pointer of some kind.
template <typename From, typename To>
ACF_INLINE void copy_numbers(From from, To* to, int64_t count) {
    int64_t at = 0;
    for (; at + VECTOR_LANES <= count; at += VECTOR_LANES)
        store<VECTOR_LANES>(to + at, load<VECTOR_LANES>(from + at));
    for (; at < count; at += 4) store<4>(to + at, load<4>(from + at));
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define ACF_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif

// to[c][r] = from[r][c] for 8 rows and 8 columns; strides in elements.
template <typename From, typename To>
ACF_INLINE void transpose_8x8(From from, int64_t from_stride, To* to, int64_t to_stride) {
#ifdef ACF_SHUFFLE
    typedef Vector<8>::exact vec;
    vec row[8], pair[8], quad[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) row[r] = load<8>(from + r * from_stride);
#pragma GCC unroll 4
    for (int r = 0; r < 8; r += 2) {
        pair[r] = ACF_SHUFFLE(row[r], row[r + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[r + 1] = ACF_SHUFFLE(row[r], row[r + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int r = 0; r < 8; r += 4) {
        quad[r] = ACF_SHUFFLE(pair[r], pair[r + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        quad[r + 1] = ACF_SHUFFLE(pair[r], pair[r + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        quad[r + 2] = ACF_SHUFFLE(pair[r + 1], pair[r + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        quad[r + 3] = ACF_SHUFFLE(pair[r + 1], pair[r + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        store<8>(to + c * to_stride, ACF_SHUFFLE(quad[c], quad[c + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store<8>(to + (c + 4) * to_stride, ACF_SHUFFLE(quad[c], quad[c + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
#else
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) copy_number(from + r * from_stride + c, to + c * to_stride + r);
#endif
}

// to[c * to_stride + r * to_step] = from[r * from_stride + c * from_step]; vectors where both steps are one.
template <typename From, typename To>
void transpose(From from, int64_t from_stride, int64_t from_step, To* to, int64_t to_stride, int64_t to_step,
               int64_t rows, int64_t cols) {
    int64_t whole_rows = 0, whole_cols = 0;
    if (from_step == 1 && to_step == 1) {
        whole_rows = rows / 8 * 8;
        whole_cols = cols / 8 * 8;
        for (int64_t r = 0; r < whole_rows; r += 8)
            for (int64_t c = 0; c < whole_cols; c += 8)
                transpose_8x8(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            copy_number(from + r * from_stride + c * from_step, to + c * to_stride + r * to_step);
}

}  // namespace
