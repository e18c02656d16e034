// Mean and variance of every channel that a forward pass writes, taken while the pixels are in the first-level cache.
//
// A tile sums its values' distances from its first pixel, and the squares of these: without the shift the squares of a
// channel far from zero would cancel. Tiles are merged in double precision, in order.
#pragma once
#include "simd.h"

namespace {

// Of one tile and channel block: [first pixel, sums, squares][B].
template <int B>
struct TileSums {
    static constexpr int L = smaller(VECTOR_LANES, B), V = B / L;
    typedef typename Vector<L>::exact vec;

    // Neighbouring pixels, `step` elements apart; `is_first`: they begin the tile.
    template <typename Number>
    static void add_run(const Number* pixels, int64_t step, int64_t count, bool is_first, float* to) {
        vec shift[V], sums[V], squares[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            shift[v] = is_first ? load<L>(pixels + v * L) : load<L>(to + v * L);
            sums[v] = is_first ? vec{} : load<L>(to + B + v * L);
            squares[v] = is_first ? vec{} : load<L>(to + 2 * B + v * L);
        }
        for (int64_t pixel = 0; pixel < count; pixel++)
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) {
                const vec distance = load<L>(pixels + pixel * step + v * L) - shift[v];
                sums[v] += distance;
                squares[v] += distance * distance;
            }
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            store<L>(to + v * L, shift[v]);
            store<L>(to + B + v * L, sums[v]);
            store<L>(to + 2 * B + v * L, squares[v]);
        }
    }
};

// One channel's statistics over several tiles (Chan, Golub and LeVeque, 1983).
struct RunningStatistics {
    double count = 0, mean = 0, squares = 0;

    void add(double tile_count, double shift, double sum, double square) {
        const double tile_mean = sum / tile_count, apart = shift + tile_mean - mean, total = count + tile_count;
        squares += square - sum * tile_mean + apart * apart * count * tile_count / total;
        mean += apart * tile_count / total;
        count = total;
    }

    double variance() const { return squares < 0 ? 0 : squares / count; }  // a NaN stays one
};

}  // namespace
