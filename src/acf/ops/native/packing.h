// Copying images (or strips of tokens) into panels of B channels: [panel][row][phase][col][B], always float.
#pragma once
#include "problem.h"
#include "simd.h"

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

// How a tile of an image is laid out in panels. Packed column `col` of `phase` is image column
// col * phases + phase + x_origin: with one phase per horizontal stride, the columns that a strided convolution
// reads at one kernel tap become neighbours. What lies outside the image is zero.
struct PanelLayout {
    int64_t cols, phases, x_origin;
    int64_t row_elements;    // distance of rows
    int64_t panel_elements;  // distance of panels

    static PanelLayout make(int64_t rows, int64_t cols, int64_t phases, int64_t x_origin, int64_t block) {
        PanelLayout layout;
        layout.cols = cols;
        layout.phases = phases;
        layout.x_origin = x_origin;
        layout.row_elements = phases * cols * block;
        // One cache line more than the data: panels a power of two apart would share cache sets.
        layout.panel_elements = rows * layout.row_elements + 16;
        return layout;
    }
};

// `count` neighbouring packed pixels set to zero, in every panel.
template <int B>
void clear_pixels(const PanelLayout& layout, int64_t panels, int64_t count, float* to) {
    for (int64_t panel = 0; panel < panels; panel++)
        memset(to + panel * layout.panel_elements, 0, count * B * sizeof(float));
}

// `count` pixels, x_step apart in memory, into every panel.
template <int B, typename From>
void pack_pixels(const From* from, int64_t x_step, int64_t channel_stride, const PanelLayout& layout, int64_t panels,
                 int64_t count, float* to) {
    if (channel_stride == 1) {
        // Eight pixels at a time: few enough streams for the hardware to prefetch, long enough runs of stores.
        for (int64_t first = 0; first < count; first += 8) {
            const int64_t end = first + 8 < count ? first + 8 : count;
            for (int64_t panel = 0; panel < panels; panel++)
                for (int64_t pixel = first; pixel < end; pixel++)
                    copy_numbers(from + pixel * x_step + panel * B, to + panel * layout.panel_elements + pixel * B, B);
        }
        return;
    }
    for (int64_t panel = 0; panel < panels; panel++)
        transpose(from + panel * B * channel_stride, channel_stride, x_step, to + panel * layout.panel_elements, B, 1,
                  B, count);
}

// Rows [y, y + rows) of one image, of which the first `width` columns exist, into `to`.
template <int B, typename From>
void pack_tile(const ImageView& view, const PanelLayout& layout, int64_t image, int64_t y, int64_t rows,
               int64_t width, float* to) {
    const int64_t panels = view.channels / B;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t phase = 0; phase < layout.phases; phase++) {
            float* pixels = to + row * layout.row_elements + phase * layout.cols * B;
            const int64_t x = phase + layout.x_origin;  // of packed column 0
            int64_t begin = x < 0 ? (-x + layout.phases - 1) / layout.phases : 0;
            int64_t end = x < width ? (width - 1 - x) / layout.phases + 1 : 0;
            if (end > layout.cols) end = layout.cols;
            if (begin > end || y + row < 0 || y + row >= view.height) begin = end = layout.cols;
            clear_pixels<B>(layout, panels, begin, pixels);
            clear_pixels<B>(layout, panels, layout.cols - end, pixels + end * B);
            if (begin == end) continue;
            const From* from = static_cast<const From*>(view.data) +
                               view.offset(image, y + row, x + begin * layout.phases);
            pack_pixels<B, From>(from, layout.phases * view.x_stride, view.channel_stride, layout, panels,
                                 end - begin, pixels + begin * B);
        }
}

}  // namespace
