// Forward, input gradient and weight gradient, compiled once per instruction set (ACF_ISA names it).
#include "microkernels.h"
#include "packing.h"
#include "problem.h"
#include "scratch.h"

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_thread_num() { return 0; }
#endif

namespace {

constexpr int64_t PACKED_TILE_BYTES = 768 << 10;  // packed input of a tile: stays in the second-level cache
constexpr int64_t OUTER_TILE_BYTES = 1 << 20;     // the same for both operands of the weight gradient
constexpr int64_t OUTER_CHUNK_BYTES = 16 << 10;   // one operand's panel in the weight gradient: first-level cache
constexpr int64_t USES_PER_PACKING = 256;         // multiplications by one packed number that pay for packing it
constexpr int64_t SEGMENT_SUM_BYTES = 32 << 20;   // private sums of the weight gradient, all segments together

// From this size on a result is written past the caches: reading its old lines first costs more than it saves.
constexpr int64_t PAST_CACHES_BYTES = 8 << 20;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

ImageView input_view(const Problem& p) {
    return {p.input, p.input_channels, p.input_height, p.input_width,
            p.input_image_stride, p.input_channel_stride, p.input_y_stride, p.input_x_stride};
}

ImageView output_view(const Problem& p) {
    return {p.output, p.output_channels, p.output_height, p.output_width,
            p.output_image_stride, p.output_channel_stride, p.output_y_stride, p.output_x_stride};
}

// Pixels of the written image whose coordinates leave one residue modulo the stride: each has its own taps.
// Grid pixel (row, col) is image pixel (row * step_y + shift_y, col * step_x + shift_x).
struct PixelGrid {
    int64_t shift_y, shift_x;
    int64_t row_begin, row_end, col_begin, col_end;
    const int64_t* term_offsets;  // [written blocks + 1] into the terms
};

// A pass that sums terms: every written pixel gathers blocks of the read image.
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
    bool past_caches;  // write the result with stores that leave the caches alone
};

template <int B, typename Number>
void write_tile(const GatherPass& pass, const Packed* packed, float* written_run, int64_t image, int64_t first_row,
                int64_t last_row, int64_t missing, int64_t part) {
    const int64_t written_blocks = pass.written.channels / B;
    const int64_t begin = written_blocks * part / pass.parts, end = written_blocks * (part + 1) / pass.parts;
    for (int64_t g = 0; g < pass.grid_count; g++) {
        const PixelGrid& grid = pass.grids[g];
        const int64_t row_begin = most(first_row, grid.row_begin), row_end = least(last_row, grid.row_end);
        const int64_t cols = grid.col_end - missing - grid.col_begin;
        for (int64_t block = begin; block < end; block++) {
            const Term* terms = pass.terms + grid.term_offsets[block];
            const int64_t count = grid.term_offsets[block + 1] - grid.term_offsets[block];
            for (int64_t row = row_begin; row < row_end; row++) {
                const Packed* run = packed +
                                    (row - first_row) * pass.read_rows_per_grid_row * pass.layout.row_elements +
                                    grid.col_begin * (B / DEPTH);
                Number* out = static_cast<Number*>(pass.written.data) + block * B * pass.written.channel_stride +
                              pass.written.offset(image, row * pass.step_y + grid.shift_y,
                                                  grid.col_begin * pass.step_x + grid.shift_x);
                const int64_t x_step = pass.step_x * pass.written.x_stride;
                if (pass.written.channel_stride == 1) {
                    gather_run<B, Number>(run, terms, count, out, x_step, cols, pass.past_caches);
                } else {  // channels outermost: a run of pixels is turned while it is still in the cache
                    gather_run<B, float>(run, terms, count, written_run, B, cols, false);
                    transpose(written_run, B, 1, out, pass.written.channel_stride, x_step, cols, B);
                }
            }
        }
    }
}

// The written image is always contiguous in one memory format or the other.
template <typename Number>
int64_t written_bytes(const GatherPass& pass) {
    const int64_t pixels = (pass.batch * pass.written.width - pass.missing_cols) * pass.written.height;
    return pixels * pass.written.channels * static_cast<int64_t>(sizeof(Number));
}

// Only whole, aligned cache lines are worth it.
template <int B, typename Number>
bool writes_past_caches(const GatherPass& pass) {
    const bool whole_lines = sizeof(Number) == 4 && B % 16 == 0 && pass.written.channel_stride == 1;
    return whole_lines && reinterpret_cast<uintptr_t>(pass.written.data) % 64 == 0 &&
           written_bytes<Number>(pass) >= PAST_CACHES_BYTES;
}

