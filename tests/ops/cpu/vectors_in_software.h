// The AVX-512 intrinsics that the kernels for bfloat16 call, in plain C++, for processors without AVX512_BF16.
#pragma once
#include "tiles_in_software.h"
#include <math.h>

namespace in_software {

// The numbers of a vector, one by one.
template <typename Number, int COUNT>
struct Numbers {
    Number at[COUNT];

    template <typename Vector>
    static Numbers of(const Vector& vector) {
        static_assert(sizeof(Vector) == sizeof(Numbers), "every bit of it");
        return from(&vector);
    }
    static Numbers from(const void* memory) {
        Numbers numbers;
        memcpy(&numbers, memory, sizeof numbers);
        return numbers;
    }
    template <typename Vector>
    Vector as() const {
        static_assert(sizeof(Vector) == sizeof(Numbers), "every bit of it");
        Vector vector;
        memcpy(&vector, at, sizeof vector);
        return vector;
    }
};

inline __m512i load_unaligned(const void* from) { return Numbers<uint32_t, 16>::from(from).as<__m512i>(); }

inline void store_unaligned(void* to, __m512i vector) { memcpy(to, &vector, sizeof vector); }

template <typename Vector>
void store_aligned(void* to, Vector vector) {
    require(reinterpret_cast<uintptr_t>(to) % sizeof(Vector) == 0, "a store past the caches is aligned");
    memcpy(to, &vector, sizeof vector);
}

template <typename Vector>
Vector set_all(uint32_t value) {
    Numbers<uint32_t, sizeof(Vector) / 4> numbers;
    for (uint32_t& number : numbers.at) number = value;
    return numbers.template as<Vector>();
}

inline __m512i load_masked(uint32_t mask, const void* from) {
    Numbers<uint16_t, 32> numbers = {};
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) memcpy(&numbers.at[lane], static_cast<const uint16_t*>(from) + lane, 2);
    return numbers.as<__m512i>();
}

inline __m512i permute_two(__m512i first, __m512i order, __m512i second) {
    const auto a = Numbers<uint16_t, 32>::of(first), b = Numbers<uint16_t, 32>::of(second);
    auto chosen = Numbers<uint16_t, 32>::of(order);
    for (uint16_t& lane : chosen.at) lane = (lane & 32 ? b : a).at[lane & 31];
    return chosen.as<__m512i>();
}

// Numbers of the low or high half of each 128 bits, from `a` and `b` in turn.
template <typename Number, bool HIGH>
__m512i unpack(__m512i a, __m512i b) {
    constexpr int LANE = 16 / sizeof(Number);
    using All = Numbers<Number, 64 / sizeof(Number)>;
    const All from_a = All::of(a), from_b = All::of(b);
    All result;
    for (int at = 0; at < 4 * LANE; at++) {
        const int source = at / LANE * LANE + (HIGH ? LANE / 2 : 0) + at % LANE / 2;
        result.at[at] = (at % 2 ? from_b : from_a).at[source];
    }
    return result.template as<__m512i>();
}

// Two lanes of 128 bits from `a`, then two from `b`, two bits of `choice` each.
inline __m512i shuffle_lanes(__m512i a, __m512i b, int choice) {
    struct Lane {
        uint32_t numbers[4];
    };
    const auto from_a = Numbers<Lane, 4>::of(a), from_b = Numbers<Lane, 4>::of(b);
    Numbers<Lane, 4> result;
    for (int lane = 0; lane < 4; lane++) result.at[lane] = (lane < 2 ? from_a : from_b).at[choice >> 2 * lane & 3];
    return result.as<__m512i>();
}

// sums + products of pairs of bfloat16.
template <typename Sums, typename Pairs>
Sums add_pairs(Sums sums, Pairs left, Pairs right) {
    constexpr int COUNT = sizeof(Sums) / 4;
    auto result = Numbers<float, COUNT>::of(sums);
    const auto a = Numbers<uint32_t, COUNT>::of(left), b = Numbers<uint32_t, COUNT>::of(right);
    for (int which = 1; which >= 0; which--)
        for (int at = 0; at < COUNT; at++) result.at[at] += half(a.at[at], which) * half(b.at[at], which);
    return result.template as<Sums>();
}

