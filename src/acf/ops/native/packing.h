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

// Rows [y, y + rows) of one image, of which the first `width` columns exist, into `to`.
template <int B, typename From>
void pack_tile(const ImageView& view, const PanelLayout& layout, int64_t image, int64_t y, int64_t rows,
               int64_t width, float* to) {
    const From* from = static_cast<const From*>(view.data);
    const int64_t panels = view.channels / B;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t phase = 0; phase < layout.phases; phase++)
            for (int64_t col = 0; col < layout.cols; col++) {
                const int64_t x = col * layout.phases + phase + layout.x_origin;
                float* pixel = to + row * layout.row_elements + (phase * layout.cols + col) * B;
                const bool inside = x >= 0 && x < width && y + row >= 0 && y + row < view.height;
                if (!inside) {
                    for (int64_t panel = 0; panel < panels; panel++)
                        memset(pixel + panel * layout.panel_elements, 0, B * sizeof(float));
                    continue;
                }
                const From* source = from + view.offset(image, y + row, x);
                if (view.channel_stride == 1) {
                    for (int64_t panel = 0; panel < panels; panel++)
                        copy_numbers(source + panel * B, pixel + panel * layout.panel_elements, B);
                } else {
                    for (int64_t panel = 0; panel < panels; panel++)
                        for (int64_t channel = 0; channel < B; channel++)
                            pixel[panel * layout.panel_elements + channel] =
                                to_float(source[(panel * B + channel) * view.channel_stride]);
                }
            }
}

}  // namespace
