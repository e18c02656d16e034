// Copying images (or strips of tokens) into panels of B channels: [panel][row][phase][col][element].
//
// Where an element is a pair (DEPTH 2), its numbers are neighbouring channels of a pixel, or the same pixel and
// channel of two images: shifting a convolution's window parts neither, as it would neighbouring pixels.
#pragma once
#include "copying.h"
#include "problem.h"

namespace {

// Where a batch of images lies in memory, in either memory format.
struct ImageView {
    void* data;
    int64_t channels, height, width;
    int64_t image_stride, channel_stride, y_stride, x_stride;

    // The same images with only some of their channels.
    template <typename Number>
    ImageView with_channels(int64_t begin, int64_t end) const {
        ImageView part = *this;
        part.data = static_cast<Number*>(data) + begin * channel_stride;
        part.channels = end - begin;
        return part;
    }

    int64_t offset(int64_t image, int64_t y, int64_t x) const {
        return image * image_stride + y * y_stride + x * x_stride;
    }
};

ImageView input_view(const Problem& p) {
    return {p.input, p.input_channels, p.input_height, p.input_width,
            p.input_image_stride, p.input_channel_stride, p.input_y_stride, p.input_x_stride};
}

ImageView output_view(const Problem& p) {
    return {p.output, p.output_channels, p.output_height, p.output_width,
            p.output_image_stride, p.output_channel_stride, p.output_y_stride, p.output_x_stride};
}

// How a tile of an image is laid out in panels. Packed column `col` of `phase` is image column
// col * phases + phase + x_origin: with one phase per horizontal stride, the columns that a strided convolution
// reads at one kernel tap become neighbours. What lies outside the image is zero.
struct PanelLayout {
    int64_t cols, phases, x_origin;
    int64_t row_elements;    // distance of rows
    int64_t panel_elements;  // distance of panels
    int64_t zeros_behind;    // elements behind the last row of a panel that are zero, too

    static PanelLayout make(int64_t rows, int64_t cols, int64_t phases, int64_t x_origin, int64_t pixel_elements,
                            int64_t zeros_behind = 0) {
        PanelLayout layout;
        layout.cols = cols;
        layout.phases = phases;
        layout.x_origin = x_origin;
        layout.row_elements = phases * cols * pixel_elements;
        // One cache line more than the data: panels a power of two apart would share cache sets.
        layout.panel_elements = rows * layout.row_elements + zeros_behind + 16;
        layout.zeros_behind = zeros_behind;
        return layout;
    }
};

// The numbers that make one element of a panel.
enum Pairing { NEIGHBOURING_CHANNELS, NEIGHBOURING_IMAGES };

// Elements of a packed pixel.
template <int B, Pairing P>
constexpr int PIXEL_ELEMENTS = P == NEIGHBOURING_CHANNELS ? B / DEPTH : B;

// `count` neighbouring packed pixels set to zero, in every panel.
template <int W>
void clear_pixels(const PanelLayout& layout, int64_t panels, int64_t count, Packed* to) {
    for (int64_t panel = 0; panel < panels; panel++)
        memset(to + panel * layout.panel_elements, 0, count * W * sizeof(Packed));
}

// `count` pixels, x_step apart in memory, of W elements, element_step apart, into every panel.
template <int W, typename From>
void pack_pixels(From from, int64_t x_step, int64_t element_step, const PanelLayout& layout, int64_t panels,
                 int64_t count, Packed* to) {
    if (element_step == 1) {
        // Eight pixels at a time: few enough streams for the hardware to prefetch, long enough runs of stores.
        for (int64_t first = 0; first < count; first += 8) {
            const int64_t end = first + 8 < count ? first + 8 : count;
            for (int64_t panel = 0; panel < panels; panel++)
                for (int64_t pixel = first; pixel < end; pixel++)
                    copy_numbers(from + (pixel * x_step + panel * W), to + (panel * layout.panel_elements + pixel * W),
                                 W);
        }
        return;
    }
    for (int64_t panel = 0; panel < panels; panel++)
        transpose(from + panel * W * element_step, element_step, x_step, to + panel * layout.panel_elements, W, 1, W,
                  count);
}

// Which pixels of which image a tile takes.
struct TileSource {
    int64_t image, y, rows;
    int64_t width;          // columns of the image that exist
    int64_t partner_width;  // of the image after it, the second of a pair; 0: there is none
};

// Pixels [0, count) of one row from `from` on; the next image has only the first `partner_count` of them.
template <int B, Pairing P, typename From>
void pack_row(const ImageView& view, const PanelLayout& layout, const From* from, int64_t count, int64_t partner_count,
              Packed* to) {
    constexpr int W = PIXEL_ELEMENTS<B, P>;
    const int64_t panels = view.channels / B, x_step = layout.phases * view.x_stride;
    if constexpr (DEPTH == 1) {
        pack_pixels<W>(from, x_step, view.channel_stride, layout, panels, count, to);
    } else if constexpr (P == NEIGHBOURING_IMAGES) {
        pack_pixels<W>(PairPointer{from, view.image_stride, ~0u}, x_step, view.channel_stride, layout, panels,
                       partner_count, to);
        pack_pixels<W>(PairPointer{from + partner_count * x_step, 0, 0xffffu}, x_step, view.channel_stride, layout,
                       panels, count - partner_count, to + partner_count * W);
    } else if (view.channel_stride == 1 && x_step % 2 == 0) {  // pairs as they lie
        pack_pixels<W>(reinterpret_cast<const uint32_t*>(from), x_step / 2, 1, layout, panels, count, to);
    } else {
        pack_pixels<W>(PairPointer{from, view.channel_stride, ~0u}, x_step, 2 * view.channel_stride, layout, panels,
                       count, to);
    }
}

// Packed columns whose image columns, the first of which is x, lie in [0, width).
struct Columns {
    int64_t begin, end;

