// The backward pass of the two layers of mlp.h: all five gradients while a strip's operands are in the caches.
//
// Strips are cut into segments, each with its own sums of the parameters' gradients, as in outer.h. Products that sum
// over tokens read pairs of neighbouring tokens where products over channels read pairs of neighbouring channels, so
// operands of both lie packed in both ways.
#pragma once
#include "mlp.h"

namespace {

struct MlpSums {
    float *first_weight, *second_weight, *first_bias, *second_bias;
};

// A thread's panels in the backward pass: by channels for products over channels, by tokens for those over tokens.
// Where numbers are packed as they are summed, all three of a kind are one.
template <int B>
struct BackwardPanels {
    Packed *input_by_tokens, *output_gradient, *output_gradient_by_tokens;
    float* input_gradient;
    float* sums;  // of one hidden block, from here on
    Packed *gradient, *gradient_by_tokens, *values, *values_by_tokens;

    static int64_t count(const MlpProblem& p) {
        const int64_t inputs = p.input_channels / B, outputs = p.output_channels / B;
        return (1 + DEPTH) * inputs + DEPTH * outputs + (DEPTH == 1 ? 2 : DEPTH + 4);
    }

    BackwardPanels(const MlpProblem& p, Packed* memory) {
        const int64_t distance = panel_elements<B>(p);
        const int64_t inputs = p.input_channels / B * distance, outputs = p.output_channels / B * distance;
        input_by_tokens = memory;
        output_gradient = input_by_tokens + inputs;
        output_gradient_by_tokens = output_gradient + (DEPTH - 1) * outputs;
        input_gradient = reinterpret_cast<float*>(output_gradient_by_tokens + outputs);
        sums = input_gradient + DEPTH * inputs;
        gradient = reinterpret_cast<Packed*>(sums + (DEPTH - 1) * DEPTH * distance);
        gradient_by_tokens = gradient + (DEPTH - 1) * distance;
        values = gradient_by_tokens + distance;
        values_by_tokens = values + (DEPTH - 1) * distance;
    }
};

// A panel by channels also by tokens.
template <int B>
void pack_by_tokens(const Packed* panel, int64_t tokens, Packed* to) {
    if constexpr (DEPTH == 2) pack_rows<B>(reinterpret_cast<const PackedNumber*>(panel), tokens, to);
}

// From the kept sums of a hidden block and the gradient of its values: the gradient times the slope, the values, and
// the sums of that gradient over the tokens, added to `bias`.
template <int B, typename Number>
void differentiate_panel(int64_t activation, const Number* kept, const float* sums, PackedNumber* gradient,
                         PackedNumber* values, float* bias, int64_t tokens) {
    constexpr int L = smaller(VECTOR_LANES, B), V = B / L;
    typedef typename Vector<L>::exact vec;
    with_activation<L>(activation, [&](auto function) __attribute__((always_inline)) {
        vec total[V];
        for (int v = 0; v < V; v++) total[v] = load<L>(bias + v * L);
        for (int64_t at = 0; at < tokens * B; at += B) {
            vec value[V], scaled[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) {
                vec slope;
                function(load<L>(kept + at + v * L), value[v], slope);
                scaled[v] = load<L>(sums + at + v * L) * slope;
                total[v] += scaled[v];
            }
            store_row<L, V>(values + at, value, false);
            store_row<L, V>(gradient + at, scaled, false);
        }
        for (int v = 0; v < V; v++) store<L>(bias + v * L, total[v]);
    });
}

template <int B>
void add_token_sums(const PackedNumber* panel, int64_t tokens, float* to) {
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
void add_outer(const Packed* gradient, const Packed* input, int64_t tokens, int64_t slot, int64_t next, float* sums,
               Prefetcher& ahead) {
    float* sum = sums + slot * (B * B);
    outer_block<B>(gradient, 0, input, 0, 1, divide_up(tokens, DEPTH), sum,
                   next < 0 ? nullptr : sums + next * (B * B), sum, ahead);
}

// One hidden block: its gradient, and what follows from it.
template <int B, typename Number>
void backward_block(const MlpProblem& p, const MlpTerms& terms, const TokenStrip& strip, int64_t block,
                    const BackwardPanels<B>& panels, const MlpSums& to, Prefetcher& ahead) {
    const int64_t tokens = strip.tokens;
    const int64_t first = p.first.row_offsets[block], first_end = p.first.row_offsets[block + 1];
    const int64_t second = p.second.col_offsets[block], second_end = p.second.col_offsets[block + 1];
    gather_run<B>(panels.output_gradient, terms.second + second, second_end - second, nullptr, panels.sums, B, tokens,
                  false, ahead);
    differentiate_panel<B, Number>(p.activation, kept_sums<B, Number>(p, strip, block), panels.sums,
                                   reinterpret_cast<PackedNumber*>(panels.gradient),
                                   reinterpret_cast<PackedNumber*>(panels.values), to.first_bias + block * B, tokens);
    pack_by_tokens<B>(panels.values, tokens, panels.values_by_tokens);
    pack_by_tokens<B>(panels.gradient, tokens, panels.gradient_by_tokens);
    for (int64_t at = second; at < second_end; at++)
        add_outer<B>(panels.output_gradient_by_tokens + terms.second[at].input_offset, panels.values_by_tokens, tokens,
                     p.second.col_slots[at], at + 1 < p.second.blocks ? p.second.col_slots[at + 1] : -1,
                     to.second_weight, ahead);
    for (int64_t at = first; at < first_end; at++)
        add_outer<B>(panels.gradient_by_tokens, panels.input_by_tokens + terms.first[at].input_offset, tokens,
                     p.first.row_slots[at], at + 1 < p.first.blocks ? p.first.row_slots[at + 1] : -1, to.first_weight,
                     ahead);
    if (p.input_gradient.data)
        scatter_panel<B>(panels.gradient, terms.first + first, first_end - first, tokens, panels.input_gradient,
                         ahead);
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

// A strip's operands into panels, and the sums over its tokens of the output's gradient.
template <int B, typename Number>
void pack_operands(const MlpProblem& p, const TokenStrip& strip, const BackwardPanels<B>& panels, const MlpSums& to) {
    const int64_t distance = panel_elements<B>(p);
    // By channels first, where the input's gradient will be; nobody sums over the input's channels.
    Packed* input = DEPTH == 1 ? panels.input_by_tokens : reinterpret_cast<Packed*>(panels.input_gradient);
    pack_strip<B, Number>(p, strip_view<Number>(p.input, p.input_channels, strip), input);
    for (int64_t at = 0; at < p.input_channels / B * distance; at += distance)
        pack_by_tokens<B>(input + at, strip.tokens, panels.input_by_tokens + at);
    pack_strip<B, Number>(p, strip_view<Number>(p.output, p.output_channels, strip), panels.output_gradient);
    for (int64_t panel = 0; panel < p.output_channels / B; panel++) {
        const Packed* gradient = panels.output_gradient + panel * distance;
        pack_by_tokens<B>(gradient, strip.tokens, panels.output_gradient_by_tokens + panel * distance);
        add_token_sums<B>(reinterpret_cast<const PackedNumber*>(gradient), strip.tokens, to.second_bias + panel * B);
    }
    if (p.input_gradient.data) fill_panels<B>(p, nullptr, p.input_channels, strip.tokens, panels.input_gradient);
}

template <int B, typename Number>
void backward_strip(const MlpProblem& p, const MlpTerms& terms, const TokenStrip& strip,
                    const BackwardPanels<B>& panels, const MlpSums& to) {
    const int64_t hidden_blocks = p.hidden_channels / B;
    pack_operands<B, Number>(p, strip, panels, to);
    for (int64_t block = 0; block < hidden_blocks; block++) {
        if (p.second.col_offsets[block] == p.second.col_offsets[block + 1]) continue;  // its gradient is zero
        Prefetcher ahead;
        if (block + 1 < hidden_blocks) {
            ahead.add_run(kept_sums<B, Number>(p, strip, block + 1), B * strip.tokens * sizeof(Number));
            ahead.spread_over(steps_of_block<B>(p, strip.tokens, block));
        }
        backward_block<B, Number>(p, terms, strip, block, panels, to, ahead);
    }
    if (p.input_gradient.data)
        unpack_strip<B, Number>(p, panels.input_gradient, strip_view<Number>(p.input_gradient, p.input_channels, strip));
}

// to[segment 0] += the other segments, `stride` elements apart, in order.
inline void add_all(float* to, const float* others, int64_t stride, int64_t segments, int64_t begin, int64_t end) {
    for (int64_t segment = 1; segment < segments; segment++)
        for (int64_t at = begin; at < end; at++) to[at] += others[(segment - 1) * stride + at];
}

template <int B, typename Number>
int mlp_backward(const MlpProblem& p) {
    const int64_t strips = strip_count(p), tasks = p.threads == 1 ? 1 : 2 * p.threads;
    const int64_t segments = most(1, least(strips, tasks));
    const int64_t elements = BackwardPanels<B>::count(p) * panel_elements<B>(p);
    const int64_t counts[4] = {p.first.blocks * (B * B), p.second.blocks * (B * B), p.hidden_channels,
                               p.output_channels};
    const int64_t stride = counts[0] + counts[1] + counts[2] + counts[3];
    float* results[4] = {p.first.weight_gradient, p.second.weight_gradient, p.first.bias_gradient,
                         p.second.bias_gradient};
    Packed* packed = workspace().packed.take<Packed>(p.threads * elements);
    float* sums = workspace().sums.take<float>((segments - 1) * stride);
    MlpTerms terms;
    if (!packed || !sums || !MlpTerms::list<B, Number, BY_ROWS>(p, terms)) return STATUS_OUT_OF_MEMORY;
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
            const BackwardPanels<B> panels(p, packed + omp_get_thread_num() * elements);
            for (int64_t at = strips * segment / segments; at < strips * (segment + 1) / segments; at++)
                backward_strip<B, Number>(p, terms, token_strip(p, at), panels, to);
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
