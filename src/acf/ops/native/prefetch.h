// Asking for the operands of the next tile, a few lines at a time, while the current one is multiplied: memory works
// beside the arithmetic then, not before it.
#pragma once
#include "packing.h"

namespace {

// Memory of a tile: runs of bytes at equal distances.
struct TileMemory {
    const char* first;
    int64_t run_bytes, run_stride, runs;
};

class Prefetcher {
  public:
    // A tile's pixels, and those of its partner.
    template <typename Number>
    void add(const ImageView& view, const TileSource& tile) {
        add_image<Number>(view, tile);
        if (DEPTH == 2 && tile.partner_width > 0)
            add_image<Number>(view, {tile.image + 1, tile.y, tile.rows, tile.partner_width, 0});
    }

    // Memory that lies together.
    void add_run(const void* first, int64_t bytes) {
        tiles[count++] = {static_cast<const char*>(first), bytes, 0, 1};
        lines += (bytes + 63) / 64;
    }

    // All of it in about this many steps.
    void spread_over(int64_t steps) { lines_per_step = steps > 0 ? (lines + steps - 1) / steps : 0; }

    void step() {
#pragma GCC unroll 1
        for (int64_t line = 0; line < lines_per_step; line++) {
            if (at >= end && !open_run()) return;
            __builtin_prefetch(at, 0, 3);
            at += 64;
        }
    }

  private:
    // As far as they exist; an image with gaps between its rows is left alone.
    template <typename Number>
    void add_image(const ImageView& view, const TileSource& tile) {
        const int64_t begin = tile.y < 0 ? 0 : tile.y;
        const int64_t end = tile.y + tile.rows > view.height ? view.height : tile.y + tile.rows;
        if (begin >= end || (view.height > 1 && view.y_stride != view.width * view.x_stride)) return;
        const int64_t pixels = ((end - begin - 1) * view.width + tile.width) * static_cast<int64_t>(sizeof(Number));
        const Number* first = static_cast<const Number*>(view.data) + view.offset(tile.image, begin, 0);
        TileMemory& memory = tiles[count];
        memory.first = reinterpret_cast<const char*>(first);
        if (view.channel_stride == 1) {
            memory.run_bytes = pixels * view.x_stride;
            memory.run_stride = 0;
            memory.runs = 1;
        } else if (view.x_stride == 1) {
            memory.run_bytes = pixels;
            memory.run_stride = view.channel_stride * static_cast<int64_t>(sizeof(Number));
            memory.runs = view.channels;
        } else {
            return;
        }
        lines += memory.runs * ((memory.run_bytes + 63) / 64);
        count++;
    }

    __attribute__((noinline)) bool open_run() {
        if (tile < count && run == tiles[tile].runs) {
            tile++;
            run = 0;
        }
        if (tile == count) {
            lines_per_step = 0;
            return false;
        }
        at = tiles[tile].first + run * tiles[tile].run_stride;
        end = at + tiles[tile].run_bytes;
        run++;
        return true;
    }

    TileMemory tiles[2 * DEPTH];
    int64_t count = 0, lines = 0, lines_per_step = 0;
    int64_t tile = 0, run = 0;  // the run after the one at hand
    const char* at = nullptr;
    const char* end = nullptr;
};

}  // namespace
