// The passes that sum over channels, forward and input gradient: every written pixel gathers blocks of the read image.
#pragma once
#include "activation.h"
#include "arithmetic.h"
#include "microkernels.h"
#include "packing.h"
#include "prefetch.h"
#include "problem.h"
#include "scratch.h"
#include "statistics.h"
#include "tiles.h"

namespace {

// Packed input of a tile: together with the memory of the next it stays in the second-level cache.
constexpr int64_t PACKED_TILE_BYTES = 384 << 10;

// From this size on a result is written past the caches: reading its old lines first costs more than it saves.
constexpr int64_t PAST_CACHES_BYTES = 8 << 20;

// Pixels of the written image whose coordinates leave one residue modulo the stride: each has its own taps.
// Grid pixel (row, col) is image pixel (row * step_y + shift_y, col * step_x + shift_x).
struct PixelGrid {
    int64_t shift_y, shift_x;
    int64_t row_begin, row_end, col_begin, col_end;
    const int64_t* term_offsets;  // [written blocks + 1] into the terms
};

struct GatherPass {
    ImageView read, written;
    PanelLayout layout;
    int64_t batch, threads, missing_cols;
    int64_t grid_rows, read_rows_per_grid_row, halo_rows, y_origin;
    int64_t step_y, step_x;
    int64_t tile_rows, parts;  // rows of the grid per tile; shares into which a tile's written blocks are cut
    const PixelGrid* grids;
    int64_t grid_count;
    const Term* terms;
    int64_t blocks;    // terms of all grids together
    const float* bias;  // [written channels], or null
    bool past_caches;  // write the result with stores that leave the caches alone
    int64_t epilogue;
    void* epilogue_operand;
    float* tile_sums;  // [tiles][written blocks][3][B]: TileSums, or null
};

// The written image is always contiguous in one memory format or the other.
template <typename Number>
int64_t written_bytes(const GatherPass& pass) {
    const int64_t pixels = (pass.batch * pass.written.width - pass.missing_cols) * pass.written.height;
    return pixels * pass.written.channels * static_cast<int64_t>(sizeof(Number));
}

// Only whole, aligned cache lines are worth it.
template <int B, typename Number>
bool writes_past_caches(const GatherPass& pass) {
    const bool whole_lines = B * sizeof(Number) % 64 == 0 && (sizeof(Number) == 4 || DEPTH == 2) &&
                             pass.written.channel_stride == 1;
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(pass.written.data) | reinterpret_cast<uintptr_t>(pass.epilogue_operand);
    return whole_lines && addresses % 64 == 0 && !pass.tile_sums &&
           written_bytes<Number>(pass) >= PAST_CACHES_BYTES;
}

// One tile: rows of the grid in one image, and what they read.
struct GatherTile {
    int64_t first_row, last_row, missing;
    TileSource source;
};

GatherTile gather_tile_at(const GatherPass& pass, int64_t tile) {
    const int64_t tiles_per_image = divide_up(pass.grid_rows, pass.tile_rows), image = tile / tiles_per_image;
    GatherTile at;
    at.first_row = tile % tiles_per_image * pass.tile_rows;
    at.last_row = least(pass.grid_rows, at.first_row + pass.tile_rows);
    at.missing = image == pass.batch - 1 ? pass.missing_cols : 0;
    at.source.image = image;
    at.source.y = pass.y_origin + at.first_row * pass.read_rows_per_grid_row;
    at.source.rows = (at.last_row - at.first_row - 1) * pass.read_rows_per_grid_row + 1 + pass.halo_rows;
    at.source.width = pass.read.width - at.missing;
    at.source.partner_width = 0;
    return at;
}

// The pixels of a grid that a tile writes, in pieces for tile registers.
template <int B>
Pieces pieces_of(const GatherPass& pass, int64_t rows, int64_t cols) {
    const int64_t row_elements = pass.read_rows_per_grid_row * pass.layout.row_elements;
    return Pieces::cut(rows, cols, row_elements, B / DEPTH, pass.read_rows_per_grid_row == 1 && pass.layout.phases == 1);
}

// How often gather_tile or gather_pieces walks a term while one tile is written.
template <int B>
int64_t steps_of_tile(const GatherPass& pass, const GatherTile& tile) {
    if constexpr (GATHERS_IN_TILES<B>) {
        const int64_t rows = tile.last_row - tile.first_row, cols = divide_up(pass.written.width, pass.step_x);
        return divide_up(pieces_of<B>(pass, rows, cols).count, PIECES_AT_ONCE<B>) * pass.blocks * (B / CHANNELS_AT_ONCE<B>);
    }
    const int64_t runs = divide_up(pass.written.width, pass.step_x * Tile<B>::gather_rows);
    return (tile.last_row - tile.first_row) * pass.blocks * (Tile<B>::vectors_in_block / Tile<B>::vectors) * runs;
}

// A run whose sums are finished by the epilogue while they are still in the first-level cache, a few pixels at a time:
// what a scale will need is asked for one part ahead, not in one burst.
template <int B, typename Number>
void gather_and_finish_run(const GatherPass& pass, const Packed* run, const Term* terms, int64_t count,
                           const float* start, Number* out, int64_t x_step, int64_t cols, float* written_run,
                           Prefetcher& ahead) {
    constexpr int64_t part = 2 * Tile<B>::gather_rows;
    Number* operand = static_cast<Number*>(pass.epilogue_operand) + (out - static_cast<Number*>(pass.written.data));
    for (int64_t col = 0; col < cols; col += part) {
        if (pass.epilogue == EPILOGUE_SCALE)
            for (int64_t next = col == 0 ? 0 : col + part; next < least(cols, col + 2 * part); next++)
                for (int at = 0; at < B; at += 64 / sizeof(Number))
                    __builtin_prefetch(operand + next * x_step + at, 0, 3);
        const int64_t pixels = least(part, cols - col);
        gather_run<B>(run + col * (B / DEPTH), terms, count, start, written_run, B, pixels, false, ahead);
        finish_run<B, Number>(pass.epilogue, written_run, out + col * x_step, operand + col * x_step, x_step, pixels,
                              pass.past_caches);
    }
}

// Sums of neighbouring pixels of a block, [count][B], finished and written.
template <int B, typename Number>
void finish_and_write(const GatherPass& pass, const float* sums, Number* out, int64_t x_step, int64_t count) {
    if (pass.epilogue != EPILOGUE_NONE) {
        Number* operand = static_cast<Number*>(pass.epilogue_operand) + (out - static_cast<Number*>(pass.written.data));
        finish_run<B, Number>(pass.epilogue, sums, out, operand, x_step, count, pass.past_caches);
    } else if (pass.written.channel_stride == 1) {
        constexpr int L = Tile<B>::lanes, V = Tile<B>::vectors_in_block;
        for (int64_t pixel = 0; pixel < count; pixel++) {
            typename Vector<L>::exact values[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) values[v] = load<L>(sums + pixel * B + v * L);
            store_row<L, V>(out + pixel * x_step, values, pass.past_caches);
        }
    } else {
        transpose(sums, B, 1, out, pass.written.channel_stride, x_step, count, B);
    }
}

// What a tile writes of one grid and block, in tile registers.
template <int B, typename Number>
void write_block_in_tiles(const GatherPass& pass, const GatherTile& tile, const PixelGrid& grid, int64_t block,
                          const Packed* packed, float* tile_sums, Prefetcher& ahead) {
    const int64_t row_begin = most(tile.first_row, grid.row_begin), row_end = least(tile.last_row, grid.row_end);
    const Pieces pieces = pieces_of<B>(pass, row_end - row_begin, grid.col_end - tile.missing - grid.col_begin);
    const Packed* first_run = packed +
                              (row_begin - tile.first_row) * pass.read_rows_per_grid_row * pass.layout.row_elements +
                              grid.col_begin * (B / DEPTH);
    const Term* terms = pass.terms + grid.term_offsets[block];
    const int64_t count = grid.term_offsets[block + 1] - grid.term_offsets[block];
    const float* start = pass.bias ? pass.bias + block * B : nullptr;
    Number* written = static_cast<Number*>(pass.written.data) + block * B * pass.written.channel_stride;
    const int64_t x_step = pass.step_x * pass.written.x_stride;
    constexpr int MOST = PIECES_AT_ONCE<B>;
    alignas(64) float sums[MOST * TILE_PIXELS * B];
    for (int64_t piece = 0; piece < pieces.count; piece += MOST) {
        const int64_t at_once = least(MOST, pieces.count - piece);
        int64_t offsets[MOST];
        for (int64_t each = 0; each < at_once; each++) offsets[each] = pieces.offset(piece + each);
        switch (at_once) {
            case 1: gather_pieces<B, 1>(first_run, offsets, terms, count, start, sums, ahead); break;
            case 2: gather_pieces<B, 2>(first_run, offsets, terms, count, start, sums, ahead); break;
            case 3: gather_pieces<B, smaller(3, MOST)>(first_run, offsets, terms, count, start, sums, ahead); break;
            case 4: gather_pieces<B, smaller(4, MOST)>(first_run, offsets, terms, count, start, sums, ahead); break;
        }
        for (int64_t each = 0; each < at_once; each++)
            pieces.each_run(piece + each, [&](int64_t row, int64_t col, int64_t pixels, int64_t first) {
                Number* out = written + pass.written.offset(tile.source.image,
                                                            (row_begin + row) * pass.step_y + grid.shift_y,
                                                            (grid.col_begin + col) * pass.step_x + grid.shift_x);
                finish_and_write<B>(pass, sums + (each * TILE_PIXELS + first) * B, out, x_step, pixels);
                if (tile_sums)
                    TileSums<B>::add_run(out, x_step, pixels, row == 0 && col == 0, tile_sums + block * (3 * B));
            });
    }
}

template <int B, typename Number>
void write_tile(const GatherPass& pass, const GatherTile& tile, const Packed* packed, float* written_run, int64_t part,
                float* tile_sums, Prefetcher& ahead) {
    const int64_t written_blocks = pass.written.channels / B;
    const int64_t begin = written_blocks * part / pass.parts, end = written_blocks * (part + 1) / pass.parts;
    for (int64_t g = 0; g < pass.grid_count; g++) {
        const PixelGrid& grid = pass.grids[g];
        const int64_t row_begin = most(tile.first_row, grid.row_begin);
        const int64_t row_end = least(tile.last_row, grid.row_end);
        const int64_t cols = grid.col_end - tile.missing - grid.col_begin;
        for (int64_t block = begin; block < end; block++) {
            if constexpr (GATHERS_IN_TILES<B>) {
                write_block_in_tiles<B, Number>(pass, tile, grid, block, packed, tile_sums, ahead);
                continue;
            }
            const Term* terms = pass.terms + grid.term_offsets[block];
            const int64_t count = grid.term_offsets[block + 1] - grid.term_offsets[block];
            const float* start = pass.bias ? pass.bias + block * B : nullptr;
            for (int64_t row = row_begin; row < row_end; row++) {
                const Packed* run = packed +
                                    (row - tile.first_row) * pass.read_rows_per_grid_row * pass.layout.row_elements +
                                    grid.col_begin * (B / DEPTH);
                Number* out = static_cast<Number*>(pass.written.data) + block * B * pass.written.channel_stride +
                              pass.written.offset(tile.source.image, row * pass.step_y + grid.shift_y,
                                                  grid.col_begin * pass.step_x + grid.shift_x);
                const int64_t x_step = pass.step_x * pass.written.x_stride;
                if (pass.epilogue != EPILOGUE_NONE) {
                    gather_and_finish_run<B, Number>(pass, run, terms, count, start, out, x_step, cols, written_run,
                                                     ahead);
                } else if (pass.written.channel_stride == 1) {
                    gather_run<B>(run, terms, count, start, out, x_step, cols, pass.past_caches, ahead);
                    if (tile_sums)
                        TileSums<B>::add_run(out, x_step, cols, row == row_begin, tile_sums + block * (3 * B));
                } else {  // channels outermost: a run of pixels is turned while it is still in the cache
                    gather_run<B>(run, terms, count, start, written_run, B, cols, false, ahead);
                    transpose(written_run, B, 1, out, pass.written.channel_stride, x_step, cols, B);
                }
            }
        }
    }
}

template <int B, typename Number>
int run_gather(GatherPass& pass) {
    const int64_t tiles = pass.batch * divide_up(pass.grid_rows, pass.tile_rows);
    // The last pieces of a tile read past its packed pixels what nobody writes.
    const int64_t past_the_end = GATHERS_IN_TILES<B> ? TILE_PIXELS * B / DEPTH : 0;
    const int64_t elements = pass.read.channels / B * pass.layout.panel_elements + past_the_end;
    const int64_t run_elements = divide_up(pass.written.width, 16) * 16 * B;
    Packed* packed = workspace().packed.take<Packed>(pass.threads * elements);
    float* runs = workspace().sums.take<float>(pass.threads * run_elements);
    if (!packed || !runs) return STATUS_OUT_OF_MEMORY;
    pass.past_caches = writes_past_caches<B, Number>(pass);
#pragma omp parallel num_threads(pass.threads)
    {
        [[maybe_unused]] const TileRegisters registers(least(B / DEPTH, 16));
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tiles * pass.parts; task++) {
            const GatherTile tile = gather_tile_at(pass, task / pass.parts);
            Packed* mine = packed + omp_get_thread_num() * elements;
            pack_tile<B, NEIGHBOURING_CHANNELS, Number>(pass.read, pass.layout, tile.source, mine);
            Prefetcher ahead;
            if (pass.parts == 1 && task + pass.threads < tiles) {  // about what this thread will get next
                ahead.add<Number>(pass.read, gather_tile_at(pass, task + pass.threads).source);
                ahead.spread_over(steps_of_tile<B>(pass, tile));
            }
            float* tile_sums =
                pass.tile_sums ? pass.tile_sums + task / pass.parts * (3 * pass.written.channels) : nullptr;
            write_tile<B, Number>(pass, tile, mine, runs + omp_get_thread_num() * run_elements, task % pass.parts,
                                  tile_sums, ahead);
            finish_stores();
        }
    }
    return STATUS_OK;
}

