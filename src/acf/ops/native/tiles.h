// The two inner loops in tile registers (AMX): 16 rows of 16 pairs of bfloat16 times 16 pairs of 16 columns, added to
// 16 x 16 floats by one instruction. Packed panels are as they are for pairs; only the weight gradient's panel of
// gradients is turned, 16 pixels at a time.
#pragma once
#include "microkernels.h"
#include "prefetch.h"
#include "simd.h"

namespace {

#if defined(ACF_ISA_AMX)
constexpr bool HAS_TILES = true;
#else
constexpr bool HAS_TILES = false;
#endif

constexpr int TILE_PIXELS = 16;  // rows of a tile: pixels that one instruction takes

// Whether the passes over blocks of side B use tiles; a block of 8 fills an eighth of one, and of 16 a quarter of the
// four that the weight gradient sums in.
template <int B>
constexpr bool GATHERS_IN_TILES = HAS_TILES && B >= 16;
template <int B>
constexpr bool SUMS_IN_TILES = HAS_TILES && B >= 32;

// Pieces of 16 pixels that are summed at a time, and channels of the written block.
template <int B>
constexpr int PIECES_AT_ONCE = B == 16 ? 4 : 2;
template <int B>
constexpr int CHANNELS_AT_ONCE = B == 16 ? 16 : 32;

// Neighbouring written pixels cut into pieces of 16: by rows, the last piece of a row less than full, or, where that
// takes fewer pieces, over all rows and the packed pixels between them, whose sums nobody reads.
struct Pieces {
    int64_t rows, cols, pitch;  // written pixels, and packed pixels from one row to the next
    int64_t row_elements, pixel_elements;
    bool across_rows;
    int64_t per_row, count;

    static Pieces cut(int64_t rows, int64_t cols, int64_t row_elements, int64_t pixel_elements, bool may_cross) {
        Pieces pieces = {rows, cols, row_elements / pixel_elements, row_elements, pixel_elements, false, 0, 0};
        if (rows <= 0 || cols <= 0) return pieces;
        pieces.per_row = (cols + TILE_PIXELS - 1) / TILE_PIXELS;
        pieces.count = rows * pieces.per_row;
        const int64_t crossing = ((rows - 1) * pieces.pitch + cols + TILE_PIXELS - 1) / TILE_PIXELS;
        if (may_cross && crossing < pieces.count) {
            pieces.across_rows = true;
            pieces.count = crossing;
        }
        return pieces;
    }

    // Where the packed pixels of a piece lie.
    int64_t offset(int64_t piece) const {
        if (across_rows) return piece * TILE_PIXELS * pixel_elements;
        return piece / per_row * row_elements + piece % per_row * TILE_PIXELS * pixel_elements;
    }

    // Call `use(row, col, count, first)` for each run of written pixels of a piece, `first` of its 16 on.
    template <typename Use>
    void each_run(int64_t piece, Use use) const {
        if (!across_rows) {
            const int64_t col = piece % per_row * TILE_PIXELS;
            use(piece / per_row, col, cols - col < TILE_PIXELS ? cols - col : TILE_PIXELS, 0);
            return;
        }
        int64_t at = piece * TILE_PIXELS, row = at / pitch, col = at % pitch;
        const int64_t end = at + TILE_PIXELS;
        for (; at < end && row < rows; at += pitch - col, row++, col = 0) {
            if (col >= cols) continue;
            const int64_t count = cols - col < end - at ? cols - col : end - at;
            use(row, col, count, TILE_PIXELS - (end - at));
        }
    }
};

// The tile registers of a thread, for as long as this lives. `pairs`: of a row of packed pixels, or of a block's rows.
class TileRegisters;

// sums[piece][16][B] = start[0..B) + sum over terms of 16 packed pixels * weight; `offsets` of the pieces into the
// input. No start: zero.
template <int B, int COUNT>
void gather_pieces(const Packed* input, const int64_t* offsets, const Term* terms, int64_t count, const float* start,
                   float* sums, Prefetcher& ahead);

// One block of the weight gradient: result[n][k] = start[n][k] + sum over rows of `groups` x 16 pixels of
// turned_g[n][pixel] * x[pixel][k]. No start: zero.
template <int B, typename Result>
void outer_block_in_tiles(const Packed* turned_g, int64_t g_row_stride, const Packed* x, int64_t x_row_stride,
                          int64_t rows, int64_t groups, const float* start, const float* next_start, Result* result,
                          Prefetcher& ahead);

// `groups` of 16 packed pixels [16][B] made [B][16], in place.
template <int B>
void turn_groups(Packed* pixels, int64_t groups);

#if defined(ACF_ISA_AMX)
// A compiler barrier: what has been stored is in memory. To g++ 12.2 a tile load reads none and a configuration has 8
// bytes, so it may move earlier stores behind the one, and leaves out stores of shapes to the other.
template <typename Read>
ACF_INLINE void commit_stores(const Read& memory) {
    __asm__ volatile("" : : "m"(memory) : "memory");
}

class TileRegisters {
  public:
    explicit TileRegisters(int pairs) {
        struct __attribute__((packed)) {
            uint8_t palette, start_row, reserved[14];
            uint16_t row_bytes[16];
            uint8_t rows[16];
        } shapes = {};
        shapes.palette = 1;
        for (int tile = 0; tile < 8; tile++) {  // 0 to 3: sums; 4 and 5: left operands; 6 and 7: right operands
            shapes.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 4 * pairs : 64);
            shapes.rows[tile] = static_cast<uint8_t>(tile >= 6 ? pairs : 16);
        }
        commit_stores(shapes);
        _tile_loadconfig(&shapes);
    }
    ~TileRegisters() { _tile_release(); }
    TileRegisters(const TileRegisters&) = delete;
    TileRegisters& operator=(const TileRegisters&) = delete;
};

