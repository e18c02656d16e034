// The backward pass of the two layers of mlp.h: all five gradients while a strip's operands are in the caches.
//
// Strips are cut into segments, each with its own sums of the parameters' gradients, as in outer.h.
#pragma once
#include "mlp.h"

namespace {

struct MlpSums {
    float *first_weight, *second_weight, *first_bias, *second_bias;
};

// A hidden block's gradient times the slope, its values, and the sums of its gradient over the tokens, added to `bias`.
template <int B>
void differentiate_panel(int64_t activation, const float* sums, float* gradient, float* values, float* bias,
                         int64_t tokens) {
    constexpr int L = smaller(VECTOR_LANES, B), V = B / L;
    typedef typename Vector<L>::exact vec;
    with_activation<L>(activation, [&](auto function) __attribute__((always_inline)) {
        vec total[V];
        for (int v = 0; v < V; v++) total[v] = load<L>(bias + v * L);
        for (int64_t token = 0; token < tokens; token++)
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) {
                const int64_t at = token * B + v * L;
                vec value, slope;
                function(load<L>(sums + at), value, slope);
                const vec scaled = load<L>(gradient + at) * slope;
                store<L>(values + at, value);
                store<L>(gradient + at, scaled);
                total[v] += scaled;
            }
        for (int v = 0; v < V; v++) store<L>(bias + v * L, total[v]);
    });
}

template <int B>
void add_token_sums(const float* panel, int64_t tokens, float* to) {
    constexpr int L = smaller(VECTOR_LANES, B), V = B / L;
    typename Vector<L>::exact total[V];
    for (int v = 0; v < V; v++) total[v] = load<L>(to + v * L);
    for (int64_t token = 0; token < tokens; token++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) total[v] += load<L>(panel + token * B + v * L);
    for (int v = 0; v < V; v++) store<L>(to + v * L, total[v]);
}

// One block of a weight gradient over a strip; `next` is the slot whose sums are wanted then, or -1.
template <int B>
void add_outer(const float* gradient, const float* input, int64_t tokens, int64_t slot, int64_t next, float* sums,
               Prefetcher& ahead) {
    float* sum = sums + slot * (B * B);
    outer_block<B>(gradient, 0, input, 0, 1, tokens, sum, next < 0 ? nullptr : sums + next * (B * B), sum, ahead);
}

// One hidden block: its gradient, and what follows from it.
template <int B>
void backward_block(const MlpProblem& p, const MlpTerms& terms, const TokenStrip& strip, int64_t block, float* panels,
                    const MlpSums& to, Prefetcher& ahead) {
    const int64_t distance = panel_elements<B>(p), tokens = strip.tokens;
    float *input = panels, *output_gradient = input + p.input_channels / B * distance;
    float* input_gradient = output_gradient + p.output_channels / B * distance;
    float *gradient = input_gradient + p.input_channels / B * distance, *values = gradient + distance;
    const int64_t first = p.first.row_offsets[block], first_end = p.first.row_offsets[block + 1];
    const int64_t second = p.second.col_offsets[block], second_end = p.second.col_offsets[block + 1];
    gather_run<B>(output_gradient, terms.second + second, second_end - second, nullptr, gradient, B, tokens, false,
                  ahead);
    differentiate_panel<B>(p.activation, p.hidden + strip.before * p.hidden_channels + block * B * tokens, gradient,
                           values, to.first_bias + block * B, tokens);
    for (int64_t at = second; at < second_end; at++)
        add_outer<B>(output_gradient + terms.second[at].input_offset, values, tokens, p.second.col_slots[at],
                     at + 1 < p.second.blocks ? p.second.col_slots[at + 1] : -1, to.second_weight, ahead);
    for (int64_t at = first; at < first_end; at++)
        add_outer<B>(gradient, input + terms.first[at].input_offset, tokens, p.first.row_slots[at],
                     at + 1 < p.first.blocks ? p.first.row_slots[at + 1] : -1, to.first_weight, ahead);
    if (p.input_gradient.data)
        scatter_panel<B>(gradient, terms.first + first, first_end - first, tokens, input_gradient, ahead);
}

// How often the microkernels of one hidden block step a prefetcher.
template <int B>
int64_t steps_of_block(const MlpProblem& p, int64_t tokens, int64_t block) {
    const int64_t first = p.first.row_offsets[block + 1] - p.first.row_offsets[block];
    const int64_t second = p.second.col_offsets[block + 1] - p.second.col_offsets[block];
    constexpr int column_tiles = Tile<B>::vectors_in_block / Tile<B>::vectors;
    const int64_t gathered = divide_up(tokens, Tile<B>::gather_rows) * column_tiles;
    return (first + second) * (gathered + B / Tile<B>::outer_rows * column_tiles);
}

