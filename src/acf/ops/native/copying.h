// Copying and transposing numbers while they change their storage type, or become pairs.
#pragma once
#include "simd.h"

namespace {

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

// Copy `count` (a multiple of 4) numbers, converting between storage types. `From` is a pointer of some kind.
template <typename From, typename To>
ACF_INLINE void copy_numbers(From from, To* to, int64_t count) {
    int64_t at = 0;
    for (; at + VECTOR_LANES <= count; at += VECTOR_LANES)
        store<VECTOR_LANES>(to + at, load<VECTOR_LANES>(from + at));
    for (; at < count; at += 4) store<4>(to + at, load<4>(from + at));
}

#if defined(ACF_ISA_AVX512BF16)
// Interleaving 32 numbers with 32 others takes one permutation per vector of pairs.
ACF_INLINE void copy_numbers(PairPointer from, uint32_t* to, int64_t count) {
    typedef uint16_t Halves __attribute__((vector_size(64)));
    const Halves ascending = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                              8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i front = (__m512i)ascending, back = (__m512i)(ascending + static_cast<uint16_t>(16));
    const __mmask32 second_halves = from.kept_bits >> 16 ? ~0u : 0u;
    int64_t at = 0;
    for (; at + 32 <= count; at += 32) {
        const __m512i first = _mm512_loadu_si512(from.first + at);
        const __m512i second = _mm512_maskz_loadu_epi16(second_halves, from.first + from.apart + at);
        _mm512_storeu_si512(to + at, _mm512_permutex2var_epi16(first, front, second));
        _mm512_storeu_si512(to + at + 16, _mm512_permutex2var_epi16(first, back, second));
    }
    for (; at + 16 <= count; at += 16) store<16>(to + at, load<16>(from + at));
    for (; at < count; at += 4) store<4>(to + at, load<4>(from + at));
}
#endif

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