// To nearest even; NaN stays NaN, and subnormal numbers are zero.
inline uint16_t rounded(uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    if (!(bits & 0x7f800000u)) bits &= 0x80000000u;
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <typename Halves, typename Vector>
Halves round(Vector vector) {
    const auto numbers = Numbers<uint32_t, sizeof(Vector) / 4>::of(vector);
    Numbers<uint16_t, sizeof(Vector) / 4> result;
    for (unsigned at = 0; at < sizeof(Vector) / 4; at++) result.at[at] = rounded(numbers.at[at]);
    return result.template as<Halves>();
}

inline __m512i round_two(__m512 high, __m512 low) {
    struct Both {
        __m512 low, high;
    };
    return round<__m512i>(Both{low, high});
}

// A function of each number of a vector, or of each two numbers of two.
template <typename Vector, float (*FUNCTION)(float)>
Vector each(Vector vector) {
    auto numbers = Numbers<float, sizeof(Vector) / 4>::of(vector);
    for (float& number : numbers.at) number = FUNCTION(number);
    return numbers.template as<Vector>();
}

template <typename Vector, float (*FUNCTION)(float, float)>
Vector each_two(Vector first, Vector second) {
    constexpr int COUNT = sizeof(Vector) / 4;
    auto numbers = Numbers<float, COUNT>::of(first);
    const auto others = Numbers<float, COUNT>::of(second);
    for (int at = 0; at < COUNT; at++) numbers.at[at] = FUNCTION(numbers.at[at], others.at[at]);
    return numbers.template as<Vector>();
}

// To 14 bits: the others of the fraction are cut.
inline float reciprocal(float number) {
    const float exact = 1.0f / number;
    uint32_t bits;
    memcpy(&bits, &exact, sizeof bits);
    bits &= ~0x1ffu;
    float cut;
    memcpy(&cut, &bits, sizeof cut);
    return cut;
}

inline float larger(float first, float second) { return first > second ? first : second; }

inline float scaled(float number, float power) {
    return isfinite(power) ? scalbnf(number, static_cast<int>(floorf(power))) : number * power;
}

}  // namespace in_software

#undef _mm512_shuffle_i32x4
#define _mm512_loadu_si512 in_software::load_unaligned
#define _mm512_maskz_loadu_epi16 in_software::load_masked
#define _mm512_storeu_si512 in_software::store_unaligned
#define _mm512_stream_si512 in_software::store_aligned<__m512i>
#define _mm512_stream_ps in_software::store_aligned<__m512>
#define _mm256_stream_ps in_software::store_aligned<__m256>
#define _mm512_set1_epi32 in_software::set_all<__m512i>
#define _mm256_set1_epi32 in_software::set_all<__m256i>
#define _mm512_permutex2var_epi16 in_software::permute_two
#define _mm512_unpacklo_epi32 in_software::unpack<uint32_t, false>
#define _mm512_unpackhi_epi32 in_software::unpack<uint32_t, true>
#define _mm512_unpacklo_epi64 in_software::unpack<uint64_t, false>
#define _mm512_unpackhi_epi64 in_software::unpack<uint64_t, true>
#define _mm512_shuffle_i32x4 in_software::shuffle_lanes
#define _mm512_dpbf16_ps in_software::add_pairs<__m512, __m512bh>
#define _mm256_dpbf16_ps in_software::add_pairs<__m256, __m256bh>
#define _mm512_cvtneps_pbh in_software::round<__m256bh, __m512>
#define _mm256_cvtneps_pbh in_software::round<__m128bh, __m256>
#define _mm512_cvtne2ps_pbh in_software::round_two
#define _mm512_rcp14_ps in_software::each<__m512, in_software::reciprocal>
#define _mm256_rcp14_ps in_software::each<__m256, in_software::reciprocal>
#define _mm512_max_ps in_software::each_two<__m512, in_software::larger>
#define _mm256_max_ps in_software::each_two<__m256, in_software::larger>
#define _mm512_scalef_ps in_software::each_two<__m512, in_software::scaled>
#define _mm256_scalef_ps in_software::each_two<__m256, in_software::scaled>
