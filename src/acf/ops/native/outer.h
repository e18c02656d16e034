// The weight gradient: the pass that sums over pixels.
//
// The tiles (pixels) are cut into segments, each with its own sums, and the block rows into parts; a task is one part
// over one segment and packs for itself, so threads meet only to add up the segments. Which tile belongs to which
// segment depends on nothing but the sizes and the thread count: so do the bits. Where panels hold pairs, a tile is
// the same rows of two images.
#pragma once
#include "arithmetic.h"
#include "microkernels.h"
#include "packing.h"
#include "prefetch.h"
#include "problem.h"
#include "scratch.h"
#include "tiles.h"

namespace {

// Packed operands of a tile: together with the memory of the next they stay in the second-level cache.
constexpr int64_t OUTER_TILE_BYTES = 512 << 10;
constexpr int64_t OUTER_CHUNK_BYTES = 16 << 10;  // one operand's panel: first-level cache
constexpr int64_t USES_PER_PACKING = 256;        // multiplications by one packed number that pay for packing it
constexpr int64_t SEGMENT_SUM_BYTES = 32 << 20;  // private sums, all segments together, at most
constexpr int64_t CHEAP_SUM_BYTES = 8 << 20;     // private sums that cost less than packing the input once more
constexpr int64_t NEAR_SUM_BYTES = 512 << 10;     // sums that stay in the second-level cache from tile to tile

struct OuterPass {
    ImageView input, output;
    PanelLayout input_layout, output_layout;
    int64_t batch, missing_cols, tile_rows, tiles_per_image, tiles, stride_y, halo_y, padding_y;
    int64_t input_elements, output_elements;  // of one packed tile
    int64_t chunk_rows;
    bool across_rows;  // tile registers take 16 pixels at a time over all rows of a tile, not within each
    bool pads_with_pixels;  // where they multiply a gradient of zero, they may multiply it by a pixel of the input
    int64_t segments, parts;
    int64_t blocks;
    bool far_sums;  // fetch a block's sums while the one before is at work
    const int64_t* input_offsets;  // per slot, into a packed input tile
    const int32_t* row_offsets;
    const int32_t* row_slots;
};

struct OuterTile {
    int64_t rows, cols;
    TileSource input, output;
};

OuterTile outer_tile(const OuterPass& pass, int64_t tile) {
    const int64_t image = tile / pass.tiles_per_image * DEPTH, row = tile % pass.tiles_per_image * pass.tile_rows;
    const int64_t missing = image == pass.batch - 1 ? pass.missing_cols : 0;
    const int64_t partner_missing = image == pass.batch - 2 ? pass.missing_cols : 0;
    const bool has_partner = image + 1 < pass.batch;
    OuterTile at;
    at.rows = least(pass.tile_rows, pass.output.height - row);
    at.cols = pass.output.width - missing;
    at.input = {image, row * pass.stride_y - pass.padding_y, (at.rows - 1) * pass.stride_y + 1 + pass.halo_y,
                pass.input.width - missing, has_partner ? pass.input.width - partner_missing : 0};
    at.output = {image, row, at.rows, at.cols, has_partner ? pass.output.width - partner_missing : 0};
    return at;
}

// What becomes of a tile's sums: the first starts from zero, the last may leave the result itself.
template <typename Number>
struct OuterSums {
    float* sums;
    Number* result;  // nullptr: not this tile
    bool from_zero;
};

// How outer_block walks a packed tile: rows of pixels, or of groups of TILE_PIXELS of them.
struct OuterWalk {
    bool in_tiles;         // in tile registers: the gradients are turned
    int64_t rows, cols;    // cols: pixels of a row, in tile registers groups of them
    int64_t x_row, g_row;  // elements from one row to the next
};

// Whether the packed pixels of an input tile are finite: then zero times any of them is zero.
template <int B>
bool is_finite(const OuterPass& pass, const OuterTile& tile, const Packed* packed) {
    typedef uint16_t Halves __attribute__((vector_size(64)));
    constexpr uint16_t EXPONENT = 0x7f80, LOWEST_OF_IT = 0x0080;
    Halves found = {};
    for (int64_t panel = 0; panel < pass.input.channels / B; panel++, packed += pass.input_layout.panel_elements)
        for (int64_t at = 0; at < tile.input.rows * pass.input_layout.row_elements; at += 16) {
            Halves values;
            memcpy(&values, packed + at, sizeof values);
            found |= (values & EXPONENT) + LOWEST_OF_IT;  // an exponent of ones overflows into the sign
        }
    bool finite = true;
    for (int half = 0; half < 32; half++) finite &= found[half] < 0x8000;
    return finite;
}

// Tile registers also multiply pixels between and behind those of the gradient, which are zero there. Where the input
// is infinite or NaN this would spoil the sum: such a tile is multiplied pixel by pixel.
template <int B>
OuterWalk outer_walk(const OuterPass& pass, const OuterTile& tile, const Packed* packed) {
    const int64_t x_row = pass.stride_y * pass.input_layout.row_elements, g_row = pass.output_layout.row_elements;
    if constexpr (SUMS_IN_TILES<B>)
        if (!pass.pads_with_pixels || is_finite<B>(pass, tile, packed)) {
            if (!pass.across_rows) return {true, tile.rows, divide_up(tile.cols, TILE_PIXELS), x_row, g_row};
            const int64_t pixels = (tile.rows - 1) * pass.input_layout.cols + tile.cols;
            return {true, divide_up(pixels, TILE_PIXELS), 1, TILE_PIXELS * B, TILE_PIXELS * B};
        }
    return {false, tile.rows, tile.cols, x_row, g_row};
}

// Add some rows of a packed tile to the sums of one block.
template <int B, typename Result>
void add_rows(const OuterWalk& walk, const Packed* g, const Packed* x, int64_t rows, const float* start,
              const float* next, Result* result, Prefetcher& ahead) {
    if constexpr (SUMS_IN_TILES<B>)
        if (walk.in_tiles)
            return outer_block_in_tiles<B>(g, walk.g_row, x, walk.x_row, rows, walk.cols, start, next, result, ahead);
    outer_block<B>(g, walk.g_row, x, walk.x_row, rows, walk.cols, start, next, result, ahead);
}

// Add one packed tile to the blocks of one block row. A chunk of the gradient's panel stays in the first-level
// cache while all blocks of the row use it.
template <int B, typename Number>
void sum_row(const OuterPass& pass, const OuterWalk& walk, int64_t block_row, const Packed* packed,
             const OuterSums<Number>& to, Prefetcher& ahead) {
    const Packed* g = packed + pass.input_elements + block_row * pass.output_layout.panel_elements;
    const int64_t end = pass.row_offsets[block_row + 1];
    for (int64_t row = 0; row < walk.rows; row += pass.chunk_rows) {
        const int64_t rows = least(pass.chunk_rows, walk.rows - row);
        const bool from_zero = to.from_zero && row == 0;
        for (int64_t at = pass.row_offsets[block_row]; at < end; at++) {
            const int64_t slot = pass.row_slots[at];
            float* sum = to.sums + slot * B * B;
            const float* start = from_zero ? nullptr : sum;
            const bool fetch = pass.far_sums && at + 1 < pass.blocks;
            const float* next = fetch ? to.sums + pass.row_slots[at + 1] * static_cast<int64_t>(B * B) : nullptr;
            const Packed* g_at = g + row * walk.g_row;
            const Packed* x_at = packed + pass.input_offsets[slot] + row * walk.x_row;
            if (to.result && row + rows == walk.rows)
                add_rows<B>(walk, g_at, x_at, rows, start, next, to.result + slot * B * B, ahead);
            else
                add_rows<B>(walk, g_at, x_at, rows, start, next, sum, ahead);
        }
    }
}

// First block row of a part, so that parts have about equally many blocks.
int64_t part_begin(const OuterPass& pass, int64_t block_rows, int64_t part) {
    if (part == pass.parts) return block_rows;
    int64_t row = 0;
    while (row < block_rows && pass.row_offsets[row] * pass.parts < pass.row_offsets[block_rows] * part) row++;
    return row;
}

// How often outer_block walks a row of pixels, or a group of them, while one tile is added to some blocks.
template <int B>
int64_t steps_of_tile(const OuterWalk& walk, int64_t blocks) {
    if (walk.in_tiles) return walk.rows * walk.cols * blocks * (B / 32) * (B / 32);
    constexpr int register_tiles = B / Tile<B>::outer_rows * (Tile<B>::vectors_in_block / Tile<B>::vectors);
    return walk.rows * blocks * register_tiles;
}

template <int B, typename Number>
void sum_segment(const OuterPass& pass, int64_t segment, int64_t part, Packed* packed, float* sums, Number* result) {
    const int64_t begin = pass.tiles * segment / pass.segments, end = pass.tiles * (segment + 1) / pass.segments;
    const int64_t block_rows = pass.output.channels / B;
    const int64_t row_begin = part_begin(pass, block_rows, part), row_end = part_begin(pass, block_rows, part + 1);
    const int64_t slot_begin = pass.row_offsets[row_begin], slot_end = pass.row_offsets[row_end];
    const ImageView output = pass.output.with_channels<Number>(row_begin * B, row_end * B);
    if (begin == end)
        for (int64_t at = slot_begin; at < slot_end; at++)
            memset(sums + pass.row_slots[at] * static_cast<int64_t>(B * B), 0, B * B * sizeof(float));
    for (int64_t index = begin; index < end; index++) {
        const OuterTile tile = outer_tile(pass, index);
        pack_tile<B, NEIGHBOURING_IMAGES, Number>(pass.input, pass.input_layout, tile.input, packed);
        pack_tile<B, NEIGHBOURING_IMAGES, Number>(
            output, pass.output_layout, tile.output,
            packed + pass.input_elements + row_begin * pass.output_layout.panel_elements);
        const OuterWalk walk = outer_walk<B>(pass, tile, packed);
        if constexpr (SUMS_IN_TILES<B>)
            for (int64_t row = row_begin; walk.in_tiles && row < row_end; row++)
                turn_groups<B>(packed + pass.input_elements + row * pass.output_layout.panel_elements,
                               divide_up(tile.rows * pass.output_layout.cols, TILE_PIXELS));
        Prefetcher ahead;
        if (index + 1 < end) {
            const OuterTile next = outer_tile(pass, index + 1);
            ahead.add<Number>(pass.input, next.input);
            if (pass.parts == 1) ahead.add<Number>(pass.output, next.output);  // else most of it is for others
            ahead.spread_over(steps_of_tile<B>(walk, slot_end - slot_begin));
        }
        const bool finishes = pass.segments == 1 && index + 1 == end;
        const OuterSums<Number> to = {sums, finishes ? result : nullptr, index == begin};
        for (int64_t row = row_begin; row < row_end; row++) sum_row<B>(pass, walk, row, packed, to, ahead);
    }
}

// to = sum over segments, `stride` elements apart, in order.
template <typename Number>
void add_segments(const float* first, const float* others, int64_t stride, int64_t others_count, int64_t elements,
                  Number* to) {
    for (int64_t at = 0; at < elements; at += 8) {
        Vector<8>::exact sum = load<8>(first + at);
        for (int64_t segment = 0; segment < others_count; segment++) sum += load<8>(others + segment * stride + at);
        store<8>(to + at, sum);
    }
}

// Twice as many tasks as threads, so that a delayed thread delays little. Parts pack the input once each, which
// only many blocks per input channel pay for; segments keep sums once each, which only few blocks can afford.
void choose_tasks(OuterPass& pass, const Problem& p) {
    const int64_t tasks = p.threads == 1 ? 1 : 2 * p.threads, block_rows = p.output_channels / p.block;
    const int64_t uses_of_an_input = p.blocks * p.block * p.block / p.input_channels;
    const int64_t sum_bytes = p.blocks * p.block * p.block * 4;
    const bool pays = uses_of_an_input >= USES_PER_PACKING * tasks && tasks * sum_bytes > CHEAP_SUM_BYTES;
    if (pays && block_rows >= tasks) {
        pass.segments = 1;
        pass.parts = tasks;
        return;
    }
    const int64_t affordable = most(1, SEGMENT_SUM_BYTES / most(1, sum_bytes));
    pass.segments = least(affordable >= tasks ? tasks : least(affordable, p.threads), most(1, pass.tiles));
    pass.parts = pass.segments >= p.threads ? 1 : divide_up(p.threads, pass.segments);
}

float* own_sums(const Problem& p, float*) { return static_cast<float*>(p.weight); }
float* own_sums(const Problem&, uint16_t*) { return nullptr; }

template <int B, typename Number>
int run_outer(const OuterPass& pass, const Problem& p) {
    const int64_t packed_elements = pass.input_elements + pass.output_elements, sum_elements = p.blocks * B * B;
    float* in_place = own_sums(p, static_cast<Number*>(nullptr));  // the first segment may be the result itself
    Packed* packed = workspace().packed.take<Packed>(p.threads * packed_elements);
    float* sums = workspace().sums.take<float>(pass.segments * sum_elements);
    if (!packed || !sums) return STATUS_OUT_OF_MEMORY;
    float* first = in_place ? in_place : sums;
    float* others = in_place ? sums : sums + sum_elements;
#pragma omp parallel num_threads(p.threads)
    {
        [[maybe_unused]] const TileRegisters registers(TILE_PIXELS);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < pass.segments * pass.parts; task++) {
            const int64_t segment = task / pass.parts;
            float* mine = segment == 0 ? first : others + (segment - 1) * sum_elements;
            sum_segment<B, Number>(pass, segment, task % pass.parts, packed + omp_get_thread_num() * packed_elements,
                                   mine, static_cast<Number*>(p.weight));
        }
        if (pass.segments > 1 || (!in_place && pass.tiles == 0)) {
#pragma omp for schedule(static)
            for (int64_t slot = 0; slot < p.blocks; slot++)
                add_segments(first + slot * B * B, others + slot * B * B, sum_elements, pass.segments - 1, B * B,
                             static_cast<Number*>(p.weight) + slot * B * B);
        }
    }
    return STATUS_OK;
}

