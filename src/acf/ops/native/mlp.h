// Two linear layers with an activation between them, a strip of tokens and one block of hidden channels at a time.
//
// A hidden block of a strip is made, activated and multiplied by the second layer without leaving the first-level
// cache, and so is its gradient. Memory sees the tokens, and the sums before the activation once in each pass: the
// backward pass activates them again, which costs less than to store value and slope.
//
// What is multiplied lies in panels of packed numbers (floats, or pairs of bfloat16 of neighbouring channels), what is
// summed in panels of floats, DEPTH times as long.
#pragma once
#include "activation.h"
#include "arithmetic.h"
#include "microkernels.h"
#include "packing.h"
#include "prefetch.h"
#include "problem.h"
#include "scratch.h"

namespace {

// From this size on the sums before the activation are written past the caches.
constexpr int64_t HIDDEN_PAST_CACHES_BYTES = 8 << 20;

struct TokenStrip {
    int64_t batch, first, tokens;
    int64_t before;  // tokens of all strips before it
};

int64_t strip_count(const MlpProblem& p) { return p.batch * divide_up(p.tokens, p.strip); }

TokenStrip token_strip(const MlpProblem& p, int64_t index) {
    const int64_t strips = divide_up(p.tokens, p.strip), batch = index / strips, first = index % strips * p.strip;
    return {batch, first, least(p.strip, p.tokens - first), batch * p.tokens + first};
}

// A strip as an image one row high.
template <typename Number>
ImageView strip_view(const TokenArray& array, int64_t channels, const TokenStrip& strip) {
    Number* data = static_cast<Number*>(array.data) + strip.batch * array.batch_stride + strip.first * array.token_stride;
    return {data, channels, 1, strip.tokens, 0, array.channel_stride, 0, array.token_stride};
}

// Where the sums of a strip and hidden block are kept; null: nowhere.
template <int B, typename Number>
Number* kept_sums(const MlpProblem& p, const TokenStrip& strip, int64_t block) {
    if (!p.hidden) return nullptr;
    return static_cast<Number*>(p.hidden) + strip.before * p.hidden_channels + block * B * strip.tokens;
}

TileSource whole(const ImageView& view) { return {0, 0, 1, view.width, 0}; }

// Distance of a strip's panels; panels of floats are DEPTH times as far apart.
template <int B>
int64_t panel_elements(const MlpProblem& p) {
    return p.strip * B / DEPTH + 16;  // as in PanelLayout::make
}

template <int B, typename Number>
void pack_strip(const MlpProblem& p, const ImageView& view, Packed* panels) {
    PanelLayout layout = PanelLayout::make(1, view.width, 1, 0, B / DEPTH);
    layout.panel_elements = panel_elements<B>(p);
    pack_tile<B, NEIGHBOURING_CHANNELS, Number>(view, layout, whole(view), panels);
}

// Panels of floats into the memory of a strip.
template <int B, typename Number>
void unpack_strip(const MlpProblem& p, const float* panels, const ImageView& view) {
    Number* data = static_cast<Number*>(view.data);
    for (int64_t first = 0; first < view.width; first += 8)
        for (int64_t panel = 0; panel < view.channels / B; panel++) {
            const float* from = panels + panel * DEPTH * panel_elements<B>(p) + first * B;
            Number* to = data + first * view.x_stride + panel * B * view.channel_stride;
            const int64_t tokens = least(8, view.width - first);
            if (view.channel_stride == 1)
                for (int64_t token = 0; token < tokens; token++)
                    copy_numbers(from + token * B, to + token * view.x_stride, B);
            else
                transpose(from, B, 1, to, view.channel_stride, view.x_stride, tokens, B);
        }
}

// Every token of every panel of floats starts with the bias, or with zero.
template <int B>
void fill_panels(const MlpProblem& p, const float* bias, int64_t channels, int64_t tokens, float* panels) {
    for (int64_t panel = 0; panel < channels / B; panel++) {
        float* to = panels + panel * DEPTH * panel_elements<B>(p);
        if (!bias) memset(to, 0, tokens * B * sizeof(float));
        if (bias)
            for (int64_t token = 0; token < tokens; token++) copy_numbers(bias + panel * B, to + token * B, B);
    }
}

// The values of a hidden block's sums, which may take their place; `kept` gets the sums, unless it is null.
template <int B, typename Number>
void activate_panel(int64_t activation, const float* sums, PackedNumber* values, Number* kept, int64_t tokens,
                    bool past_caches) {
    constexpr int L = smaller(VECTOR_LANES, B), V = B / L;
    typedef typename Vector<L>::exact vec;
    with_activation<L>(activation, [&](auto function) __attribute__((always_inline)) {
        for (int64_t at = 0; at < tokens * B; at += B) {
            vec sum[V], value[V], slope;
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) {
                sum[v] = load<L>(sums + at + v * L);
                function(sum[v], value[v], slope);
            }
            if (kept) store_row<L, V>(kept + at, sum, past_caches);
            store_row<L, V>(values + at, value, false);
        }
    });
}

// The packed blocks of a layer's weight in the order that `slots` walks them: transposed, or as their rows lie.
enum WeightOrder { TRANSPOSED, BY_ROWS };

template <int B, typename Number, WeightOrder ORDER>
void pack_blocks(const MlpLayer& layer, const int32_t* slots, int64_t threads, Packed* to) {
#pragma omp parallel for num_threads(threads)
    for (int64_t at = 0; at < layer.blocks; at++) {
        const Number* block = static_cast<const Number*>(layer.weight) + static_cast<int64_t>(slots[at]) * B * B;
        if constexpr (ORDER == TRANSPOSED)
            pack_transposed<B>(block, to + at * (B * B / DEPTH));
        else
            pack_rows<B>(block, B, to + at * (B * B / DEPTH));
    }
}