// Rows of the grid per tile so that a packed tile fits the cache, and shares of blocks so that every thread has work.
void choose_tiles(GatherPass& pass, int64_t block, int64_t cols) {
    pass.parts = 1;
    const int64_t row_bytes = pass.layout.phases * cols * pass.read.channels * (4 / DEPTH);
    const int64_t rows = (PACKED_TILE_BYTES / row_bytes - pass.halo_rows - 1) / pass.read_rows_per_grid_row + 1;
    pass.tile_rows = least(pass.grid_rows, most(rows, least(4, pass.grid_rows)));
    pass.tile_rows = divide_up(pass.grid_rows, divide_up(pass.grid_rows, pass.tile_rows));
    const int64_t tiles = pass.batch * divide_up(pass.grid_rows, pass.tile_rows);
    if (tiles == 0) return;
    pass.parts = tiles >= 2 * pass.threads ? 1 : divide_up(2 * pass.threads, tiles);
    pass.parts = most(1, least(pass.parts, pass.written.channels / block));
}

// Mean and biased variance of the written channels from the sums of all tiles.
template <int B>
void merge_statistics(const GatherPass& pass, float* statistics) {
    const int64_t tiles = pass.batch * divide_up(pass.grid_rows, pass.tile_rows), channels = pass.written.channels;
    for (int64_t channel = 0; channel < channels; channel++) {
        const float* sums = pass.tile_sums + channel / B * (3 * B) + channel % B;
        RunningStatistics running;
        for (int64_t index = 0; index < tiles; index++, sums += 3 * channels) {
            const GatherTile tile = gather_tile_at(pass, index);
            const int64_t pixels = (tile.last_row - tile.first_row) * (pass.written.width - tile.missing);
            running.add(static_cast<double>(pixels), sums[0], sums[B], sums[2 * B]);
        }
        statistics[channel] = static_cast<float>(running.mean);
        statistics[channels + channel] = static_cast<float>(running.variance());
    }
}