    static Columns inside(const PanelLayout& layout, int64_t x, int64_t width) {
        int64_t begin = x < 0 ? (-x + layout.phases - 1) / layout.phases : 0;
        int64_t end = x < width ? (width - 1 - x) / layout.phases + 1 : 0;
        if (end > layout.cols) end = layout.cols;
        return {begin, end < begin ? begin : end};
    }
};

// A tile's pixels into panels from `to` on; what lies outside the image becomes zero.
template <int B, Pairing P, typename From>
void pack_tile(const ImageView& view, const PanelLayout& layout, const TileSource& tile, Packed* to) {
    constexpr int W = PIXEL_ELEMENTS<B, P>;
    const int64_t panels = view.channels / B;
    if (layout.zeros_behind)
        for (int64_t panel = 0; panel < panels; panel++)
            memset(to + panel * layout.panel_elements + tile.rows * layout.row_elements, 0,
                   layout.zeros_behind * sizeof(Packed));
    for (int64_t row = 0; row < tile.rows; row++)
        for (int64_t phase = 0; phase < layout.phases; phase++) {
            Packed* pixels = to + row * layout.row_elements + phase * layout.cols * W;
            const int64_t x = phase + layout.x_origin, y = tile.y + row;
            Columns columns = Columns::inside(layout, x, tile.width);
            if (columns.begin == columns.end || y < 0 || y >= view.height) columns = {layout.cols, layout.cols};
            clear_pixels<W>(layout, panels, columns.begin, pixels);
            clear_pixels<W>(layout, panels, layout.cols - columns.end, pixels + columns.end * W);
            if (columns.begin == columns.end) continue;
            const From* from =
                static_cast<const From*>(view.data) + view.offset(tile.image, y, x + columns.begin * layout.phases);
            pack_row<B, P>(view, layout, from, columns.end - columns.begin,
                           Columns::inside(layout, x, tile.partner_width).end - columns.begin,
                           pixels + columns.begin * W);
        }
}

// A block of a weight, [B][B], as a product by its transpose reads it.
template <int B, typename Number>
void pack_transposed(const Number* block, Packed* to) {
    if constexpr (DEPTH == 2)
        transpose(reinterpret_cast<const uint32_t*>(block), B / 2, 1, to, B, 1, B, B / 2);
    else
        transpose(block, B, 1, to, B, 1, B, B);
}

// [rows][B], as a product that sums over the rows reads them; an odd last row is paired with zeros.
template <int B, typename Number>
void pack_rows(const Number* from, int64_t rows, Packed* to) {
    if constexpr (DEPTH == 1) {
        copy_numbers(from, to, rows * B);
    } else {
        for (int64_t row = 0; row + 1 < rows; row += 2)
            copy_numbers(PairPointer{from + row * B, B, ~0u}, to + row / 2 * B, B);
        if (rows % 2) copy_numbers(PairPointer{from + (rows - 1) * B, 0, 0xffffu}, to + rows / 2 * B, B);
    }
}

}  // namespace