// Both layers' terms, by hidden block: the first layer's read the input (or are added to its gradient), the second
// layer's are added to the output (or read its gradient).
struct MlpTerms {
    const Term* first;
    const Term* second;

    template <int B, typename Number, WeightOrder ORDER>
    static bool list(const MlpProblem& p, MlpTerms& listed) {
        const int64_t blocks = p.first.blocks + p.second.blocks;
        Term* terms = workspace().terms.take<Term>(blocks);
        Packed* weights = workspace().weights.take<Packed>(blocks * (B * B / DEPTH));  // untouched where none is copied
        if (!terms || !weights) return false;
        listed = {terms, terms + p.first.blocks};
        list_layer<B, Number, ORDER>(p, p.first, p.first.row_slots, p.first.block_cols, weights, terms);
        list_layer<B, Number, ORDER>(p, p.second, p.second.col_slots, p.second.block_rows,
                                     weights + p.first.blocks * (B * B / DEPTH), terms + p.first.blocks);
        return true;
    }

    template <int B, typename Number, WeightOrder ORDER>
    static void list_layer(const MlpProblem& p, const MlpLayer& layer, const int32_t* slots, const int32_t* panels,
                           Packed* weights, Term* terms) {
        constexpr bool in_place = ORDER == BY_ROWS && sizeof(Number) == sizeof(float);
        if (!in_place) pack_blocks<B, Number, ORDER>(layer, slots, p.threads, weights);
        for (int64_t at = 0; at < layer.blocks; at++) {
            const Packed* block = in_place ? static_cast<const Packed*>(layer.weight) + slots[at] * int64_t{B * B}
                                           : weights + at * (B * B / DEPTH);
            terms[at] = {block, panels[slots[at]] * panel_elements<B>(p)};
        }
    }
};

// panels[term] += hidden * weight, for every term.
template <int B>
void scatter_panel(const Packed* hidden, const Term* terms, int64_t count, int64_t tokens, float* panels,
                   Prefetcher& ahead) {
    for (int64_t at = 0; at < count; at++) {
        const Term term = {terms[at].weight, 0};
        gather_run<B, true>(hidden, &term, 1, nullptr, panels + DEPTH * terms[at].input_offset, B, tokens, false,
                            ahead);
    }
}

// A thread's panels in the forward pass. Where numbers are packed as they are summed, values take the place of sums.
template <int B>
struct ForwardPanels {
    Packed *input, *values;
    float *output, *sums;

    static int64_t count(const MlpProblem& p) {
        return p.input_channels / B + DEPTH * (p.output_channels / B) + DEPTH + (DEPTH - 1);
    }

    ForwardPanels(const MlpProblem& p, Packed* memory) {
        const int64_t distance = panel_elements<B>(p);
        input = memory;
        output = reinterpret_cast<float*>(input + p.input_channels / B * distance);
        sums = output + DEPTH * (p.output_channels / B) * distance;
        values = reinterpret_cast<Packed*>(sums + (DEPTH - 1) * DEPTH * distance);
    }
};

template <int B, typename Number>
void forward_strip(const MlpProblem& p, const MlpTerms& terms, const TokenStrip& strip, const ForwardPanels<B>& panels,
                   bool past_caches) {
    pack_strip<B, Number>(p, strip_view<Number>(p.input, p.input_channels, strip), panels.input);
    fill_panels<B>(p, p.second.bias, p.output_channels, strip.tokens, panels.output);
    Prefetcher ahead;
    for (int64_t block = 0; block < p.hidden_channels / B; block++) {
        const int64_t read = p.first.row_offsets[block], added = p.second.col_offsets[block];
        const int64_t added_end = p.second.col_offsets[block + 1];
        if (added == added_end) continue;  // nobody reads this hidden block
        gather_run<B>(panels.input, terms.first + read, p.first.row_offsets[block + 1] - read,
                      p.first.bias ? p.first.bias + block * B : nullptr, panels.sums, B, strip.tokens, false, ahead);
        activate_panel<B>(p.activation, panels.sums, reinterpret_cast<PackedNumber*>(panels.values),
                          kept_sums<B, Number>(p, strip, block), strip.tokens, past_caches && strip.tokens % 8 == 0);
        scatter_panel<B>(panels.values, terms.second + added, added_end - added, strip.tokens, panels.output, ahead);
    }
    unpack_strip<B, Number>(p, panels.output, strip_view<Number>(p.output, p.output_channels, strip));
    finish_stores();
}

template <int B, typename Number>
int mlp_forward(const MlpProblem& p) {
    const int64_t elements = ForwardPanels<B>::count(p) * panel_elements<B>(p);
    Packed* packed = workspace().packed.take<Packed>(p.threads * elements);
    MlpTerms terms;
    if (!packed || !MlpTerms::list<B, Number, TRANSPOSED>(p, terms)) return STATUS_OUT_OF_MEMORY;
    const int64_t hidden_bytes = p.batch * p.tokens * p.hidden_channels * static_cast<int64_t>(sizeof(Number));
    const bool past_caches =
        reinterpret_cast<uintptr_t>(p.hidden) % 64 == 0 && hidden_bytes >= HIDDEN_PAST_CACHES_BYTES;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p.threads)
    for (int64_t index = 0; index < strip_count(p); index++)
        forward_strip<B, Number>(p, terms, token_strip(p, index),
                                 ForwardPanels<B>(p, packed + omp_get_thread_num() * elements), past_caches);
    return STATUS_OK;
}

}  // namespace
