// What a pass that sums over channels does to its sums before it stores them: an activation with its slope, or a scale.
#pragma once
#include "problem.h"
#include "simd.h"

namespace {

template <int LANES>
struct Lanes {
    typedef typename Vector<LANES>::exact vec;
    typedef typename Vector<LANES>::bits bits;

    // `a` where the comparison held, else `b`.
    template <typename Mask>
    ACF_INLINE vec choose(Mask mask, vec a, vec b) {
        return (vec)(((bits)mask & (bits)a) | (~(bits)mask & (bits)b));
    }

    ACF_INLINE vec magnitude(vec x) { return (vec)((bits)x & 0x7fffffffu); }

#if defined(ACF_ISA_AVX512BF16)
    // Results are rounded to 8 bits, so these have 14 and 13 bits, in fewer instructions than exact ones.
    ACF_INLINE vec reciprocal(vec x) {
        if constexpr (LANES == 16)
            return (vec)_mm512_rcp14_ps((__m512)x);
        else
            return (vec)_mm256_rcp14_ps((__m256)x);
    }

    // e^x for x <= 0. The larger of two numbers is the second one where that is a NaN.
    ACF_INLINE vec exp_of_negative(vec x) {
        const vec lowest = vec{} - 126.0f, magic = vec{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
        if constexpr (LANES == 16)
            x = (vec)_mm512_max_ps((__m512)lowest, (__m512)x);
        else
            x = (vec)_mm256_max_ps((__m256)lowest, (__m256)x);
        const vec power = (x * 1.44269504f + magic) - magic;
        const vec r = x - power * 0.69314718f;
        vec series = vec{} + 1.6566842e-1f;  // minimax of the relative error on [-ln 2 / 2, ln 2 / 2]: 8e-5
        series = series * r + 5.0496333e-1f;
        series = series * r + 1.00016419f;
        series = series * r + 9.9992807e-1f;
        if constexpr (LANES == 16)
            return (vec)_mm512_scalef_ps((__m512)series, (__m512)power);
        else
            return (vec)_mm256_scalef_ps((__m256)series, (__m256)power);
    }
#else
    ACF_INLINE vec reciprocal(vec x) { return 1.0f / x; }

    // e^x for x <= 0, to two units in the last place; zero below -87, where floats lose precision.
    ACF_INLINE vec exp_of_negative(vec x) {
        const vec magic = vec{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
        const vec shifted = x * 1.44269504088896341f + magic;
        const vec power = shifted - magic;
        vec r = x - power * 0.693359375f;  // ln 2 in two parts
        r = r + power * 2.12194440e-4f;
        vec series = vec{} + 1.9875691500e-4f;  // minimax on [-ln 2 / 2, ln 2 / 2]: Cephes, expf
        series = series * r + 1.3981999507e-3f;
        series = series * r + 8.3334519073e-3f;
        series = series * r + 4.1665795894e-2f;
        series = series * r + 1.6666665459e-1f;
        series = series * r + 5.0000001201e-1f;
        series = series * r * r + r + 1.0f;
        const bits exponent = ((bits)shifted - (bits)magic) << 23;
        const vec scaled = choose(x <= 0.0f, (vec)((bits)series + exponent), series);  // else a NaN, which stays one
        return choose(x < -87.0f, vec{}, scaled);
    }
#endif

    ACF_INLINE vec sigmoid(vec x) {
        const vec small = exp_of_negative((vec)((bits)x | 0x80000000u));
        const vec large = reciprocal(1.0f + small);
        return choose(x < 0.0f, small * large, large);
    }

    // x * cumulative(x) by Abramowitz and Stegun, 7.1.26: error below 1e-7 in the cumulative distribution.
    ACF_INLINE void gelu(vec x, vec& value, vec& slope) {
        const vec density = exp_of_negative(x * x * -0.5f);
        const vec t = reciprocal(1.0f + magnitude(x) * (0.3275911f * 0.70710678f));
        vec tail = vec{} + 1.061405429f;
        tail = tail * t - 1.453152027f;
        tail = tail * t + 1.421413741f;
        tail = tail * t - 0.284496736f;
        tail = tail * t + 0.254829592f;
        tail = tail * t * density * 0.5f;
        const vec cumulative = choose(x < 0.0f, tail, 1.0f - tail);
        value = x * cumulative;
        slope = cumulative + x * density * 0.39894228f;
    }

    // 0.5 + 0.5 tanh(u) = sigmoid(2 u).
    ACF_INLINE void gelu_tanh(vec x, vec& value, vec& slope) {
        const vec square = x * x;
        const vec gate = sigmoid(x * (1.0f + square * 0.044715f) * 1.59576912f);
        const vec rise = (1.0f + square * (3 * 0.044715f)) * 1.59576912f;
        value = x * gate;
        slope = gate + value * (1.0f - gate) * rise;
    }

    ACF_INLINE void silu(vec x, vec& value, vec& slope) {
        const vec gate = sigmoid(x);
        value = x * gate;
        slope = gate * (1.0f + x * (1.0f - gate));
    }

    ACF_INLINE void relu(vec x, vec& value, vec& slope) {
        value = choose(x <= 0.0f, vec{}, x);
        slope = choose(x <= 0.0f, vec{}, vec{} + 1.0f);
    }
};

// Value and slope of `pixels` neighbouring pixels of a block; `sums` is [pixels][B].
template <int B, typename Number, typename Function>
void activate_run(Function function, const float* sums, Number* value, Number* slope, int64_t stride, int64_t pixels,
                  bool past_caches) {
    constexpr int L = smaller(VECTOR_LANES, B), V = B / L;
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
        typename Vector<L>::exact values[V], slopes[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) function(load<L>(sums + pixel * B + v * L), values[v], slopes[v]);
        store_row<L, V>(value + pixel * stride, values, past_caches);
        store_row<L, V>(slope + pixel * stride, slopes, past_caches);
    }
}

// The same sums times `scale`, which lies as the result does.
template <int B, typename Number>
void scale_run(const float* sums, const Number* scale, Number* result, int64_t stride, int64_t pixels,
               bool past_caches) {
    constexpr int L = smaller(VECTOR_LANES, B), V = B / L;
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
        typename Vector<L>::exact values[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            values[v] = load<L>(sums + pixel * B + v * L) * load<L>(scale + pixel * stride + v * L);
        store_row<L, V>(result + pixel * stride, values, past_caches);
    }
}

// Call `use` with an activation as an object whose call is inlined, where a pointer to a function would be called.
template <int L, typename Use>
ACF_INLINE void with_activation(int64_t activation, Use use) {
#define ACF_FUNCTION(name)                                                                              \
    use([](typename Vector<L>::exact x, typename Vector<L>::exact& value, typename Vector<L>::exact& slope) \
            __attribute__((always_inline)) { Lanes<L>::name(x, value, slope); })
    switch (activation) {
        case EPILOGUE_GELU: return ACF_FUNCTION(gelu);
        case EPILOGUE_GELU_TANH: return ACF_FUNCTION(gelu_tanh);
        case EPILOGUE_SILU: return ACF_FUNCTION(silu);
        case EPILOGUE_RELU: return ACF_FUNCTION(relu);
    }
#undef ACF_FUNCTION
}

// `second` is the slope to write or the scale to read.
template <int B, typename Number>
void finish_run(int64_t epilogue, const float* sums, Number* result, Number* second, int64_t stride, int64_t pixels,
                bool past_caches) {
    if (epilogue == EPILOGUE_SCALE) return scale_run<B>(sums, second, result, stride, pixels, past_caches);
    with_activation<smaller(VECTOR_LANES, B)>(epilogue, [&](auto function) {
        activate_run<B>(function, sums, result, second, stride, pixels, past_caches);
    });
}

}  // namespace