// The weight packed, transposed and in the order the rows walk it.
template <int B, typename Number>
void transpose_weight(const Problem& p, Packed* to) {
    const Number* weight = static_cast<const Number*>(p.weight);
#pragma omp parallel for num_threads(p.threads)
    for (int64_t at = 0; at < p.blocks; at++)
        pack_transposed<B>(weight + static_cast<int64_t>(p.row_slots[at]) * B * B, to + at * (B * B / DEPTH));
}

template <int B, typename Number>
int forward(const Problem& p) {
    GatherPass pass;
    const int64_t halo_y = (p.kernel_height - 1) * p.dilation_y, halo_x = (p.kernel_width - 1) * p.dilation_x;
    pass.read = input_view(p);
    pass.written = output_view(p);
    pass.batch = p.batch;
    pass.threads = p.threads;
    pass.missing_cols = p.missing_cols;
    pass.grid_rows = p.output_height;
    pass.read_rows_per_grid_row = p.stride_y;
    pass.halo_rows = halo_y;
    pass.y_origin = -p.padding_y;
    pass.step_y = pass.step_x = 1;
    const int64_t cols = p.output_width + halo_x / p.stride_x;
    pass.layout.phases = p.stride_x;
    choose_tiles(pass, B, cols);
    pass.layout = PanelLayout::make((pass.tile_rows - 1) * p.stride_y + 1 + halo_y, cols, p.stride_x, -p.padding_x,
                                    B / DEPTH);

    Packed* turned = workspace().weights.take<Packed>(p.blocks * (B * B / DEPTH));
    Term* terms = workspace().terms.take<Term>(p.blocks);
    int64_t* offsets = workspace().offsets.take<int64_t>(p.output_channels / B + 1);
    if (!turned || !terms || !offsets) return STATUS_OUT_OF_MEMORY;
    transpose_weight<B, Number>(p, turned);
    const int64_t panels = p.input_channels / B;
    for (int64_t at = 0; at < p.blocks; at++) {
        const int64_t col = p.block_cols[p.row_slots[at]];
        const int64_t tap_y = col / panels / p.kernel_width, tap_x = col / panels % p.kernel_width;
        const int64_t phase = tap_x * p.dilation_x % p.stride_x, shift = tap_x * p.dilation_x / p.stride_x;
        terms[at].weight = turned + at * (B * B / DEPTH);
        terms[at].input_offset = col % panels * pass.layout.panel_elements +
                                 tap_y * p.dilation_y * pass.layout.row_elements +
                                 (phase * pass.layout.cols + shift) * (B / DEPTH);
    }
    for (int64_t row = 0; row <= p.output_channels / B; row++) offsets[row] = p.row_offsets[row];
    PixelGrid grid = {0, 0, 0, p.output_height, 0, p.output_width, offsets};
    pass.grids = &grid;
    pass.grid_count = 1;
    pass.terms = terms;
    pass.blocks = p.blocks;
    pass.bias = p.bias;
    pass.epilogue = p.epilogue;
    pass.epilogue_operand = p.epilogue_operand;
    pass.tile_sums = nullptr;
    if (p.statistics) {
        const int64_t tiles = p.batch * divide_up(pass.grid_rows, pass.tile_rows);
        pass.tile_sums = workspace().statistics.take<float>(tiles * 3 * p.output_channels);
        if (!pass.tile_sums) return STATUS_OUT_OF_MEMORY;
    }
    const int status = run_gather<B, Number>(pass);
    if (status == STATUS_OK && p.statistics) merge_statistics<B>(pass, p.statistics);
    return status;
}