// The packed pixels of the next term: by the time they are multiplied they lie in the first-level cache.
template <int B>
ACF_INLINE void prefetch_piece(const Packed* pixels) {
    for (int at = 0; at < TILE_PIXELS * B / DEPTH; at += 16) __builtin_prefetch(pixels + at, 0, 3);
}

template <int B, int COUNT>
void gather_pieces(const Packed* input, const int64_t* offsets, const Term* terms, int64_t count, const float* start,
                   float* sums, Prefetcher& ahead) {
    constexpr int K = B / DEPTH, PAIRS = smaller(K, 16), PIECE = TILE_PIXELS * B;
    commit_stores(*input);
    for (int first = 0; first < B; first += CHANNELS_AT_ONCE<B>) {
#define ACF_START(tile, channel)                                \
    if (start)                                                  \
        _tile_loadd(tile, start + (channel), 0); /* every row */ \
    else                                                        \
        _tile_zero(tile);
        if constexpr (B == 16) {
            ACF_START(0, 0)
            if constexpr (COUNT > 1) ACF_START(1, 0)
            if constexpr (COUNT > 2) ACF_START(2, 0)
            if constexpr (COUNT > 3) ACF_START(3, 0)
        } else {
            ACF_START(0, first)
            ACF_START(1, first + 16)
            if constexpr (COUNT > 1) {
                ACF_START(2, first)
                ACF_START(3, first + 16)
            }
        }
#undef ACF_START
        for (int64_t e = 0; e < count; e++) {
            ahead.step();
            const Packed* x = input + terms[e].input_offset;
            const Packed* next = input + terms[e + 1 < count ? e + 1 : e].input_offset;
#pragma GCC unroll 4
            for (int piece = 0; piece < COUNT; piece++) prefetch_piece<B>(next + offsets[piece]);
#pragma GCC unroll 2
            for (int q = 0; q < K; q += PAIRS) {
                const Packed* weight = terms[e].weight + q * B + first;
                _tile_loadd(6, weight, B * 4);
                if constexpr (B == 16) {
                    _tile_loadd(4, x + offsets[0], K * 4);
                    _tile_dpbf16ps(0, 4, 6);
                    if constexpr (COUNT > 1) {
                        _tile_loadd(5, x + offsets[1], K * 4);
                        _tile_dpbf16ps(1, 5, 6);
                    }
                    if constexpr (COUNT > 2) {
                        _tile_loadd(4, x + offsets[2], K * 4);
                        _tile_dpbf16ps(2, 4, 6);
                    }
                    if constexpr (COUNT > 3) {
                        _tile_loadd(5, x + offsets[3], K * 4);
                        _tile_dpbf16ps(3, 5, 6);
                    }
                } else {
                    _tile_loadd(7, weight + 16, B * 4);
                    _tile_loadd(4, x + offsets[0] + q, K * 4);
                    _tile_dpbf16ps(0, 4, 6);
                    _tile_dpbf16ps(1, 4, 7);
                    if constexpr (COUNT > 1) {
                        _tile_loadd(5, x + offsets[1] + q, K * 4);
                        _tile_dpbf16ps(2, 5, 6);
                        _tile_dpbf16ps(3, 5, 7);
                    }
                }
            }
        }
        if constexpr (B == 16) {
            _tile_stored(0, sums, B * 4);
            if constexpr (COUNT > 1) _tile_stored(1, sums + PIECE, B * 4);
            if constexpr (COUNT > 2) _tile_stored(2, sums + 2 * PIECE, B * 4);
            if constexpr (COUNT > 3) _tile_stored(3, sums + 3 * PIECE, B * 4);
        } else {
            _tile_stored(0, sums + first, B * 4);
            _tile_stored(1, sums + first + 16, B * 4);
            if constexpr (COUNT > 1) {
                _tile_stored(2, sums + PIECE + first, B * 4);
                _tile_stored(3, sums + PIECE + first + 16, B * 4);
            }
        }
    }
}