template <int B, typename Number>
int weight_gradient(const Problem& p) {
    OuterPass pass;
    pass.input = input_view(p);
    pass.output = output_view(p);
    pass.batch = p.batch;
    pass.missing_cols = p.missing_cols;
    pass.stride_y = p.stride_y;
    pass.padding_y = p.padding_y;
    pass.halo_y = (p.kernel_height - 1) * p.dilation_y;
    pass.blocks = p.blocks;
    pass.far_sums = p.blocks * B * B * static_cast<int64_t>(sizeof(float)) > NEAR_SUM_BYTES;
    pass.row_offsets = p.row_offsets;
    pass.row_slots = p.row_slots;
    const int64_t cols = p.output_width + (p.kernel_width - 1) * p.dilation_x / p.stride_x;
    const int64_t panels = p.input_channels / B;
    int64_t gradient_cols = p.output_width, zeros_behind = 0;  // packed pixels of a row; groups of 16 may end in zeros
    pass.across_rows = pass.pads_with_pixels = false;
    if constexpr (SUMS_IN_TILES<B>) {
        const int64_t whole = divide_up(p.output_width, TILE_PIXELS) * TILE_PIXELS;
        pass.across_rows = p.stride_x == 1 && p.stride_y == 1 && p.output_height > 1 && cols < whole;
        gradient_cols = pass.across_rows ? cols : whole;
        if (whole != p.output_width) zeros_behind = (TILE_PIXELS - 1) * B;
        // Not those of a linear layer: behind its one row of pixels lie zeros.
        pass.pads_with_pixels = whole != p.output_width && (p.output_height > 1 || p.kernel_height > 1 ||
                                                            p.kernel_width > 1 || p.stride_x > 1);
    }
    const int64_t row_elements = p.stride_y * p.stride_x * cols * p.input_channels + gradient_cols * p.output_channels;
    const int64_t fitting_rows = OUTER_TILE_BYTES / (row_elements * static_cast<int64_t>(sizeof(Packed)));
    pass.tiles_per_image = divide_up(p.output_height, most(1, least(p.output_height, fitting_rows)));
    pass.tile_rows = divide_up(p.output_height, pass.tiles_per_image);  // tiles of about equal height
    pass.tiles_per_image = divide_up(p.output_height, pass.tile_rows);
    pass.tiles = divide_up(p.batch, DEPTH) * pass.tiles_per_image;
    pass.input_layout =
        PanelLayout::make((pass.tile_rows - 1) * p.stride_y + 1 + pass.halo_y, cols, p.stride_x, -p.padding_x, B,
                          zeros_behind);
    pass.output_layout = PanelLayout::make(pass.tile_rows, gradient_cols, 1, 0, B, zeros_behind);
    pass.input_elements = panels * pass.input_layout.panel_elements;
    pass.output_elements = p.output_channels / B * pass.output_layout.panel_elements;
    pass.chunk_rows = most(1, OUTER_CHUNK_BYTES / ((pass.across_rows ? TILE_PIXELS : gradient_cols) * B * 4));
    choose_tasks(pass, p);

    int64_t* offsets = workspace().offsets.take<int64_t>(p.blocks);
    if (!offsets) return STATUS_OUT_OF_MEMORY;
    for (int64_t slot = 0; slot < p.blocks; slot++) {
        const int64_t col = p.block_cols[slot];
        const int64_t tap_y = col / panels / p.kernel_width, tap_x = col / panels % p.kernel_width * p.dilation_x;
        offsets[slot] = col % panels * pass.input_layout.panel_elements +
                        tap_y * p.dilation_y * pass.input_layout.row_elements +
                        (tap_x % p.stride_x * pass.input_layout.cols + tap_x / p.stride_x) * B;
    }
    pass.input_offsets = offsets;
    return run_outer<B, Number>(pass, p);
}

}  // namespace