template <int B, typename Number>
int run_gather(GatherPass& pass) {
    const int64_t tiles = divide_up(pass.grid_rows, pass.tile_rows);
    const int64_t tasks = pass.batch * tiles * pass.parts;
    const int64_t elements = pass.read.channels / B * pass.layout.panel_elements;
    const int64_t run_elements = divide_up(pass.written.width, 16) * 16 * B;
    Packed* packed = workspace().packed.take<Packed>(pass.threads * elements);
    float* runs = workspace().sums.take<float>(pass.threads * run_elements);
    if (!packed || !runs) return STATUS_OUT_OF_MEMORY;
    pass.past_caches = writes_past_caches<B, Number>(pass);
#pragma omp parallel for schedule(dynamic, 1) num_threads(pass.threads)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t image = task / (tiles * pass.parts), part = task % pass.parts;
        const int64_t first_row = task / pass.parts % tiles * pass.tile_rows;
        const int64_t last_row = least(pass.grid_rows, first_row + pass.tile_rows);
        const int64_t missing = image == pass.batch - 1 ? pass.missing_cols : 0;
        Packed* mine = packed + omp_get_thread_num() * elements;
        const int64_t rows = (last_row - first_row - 1) * pass.read_rows_per_grid_row + 1 + pass.halo_rows;
        const int64_t y = pass.y_origin + first_row * pass.read_rows_per_grid_row;
        pack_tile<B, NEIGHBOURING_CHANNELS, Number>(pass.read, pass.layout,
                                                    {image, y, rows, pass.read.width - missing, 0}, mine);
        write_tile<B, Number>(pass, mine, runs + omp_get_thread_num() * run_elements, image, first_row, last_row,
                              missing, part);
        finish_stores();
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

// The weight packed, transposed and in the order the rows walk it.
template <int B, typename Number>
void transpose_weight(const Problem& p, Packed* to) {
    const Number* weight = static_cast<const Number*>(p.weight);
#pragma omp parallel for num_threads(p.threads)
    for (int64_t at = 0; at < p.blocks; at++) {
        const Number* block = weight + static_cast<int64_t>(p.row_slots[at]) * B * B;
        Packed* turned = to + at * (B * B / DEPTH);
        if constexpr (DEPTH == 2)
            transpose(reinterpret_cast<const uint32_t*>(block), B / 2, 1, turned, B, 1, B, B / 2);
        else
            transpose(block, B, 1, turned, B, 1, B, B);
    }
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
    return run_gather<B, Number>(pass);
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
    for (int64_t slot = 0; slot < p.blocks; slot++) {
        const uint16_t* block = static_cast<const uint16_t*>(p.weight) + slot * B * B;
        Packed* to = copy + slot * (B * B / DEPTH);
        if constexpr (DEPTH == 2)
            for (int row = 0; row < B; row += 2) copy_numbers(PairPointer{block + row * B, B, ~0u}, to + row / 2 * B, B);
        else
            copy_numbers(block, to, B * B);
    }
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
    return run_gather<B, Number>(pass);
}

// The weight gradient. The tiles (pixels) are cut into segments, each with its own sums, and the block rows into
// parts; a task is one part over one segment and packs for itself, so threads meet only to add up the segments.
// Which tile belongs to which segment depends on nothing but the sizes and the thread count: so do the bits.
// Where panels hold pairs, a tile is the same rows of two images.
struct OuterPass {
    ImageView input, output;
    PanelLayout input_layout, output_layout;
    int64_t batch, missing_cols, tile_rows, tiles_per_image, tiles, stride_y, halo_y, padding_y;
    int64_t input_elements, output_elements;  // of one packed tile
    int64_t chunk_rows;
    int64_t segments, parts;
    const int64_t* input_offsets;  // per slot, into a packed input tile
    const int32_t* row_offsets;
    const int32_t* row_slots;
};

struct OuterTile {
    int64_t image, row, rows;
    int64_t missing, partner_missing;  // columns by which the image, and the one after it, are narrower than others
    bool has_partner;

    int64_t partner_width(int64_t width) const { return has_partner ? width - partner_missing : 0; }
};

OuterTile outer_tile(const OuterPass& pass, int64_t tile) {
    OuterTile at;
    at.image = tile / pass.tiles_per_image * DEPTH;
    at.row = tile % pass.tiles_per_image * pass.tile_rows;
    at.rows = least(pass.tile_rows, pass.output.height - at.row);
    at.missing = at.image == pass.batch - 1 ? pass.missing_cols : 0;
    at.partner_missing = at.image == pass.batch - 2 ? pass.missing_cols : 0;
    at.has_partner = at.image + 1 < pass.batch;
    return at;
}

template <int B, typename Number>
void pack_operands(const OuterPass& pass, const OuterTile& tile, int64_t row_begin, int64_t row_end, Packed* packed) {
    const int64_t y = tile.row * pass.stride_y - pass.padding_y;
    const int64_t rows = (tile.rows - 1) * pass.stride_y + 1 + pass.halo_y;
    pack_tile<B, NEIGHBOURING_IMAGES, Number>(
        pass.input, pass.input_layout,
        {tile.image, y, rows, pass.input.width - tile.missing, tile.partner_width(pass.input.width)}, packed);
    pack_tile<B, NEIGHBOURING_IMAGES, Number>(
        pass.output.with_channels<Number>(row_begin * B, row_end * B), pass.output_layout,
        {tile.image, tile.row, tile.rows, pass.output.width - tile.missing, tile.partner_width(pass.output.width)},
        packed + pass.input_elements + row_begin * pass.output_layout.panel_elements);
}

// Add one packed tile to the blocks of one block row. A chunk of the gradient's panel stays in the first-level
// cache while all blocks of the row use it.
template <int B>
void sum_row(const OuterPass& pass, const OuterTile& tile, int64_t block_row, const Packed* packed, float* sums) {
    const Packed* g = packed + pass.input_elements + block_row * pass.output_layout.panel_elements;
    const int64_t x_row = pass.stride_y * pass.input_layout.row_elements;
    const int64_t g_row = pass.output_layout.row_elements;
    for (int64_t row = 0; row < tile.rows; row += pass.chunk_rows)
        for (int64_t at = pass.row_offsets[block_row]; at < pass.row_offsets[block_row + 1]; at++) {
            const int64_t slot = pass.row_slots[at];
            outer_block<B>(g + row * g_row, g_row, packed + pass.input_offsets[slot] + row * x_row, x_row,
                           least(pass.chunk_rows, tile.rows - row), pass.output.width - tile.missing,
                           sums + slot * B * B);
        }
}

// First block row of a part, so that parts have about equally many blocks.
int64_t part_begin(const OuterPass& pass, int64_t block_rows, int64_t part) {
    if (part == pass.parts) return block_rows;
    int64_t row = 0;
    while (row < block_rows && pass.row_offsets[row] * pass.parts < pass.row_offsets[block_rows] * part) row++;
    return row;
}

template <int B, typename Number>
void sum_segment(const OuterPass& pass, int64_t segment, int64_t part, Packed* packed, float* sums) {
    const int64_t tiles = pass.tiles, block_rows = pass.output.channels / B;
    const int64_t row_begin = part_begin(pass, block_rows, part), row_end = part_begin(pass, block_rows, part + 1);
    for (int64_t at = pass.row_offsets[row_begin]; at < pass.row_offsets[row_end]; at++)
        memset(sums + pass.row_slots[at] * static_cast<int64_t>(B * B), 0, B * B * sizeof(float));
    const int64_t last = tiles * (segment + 1) / pass.segments;
    for (int64_t tile = tiles * segment / pass.segments; tile < last; tile++) {
        const OuterTile at = outer_tile(pass, tile);
        pack_operands<B, Number>(pass, at, row_begin, row_end, packed);
        for (int64_t row = row_begin; row < row_end; row++) sum_row<B>(pass, at, row, packed, sums);
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
    const int64_t tasks = 2 * p.threads, block_rows = p.output_channels / p.block;
    const int64_t uses_of_an_input = p.blocks * p.block * p.block / p.input_channels;
    if (uses_of_an_input >= USES_PER_PACKING * tasks && block_rows >= tasks) {
        pass.segments = 1;
        pass.parts = tasks;
        return;
    }
    const int64_t sum_bytes = p.blocks * p.block * p.block * 4;
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
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < pass.segments * pass.parts; task++) {
            const int64_t segment = task / pass.parts;
            float* mine = segment == 0 ? first : others + (segment - 1) * sum_elements;
            sum_segment<B, Number>(pass, segment, task % pass.parts, packed + omp_get_thread_num() * packed_elements,
                                   mine);
        }
        if (pass.segments > 1 || !in_place) {
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
    pass.row_offsets = p.row_offsets;
    pass.row_slots = p.row_slots;
    const int64_t cols = p.output_width + (p.kernel_width - 1) * p.dilation_x / p.stride_x;
    const int64_t panels = p.input_channels / B;
    const int64_t row_bytes = 4 * (p.stride_y * p.stride_x * cols * p.input_channels + p.output_width * p.output_channels);
    pass.tile_rows = most(1, least(p.output_height, OUTER_TILE_BYTES / row_bytes));
    pass.tiles_per_image = divide_up(p.output_height, pass.tile_rows);
    pass.tiles = divide_up(p.batch, DEPTH) * pass.tiles_per_image;
    pass.input_layout =
        PanelLayout::make((pass.tile_rows - 1) * p.stride_y + 1 + pass.halo_y, cols, p.stride_x, -p.padding_x, B);
    pass.output_layout = PanelLayout::make(pass.tile_rows, p.output_width, 1, 0, B);
    pass.input_elements = panels * pass.input_layout.panel_elements;
    pass.output_elements = p.output_channels / B * pass.output_layout.panel_elements;
    pass.chunk_rows = most(1, OUTER_CHUNK_BYTES / (p.output_width * B * 4));
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

bool all_below(const int32_t* indices, int64_t count, int64_t bound) {
    bool good = true;
    for (int64_t i = 0; i < count; i++) good &= indices[i] >= 0 && indices[i] < bound;
    return good;
}

// Whether the offsets cut [0, blocks) into `groups` parts, so that no index a pass follows can leave its array.
bool offsets_fit(const int32_t* offsets, int64_t groups, int64_t blocks) {
    bool good = offsets[0] == 0 && offsets[groups] == blocks;
    for (int64_t group = 0; group < groups; group++) good &= offsets[group] <= offsets[group + 1];
    return good;
}

bool rows_fit(const Problem& p) {
    const int64_t grid_cols = p.kernel_height * p.kernel_width * (p.input_channels / p.block);
    return offsets_fit(p.row_offsets, p.output_channels / p.block, p.blocks) &&
           all_below(p.row_slots, p.blocks, p.blocks) && all_below(p.block_cols, p.blocks, grid_cols);
}

bool cols_fit(const Problem& p) {
    const int64_t grid_cols = p.kernel_height * p.kernel_width * (p.input_channels / p.block);
    return offsets_fit(p.col_offsets, grid_cols, p.blocks) && all_below(p.col_slots, p.blocks, p.blocks) &&
           all_below(p.block_rows, p.blocks, p.output_channels / p.block);
}

typedef int (*Pass)(const Problem&);

int choose(const Problem& p, bool fits, const Pass (&passes)[4]) {
    if (!fits) return STATUS_BAD_TOPOLOGY;
    switch (p.block) {
        case 8: return passes[0](p);
        case 16: return passes[1](p);
        case 32: return passes[2](p);
        case 64: return passes[3](p);
    }
    return STATUS_UNSUPPORTED_BLOCK;
}

}  // namespace

#define ACF_JOIN(name, isa) name##isa
#define ACF_NAME(name, isa) ACF_JOIN(name, isa)
#define ACF_CHOOSE(pass, fits, Number) \
    choose(*problem, fits(*problem), {pass<8, Number>, pass<16, Number>, pass<32, Number>, pass<64, Number>})
#ifdef ACF_ISA_AVX512BF16  // called with bfloat16 only
#define ACF_EXPORT_PASS(exported, pass, fits) \
    extern "C" int ACF_NAME(exported, ACF_ISA)(const Problem* problem) { return ACF_CHOOSE(pass, fits, uint16_t); }
#else
#define ACF_EXPORT_PASS(exported, pass, fits)                                                                     \
    extern "C" int ACF_NAME(exported, ACF_ISA)(const Problem* problem) {                                          \
        return problem->bfloat16 ? ACF_CHOOSE(pass, fits, uint16_t) : ACF_CHOOSE(pass, fits, float);              \
    }
#endif
ACF_EXPORT_PASS(acf_forward_, forward, rows_fit)
ACF_EXPORT_PASS(acf_input_gradient_, input_gradient, cols_fit)
ACF_EXPORT_PASS(acf_weight_gradient_, weight_gradient, rows_fit)
