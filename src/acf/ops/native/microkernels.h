// The two inner loops. Both work on packed panels: [pixels][B] numbers, so that neighbouring pixels (tokens) are
// B numbers apart whatever the layer's width. Reading rows of the matrix itself instead would put every pixel of a
// register tile into the same few sets of the first-level cache when the width is a power of two.
#pragma once
#include "prefetch.h"
#include "simd.h"

namespace {

// One block's part of an output block: its weight [B / DEPTH][B] (inner index = output channel), and where its input
// lies.
struct Term {
    const Packed* weight;
    int64_t input_offset;
};

// Register tiles: pixels (or weight rows) x vectors. AVX-512 has 32 registers, the others 16.
template <int B>
struct Tile {
    static constexpr int lanes = smaller(VECTOR_LANES, B);
    static constexpr int vectors_in_block = B / lanes;
    static constexpr int vectors = smaller(2 * DEPTH, vectors_in_block);
#if defined(ACF_ISA_AVX512)
    static constexpr int gather_rows = vectors == 4 ? 6 : vectors == 2 ? 8 : 16;
    static constexpr int outer_rows = smaller(B, 16 / vectors);
#else
    static constexpr int gather_rows = vectors == 1 ? 8 : 6;
    static constexpr int outer_rows = vectors == 1 ? 8 : 4;
#endif
};

// out[r][0..B) = start[0..B) + sum over terms of input[r][0..B) * weight, for R neighbouring pixels. No start: zero.
// ADDS: the sum starts from what `out` holds.
template <int B, int R, bool ADDS, typename Out>
void gather_tile(const Packed* input, const Term* terms, int64_t count, const float* start, Out* out,
                 int64_t out_stride, bool past_caches, Prefetcher& ahead) {
    constexpr int L = Tile<B>::lanes, V = Tile<B>::vectors, K = B / DEPTH;
    typedef typename Vector<L>::exact vec;
    for (int first = 0; first < Tile<B>::vectors_in_block; first += V) {
        vec sum[R][V];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) {
                if constexpr (ADDS)
                    sum[r][v] = load<L>(out + r * out_stride + (first + v) * L);
                else
                    sum[r][v] = start ? load<L>(start + (first + v) * L) : vec{};
            }
        // The sums leave the registers last: by then the lines they go to should be owned.
        if (!ADDS && !past_caches) {
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                for (int at = 0; at < V * L; at += 64 / sizeof(Out))
                    __builtin_prefetch(out + r * out_stride + first * L + at, 1, 3);
        }
        for (int64_t e = 0; e < count; e++) {
            ahead.step();
            const Packed* weight = terms[e].weight + first * L;
            const Packed* x = input + terms[e].input_offset;
            const Packed* next = input + terms[e + 1 < count ? e + 1 : e].input_offset;
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                for (int at = 0; at < K; at += 16) __builtin_prefetch(next + r * K + at, 0, 3);
#pragma GCC unroll 2
            for (int q = 0; q < K; q++) {
                vec w[V];
#pragma GCC unroll 4
                for (int v = 0; v < V; v++) w[v] = load<L>(weight + q * B + v * L);
#pragma GCC unroll 16
                for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                    for (int v = 0; v < V; v++) add_products<L>(sum[r][v], x[r * K + q], w[v]);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) store_row<L, V>(out + r * out_stride + first * L, sum[r], past_caches);
    }
}

// A run of `pixels` neighbouring pixels, cut into tiles of nearly equal height.
template <int B, bool ADDS = false, typename Out>
void gather_run(const Packed* input, const Term* terms, int64_t count, const float* start, Out* out,
                int64_t out_stride, int64_t pixels, bool past_caches, Prefetcher& ahead) {
    constexpr int most = Tile<B>::gather_rows;
    for (int64_t left = pixels; left > 0;) {
        int64_t tiles = (left + most - 1) / most;
        int64_t rows = (left + tiles - 1) / tiles;
        switch (rows) {
#define ACF_ROWS(R)                                                                                   \
    case R:                                                                                           \
        if constexpr (R <= most)                                                                      \
            gather_tile<B, R, ADDS>(input, terms, count, start, out, out_stride, past_caches, ahead); \
        break;
            ACF_ROWS(1) ACF_ROWS(2) ACF_ROWS(3) ACF_ROWS(4) ACF_ROWS(5) ACF_ROWS(6) ACF_ROWS(7) ACF_ROWS(8)
            ACF_ROWS(9) ACF_ROWS(10) ACF_ROWS(11) ACF_ROWS(12) ACF_ROWS(13) ACF_ROWS(14) ACF_ROWS(15) ACF_ROWS(16)
#undef ACF_ROWS
        }
        input += rows * (B / DEPTH);
        out += rows * out_stride;
        left -= rows;
    }
}

// One block of the weight gradient: result[n][k] = start[n][k] + sum over rows x cols pixels of g[pixel][n] *
// x[pixel][k]. No start: zero. next_start: where the next call starts, if that is to be fetched by then.
template <int B, typename Result>
void outer_block(const Packed* g, int64_t g_row_stride, const Packed* x, int64_t x_row_stride, int64_t rows,
                 int64_t cols, const float* start, const float* next_start, Result* result, Prefetcher& ahead) {
    constexpr int L = Tile<B>::lanes, V = Tile<B>::vectors, R = Tile<B>::outer_rows;
    typedef typename Vector<L>::exact vec;
    for (int n = 0; n < B; n += R)
        for (int first = 0; first < Tile<B>::vectors_in_block; first += V) {
            vec part[R][V];
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int v = 0; v < V; v++)
                    part[r][v] = start ? load<L>(start + (n + r) * B + (first + v) * L) : vec{};
            if (next_start) {
#pragma GCC unroll 16
                for (int r = 0; r < R; r++)
                    for (int at = 0; at < V * L; at += 16)
                        __builtin_prefetch(next_start + (n + r) * B + first * L + at, 1, 3);
            }
            for (int64_t row = 0; row < rows; row++) {
                ahead.step();
                const Packed* g_at = g + row * g_row_stride + n;
                const Packed* x_at = x + row * x_row_stride + first * L;
#pragma GCC unroll 2
                for (int64_t col = 0; col < cols; col++, g_at += B, x_at += B) {
                    vec w[V];
#pragma GCC unroll 4
                    for (int v = 0; v < V; v++) w[v] = load<L>(x_at + v * L);
#pragma GCC unroll 16
                    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                        for (int v = 0; v < V; v++) add_products<L>(part[r][v], g_at[r], w[v]);
                }
            }
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) store_row<L, V>(result + (n + r) * B + first * L, part[r], false);
        }
}

}  // namespace