// 32 x 32 sums of the weight gradient leave the tiles: floats as they are, bfloat16 by way of the first-level cache.
ACF_INLINE void store_sums(float* result, int64_t stride) {
    _tile_stored(0, result, stride * 4);
    _tile_stored(1, result + 16, stride * 4);
    _tile_stored(2, result + 16 * stride, stride * 4);
    _tile_stored(3, result + 16 * stride + 16, stride * 4);
}
ACF_INLINE void store_sums(uint16_t* result, int64_t stride) {
    alignas(64) float sums[32 * 32];
    store_sums(sums, 32);
    for (int row = 0; row < 32; row++) {
        Vector<16>::exact values[2] = {load<16>(sums + row * 32), load<16>(sums + row * 32 + 16)};
        store_row<16, 2>(result + row * stride, values, false);
    }
}

template <int B, typename Result>
void outer_block_in_tiles(const Packed* turned_g, int64_t g_row_stride, const Packed* x, int64_t x_row_stride,
                          int64_t rows, int64_t groups, const float* start, const float* next_start, Result* result,
                          Prefetcher& ahead) {
    commit_stores(*x);
    for (int n = 0; n < B; n += 32)
        for (int k = 0; k < B; k += 32) {
            const int64_t corner = n * B + k;
            if (start) {
                _tile_loadd(0, start + corner, B * 4);
                _tile_loadd(1, start + corner + 16, B * 4);
                _tile_loadd(2, start + corner + 16 * B, B * 4);
                _tile_loadd(3, start + corner + 16 * B + 16, B * 4);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            if (next_start)
                for (int row = 0; row < 32; row++) {
                    __builtin_prefetch(next_start + corner + row * B, 1, 3);
                    __builtin_prefetch(next_start + corner + row * B + 16, 1, 3);
                }
            for (int64_t row = 0; row < rows; row++)
                for (int64_t group = 0; group < groups; group++) {
                    ahead.step();
                    const Packed* g_at = turned_g + row * g_row_stride + group * (TILE_PIXELS * B) + n * TILE_PIXELS;
                    const Packed* x_at = x + row * x_row_stride + group * (TILE_PIXELS * B) + k;
                    _tile_loadd(6, x_at, B * 4);
                    _tile_loadd(7, x_at + 16, B * 4);
                    _tile_loadd(4, g_at, TILE_PIXELS * 4);
                    _tile_dpbf16ps(0, 4, 6);
                    _tile_dpbf16ps(1, 4, 7);
                    _tile_loadd(5, g_at + 16 * TILE_PIXELS, TILE_PIXELS * 4);
                    _tile_dpbf16ps(2, 5, 6);
                    _tile_dpbf16ps(3, 5, 7);
                }
            store_sums(result + corner, B);
        }
}

// 16 x 16 pairs transposed: rows `from_stride` apart become columns of 16 that lie together.
ACF_INLINE void transpose_16x16(const Packed* from, int64_t from_stride, Packed* to) {
    __m512i a[16], b[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) a[r] = _mm512_loadu_si512(from + r * from_stride);
#pragma GCC unroll 8
    for (int r = 0; r < 16; r += 2) {  // pairs of rows
        b[r] = _mm512_unpacklo_epi32(a[r], a[r + 1]);
        b[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 16; r += 4) {  // four rows: column 4 * lane + c of rows r to r + 3 in lane `lane` of a[r + c]
        a[r] = _mm512_unpacklo_epi64(b[r], b[r + 2]);
        a[r + 1] = _mm512_unpackhi_epi64(b[r], b[r + 2]);
        a[r + 2] = _mm512_unpacklo_epi64(b[r + 1], b[r + 3]);
        a[r + 3] = _mm512_unpackhi_epi64(b[r + 1], b[r + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {  // lanes of the four groups of rows
        const __m512i low = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x44), high = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xee);
        const __m512i low2 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x44);
        const __m512i high2 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xee);
        _mm512_storeu_si512(to + c * 16, _mm512_shuffle_i32x4(low, low2, 0x88));
        _mm512_storeu_si512(to + (4 + c) * 16, _mm512_shuffle_i32x4(low, low2, 0xdd));
        _mm512_storeu_si512(to + (8 + c) * 16, _mm512_shuffle_i32x4(high, high2, 0x88));
        _mm512_storeu_si512(to + (12 + c) * 16, _mm512_shuffle_i32x4(high, high2, 0xdd));
    }
}

template <int B>
void turn_groups(Packed* pixels, int64_t groups) {
    alignas(64) Packed turned[TILE_PIXELS * B];
    for (int64_t group = 0; group < groups; group++, pixels += TILE_PIXELS * B) {
        for (int n = 0; n < B; n += 16) transpose_16x16(pixels + n, B, turned + n * TILE_PIXELS);
        memcpy(pixels, turned, sizeof turned);
    }
}
#else
class TileRegisters {
  public:
    explicit TileRegisters(int) {}
};
#endif

}  // namespace