template <int B>
void backward_strip(const MlpProblem& p, const MlpTerms& terms, const TokenStrip& strip, float* panels,
                    const MlpSums& to) {
    const int64_t distance = panel_elements<B>(p), hidden_blocks = p.hidden_channels / B;
    float *input = panels, *output_gradient = input + p.input_channels / B * distance;
    float* input_gradient = output_gradient + p.output_channels / B * distance;
    pack_strip<B>(p, strip_view(p.input, p.input_channels, strip), input);
    pack_strip<B>(p, strip_view(p.output, p.output_channels, strip), output_gradient);
    if (p.input_gradient.data) fill_panels<B>(p, nullptr, p.input_channels, strip.tokens, input_gradient);
    for (int64_t panel = 0; panel < p.output_channels / B; panel++)
        add_token_sums<B>(output_gradient + panel * distance, strip.tokens, to.second_bias + panel * B);
    const float* hidden = p.hidden + strip.before * p.hidden_channels;
    for (int64_t block = 0; block < hidden_blocks; block++) {
        if (p.second.col_offsets[block] == p.second.col_offsets[block + 1]) continue;  // its gradient is zero
        Prefetcher ahead;
        if (block + 1 < hidden_blocks) {
            ahead.add_run(hidden + (block + 1) * B * strip.tokens, B * strip.tokens * sizeof(float));
            ahead.spread_over(steps_of_block<B>(p, strip.tokens, block));
        }
        backward_block<B>(p, terms, strip, block, panels, to, ahead);
    }
    if (p.input_gradient.data)
        unpack_strip<B>(p, input_gradient, strip_view(p.input_gradient, p.input_channels, strip));
}

// to[segment 0] += the other segments, `stride` elements apart, in order.
inline void add_all(float* to, const float* others, int64_t stride, int64_t segments, int64_t begin, int64_t end) {
    for (int64_t segment = 1; segment < segments; segment++)
        for (int64_t at = begin; at < end; at++) to[at] += others[(segment - 1) * stride + at];
}

template <int B>
int mlp_backward(const MlpProblem& p) {
    const int64_t strips = strip_count(p), tasks = p.threads == 1 ? 1 : 2 * p.threads;
    const int64_t segments = most(1, least(strips, tasks));
    const int64_t panels = 2 * (p.input_channels / B) + p.output_channels / B + 2;
    const int64_t counts[4] = {p.first.blocks * (B * B), p.second.blocks * (B * B), p.hidden_channels,
                               p.output_channels};
    const int64_t stride = counts[0] + counts[1] + counts[2] + counts[3];
    float* results[4] = {p.first.weight_gradient, p.second.weight_gradient, p.first.bias_gradient,
                         p.second.bias_gradient};
    float* packed = workspace().packed.take<float>(p.threads * panels * panel_elements<B>(p));
    float* sums = workspace().sums.take<float>((segments - 1) * stride);
    MlpTerms terms;
    if (!packed || !sums || !MlpTerms::list<B>(p, nullptr, nullptr, terms)) return STATUS_OUT_OF_MEMORY;
#pragma omp parallel num_threads(p.threads)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t segment = 0; segment < segments; segment++) {
            float* own = sums + (segment - 1) * stride;
            MlpSums to = {own, own + counts[0], own + counts[0] + counts[1], own + counts[0] + counts[1] + counts[2]};
            if (segment == 0) to = {results[0], results[1], results[2], results[3]};
            memset(to.first_weight, 0, counts[0] * sizeof(float));
            memset(to.second_weight, 0, counts[1] * sizeof(float));
            memset(to.first_bias, 0, counts[2] * sizeof(float));
            memset(to.second_bias, 0, counts[3] * sizeof(float));
            float* own_panels = packed + omp_get_thread_num() * panels * panel_elements<B>(p);
            for (int64_t at = strips * segment / segments; at < strips * (segment + 1) / segments; at++)
                backward_strip<B>(p, terms, token_strip(p, at), own_panels, to);
        }
        int64_t before = 0;
        for (int array = 0; array < 4; before += counts[array++]) {
#pragma omp for schedule(static)
            for (int64_t at = 0; at < counts[array]; at += 512)
                add_all(results[array], sums + before, stride, segments, at, least(at + 512, counts[array]));
        }
    }
    return STATUS_OK;
}

}  // namespace