// First grid coordinate, and one past the last, of the image pixels grid * step + residue - padding in [0, size).
int64_t grid_begin(int64_t step, int64_t residue, int64_t padding) {
    return padding > residue ? divide_up(padding - residue, step) : 0;
}
int64_t grid_end(int64_t step, int64_t residue, int64_t padding, int64_t size) {
    return size - 1 + padding < residue ? 0 : (size - 1 + padding - residue) / step + 1;
}

// Packed weights in slot order: the parameter itself, or a copy, widened or with pairs of rows interleaved.
template <int B>
const Packed* packed_weight(const Problem& p, const float*) {
    return static_cast<const Packed*>(p.weight);
}
template <int B>
const Packed* packed_weight(const Problem& p, const uint16_t*) {
    Packed* copy = workspace().weights.take<Packed>(p.blocks * (B * B / DEPTH));
    if (!copy) return nullptr;
#pragma omp parallel for num_threads(p.threads)
    for (int64_t slot = 0; slot < p.blocks; slot++)
        pack_rows<B>(static_cast<const uint16_t*>(p.weight) + slot * B * B, B, copy + slot * (B * B / DEPTH));
    return copy;
}

template <int B, typename Number>
int input_gradient(const Problem& p) {
    GatherPass pass;
    // A pixel at grid * stride + residue - padding gathers the output gradients at grid - (tap - residue) / stride.
    const int64_t reach_y = (p.kernel_height - 1) * p.dilation_y / p.stride_y;
    const int64_t reach_x = (p.kernel_width - 1) * p.dilation_x / p.stride_x;
    const int64_t first_row = p.padding_y / p.stride_y, first_col = p.padding_x / p.stride_x;
    pass.read = output_view(p);
    pass.written = input_view(p);
    pass.batch = p.batch;
    pass.threads = p.threads;
    pass.missing_cols = p.missing_cols;
    pass.grid_rows = (p.input_height - 1 + p.padding_y) / p.stride_y + 1 - first_row;
    pass.read_rows_per_grid_row = 1;
    pass.halo_rows = reach_y;
    pass.y_origin = first_row - reach_y;
    pass.step_y = p.stride_y;
    pass.step_x = p.stride_x;
    const int64_t grid_cols = (p.input_width - 1 + p.padding_x) / p.stride_x + 1 - first_col;
    const int64_t cols = grid_cols + reach_x;
    pass.layout.phases = 1;
    choose_tiles(pass, B, cols);
    pass.layout = PanelLayout::make(pass.tile_rows + reach_y, cols, 1, first_col - reach_x, B / DEPTH);

    const int64_t panels = p.input_channels / B, grid_count = p.stride_y * p.stride_x;
    const Packed* weight = packed_weight<B>(p, static_cast<const Number*>(nullptr));
    Term* terms = workspace().terms.take<Term>(p.blocks);
    const int64_t grid_slots = divide_up(sizeof(PixelGrid), sizeof(int64_t)) * grid_count;
    int64_t* offsets = workspace().offsets.take<int64_t>(grid_count * (panels + 1) + grid_slots);
    if ((!weight && p.blocks) || !terms || !offsets) return STATUS_OUT_OF_MEMORY;
    PixelGrid* grids = reinterpret_cast<PixelGrid*>(offsets + grid_count * (panels + 1));
    int64_t filled = 0;
    for (int64_t g = 0; g < grid_count; g++) {
        const int64_t residue_y = g / p.stride_x, residue_x = g % p.stride_x;
        int64_t* starts = offsets + g * (panels + 1);
        for (int64_t panel = 0; panel < panels; panel++) {
            starts[panel] = filled;
            for (int64_t tap = 0; tap < p.kernel_height * p.kernel_width; tap++) {
                const int64_t tap_y = tap / p.kernel_width * p.dilation_y, tap_x = tap % p.kernel_width * p.dilation_x;
                if (tap_y % p.stride_y != residue_y || tap_x % p.stride_x != residue_x) continue;
                const int64_t col = tap * panels + panel;
                for (int64_t at = p.col_offsets[col]; at < p.col_offsets[col + 1]; at++) {
                    const int64_t slot = p.col_slots[at];
                    terms[filled].weight = weight + slot * (B * B / DEPTH);
                    terms[filled].input_offset = p.block_rows[slot] * pass.layout.panel_elements +
                                                 (reach_y - tap_y / p.stride_y) * pass.layout.row_elements +
                                                 (reach_x - tap_x / p.stride_x) * (B / DEPTH);
                    filled++;
                }
            }
        }
        starts[panels] = filled;
        grids[g] = {residue_y - p.padding_y + first_row * p.stride_y,
                    residue_x - p.padding_x + first_col * p.stride_x,
                    grid_begin(p.stride_y, residue_y, p.padding_y) - first_row,
                    grid_end(p.stride_y, residue_y, p.padding_y, p.input_height) - first_row,
                    grid_begin(p.stride_x, residue_x, p.padding_x) - first_col,
                    grid_end(p.stride_x, residue_x, p.padding_x, p.input_width) - first_col,
                    starts};
    }
    pass.grids = grids;
    pass.grid_count = grid_count;
    pass.terms = terms;
    pass.blocks = p.blocks;
    pass.bias = nullptr;
    pass.tile_sums = nullptr;
    pass.epilogue = p.epilogue;
    pass.epilogue_operand = p.epilogue_operand;
    return run_gather<B, Number>(pass);
}

}  // namespace
