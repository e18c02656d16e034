// The tile instructions of AMX in plain C++, for processors without them, and nothing of their speed.
// What the processor refuses, such as shapes that do not fit each other, ends the process.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace in_software {

struct Configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(Configuration) == 64, "the operand of ldtilecfg");

struct Tile {
    uint32_t values[16][16];  // bits of a float, or a pair of bfloat16
};

inline thread_local Configuration configuration = {};
inline thread_local Tile tiles[8];

inline void require(bool held, const char* rule) {
    if (held) return;
    fprintf(stderr, "AMX in software: %s\n", rule);
    abort();
}

inline void require_configured(int tile) {
    require(configuration.palette == 1, "tiles are not configured in this thread");
    require(tile >= 0 && tile < 8 && configuration.rows[tile] > 0, "the tile has no shape");
}

inline void load_configuration(const void* from) {
    memcpy(&configuration, from, sizeof configuration);
    require(configuration.palette == 1 && configuration.start_row == 0, "palette 1 from row 0 on");
    for (uint8_t byte : configuration.reserved) require(byte == 0, "reserved bytes are zero");
    for (int tile = 0; tile < 16; tile++) {
        const int row_bytes = configuration.row_bytes[tile], rows = configuration.rows[tile];
        require(row_bytes <= 64 && rows <= 16, "a tile has at most 16 rows of 64 bytes");
        require((row_bytes == 0) == (rows == 0), "a tile has rows and columns, or neither");
        require(tile < 8 || rows == 0, "there are 8 tiles");
    }
    memset(tiles, 0, sizeof tiles);
}

inline void release() {
    configuration = {};
    memset(tiles, 0xff, sizeof tiles);  // NaN
}

inline void zero(int tile) {
    require_configured(tile);
    memset(&tiles[tile], 0, sizeof(Tile));
}

inline void load(int tile, const void* from, int64_t stride_bytes) {
    zero(tile);
    for (int row = 0; row < configuration.rows[tile]; row++)
        memcpy(tiles[tile].values[row], static_cast<const char*>(from) + row * stride_bytes,
               configuration.row_bytes[tile]);
}

inline void store(int tile, void* to, int64_t stride_bytes) {
    require_configured(tile);
    for (int row = 0; row < configuration.rows[tile]; row++)
        memcpy(static_cast<char*>(to) + row * stride_bytes, tiles[tile].values[row], configuration.row_bytes[tile]);
}

inline float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// A bfloat16 of a pair, as tdpbf16ps reads it: subnormal numbers are zero.
inline float half(uint32_t pair, int which) {
    const uint32_t bits = which ? pair & 0xffff0000u : pair << 16;
    return as_float(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}

inline void multiply_pairs(int sum, int left, int right) {
    for (int tile : {sum, left, right}) require_configured(tile);
    const Configuration& c = configuration;
    const int pairs = c.rows[right], cols = c.row_bytes[sum] / 4;
    require(sum != left && sum != right && left != right, "three different tiles");
    require(c.rows[sum] == c.rows[left], "as many rows of sums as on the left");
    require(c.row_bytes[sum] == c.row_bytes[right] && cols * 4 == c.row_bytes[sum], "as many columns as on the right");
    require(c.row_bytes[left] == 4 * pairs, "as many pairs in a row on the left as rows on the right");
    float factors[2][16][16];
    for (int which = 0; which < 2; which++)
        for (int pair = 0; pair < pairs; pair++)
            for (int col = 0; col < cols; col++) factors[which][pair][col] = half(tiles[right].values[pair][col], which);
    for (int row = 0; row < c.rows[sum]; row++) {
        float sums[16];
        memcpy(sums, tiles[sum].values[row], sizeof sums);
        for (int pair = 0; pair < pairs; pair++)
            for (int which = 0; which < 2; which++) {
                const float factor = half(tiles[left].values[row][pair], which);
                for (int col = 0; col < cols; col++) sums[col] += factor * factors[which][pair][col];
            }
        memcpy(tiles[sum].values[row], sums, sizeof sums);
    }
}

}  // namespace in_software

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig in_software::load_configuration
#define _tile_release in_software::release
#define _tile_zero in_software::zero
#define _tile_loadd in_software::load
#define _tile_stored in_software::store
#define _tile_dpbf16ps in_software::multiply_pairs
