// Two linear layers with an activation between them, a strip of tokens and one block of hidden channels at a time.
//
// A hidden block is [strip][B] floats: it is made, activated and multiplied by the second layer without leaving the
// first-level cache, and so is its gradient. Memory sees the tokens, and the sums before the activation once in each
// pass: the backward pass activates them again, which costs less than to store value and slope.
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
ImageView strip_view(const TokenArray& array, int64_t channels, const TokenStrip& strip) {
    float* data = array.data + strip.batch * array.batch_stride + strip.first * array.token_stride;
    return {data, channels, 1, strip.tokens, 0, array.channel_stride, 0, array.token_stride};
}

TileSource whole(const ImageView& view) { return {0, 0, 1, view.width, 0}; }

// Distance of a strip's panels.
template <int B>
int64_t panel_elements(const MlpProblem& p) {
    return p.strip * B + 16;  // as in PanelLayout::make
}

template <int B>
void pack_strip(const MlpProblem& p, const ImageView& view, float* panels) {
    PanelLayout layout = PanelLayout::make(1, view.width, 1, 0, B);
    layout.panel_elements = panel_elements<B>(p);
    pack_tile<B, NEIGHBOURING_CHANNELS, float>(view, layout, whole(view), panels);
}

// The reverse.
template <int B>
void unpack_strip(const MlpProblem& p, const float* panels, const ImageView& view) {
    float* data = static_cast<float*>(view.data);
    for (int64_t first = 0; first < view.width; first += 8)
        for (int64_t panel = 0; panel < view.channels / B; panel++) {
            const float* from = panels + panel * panel_elements<B>(p) + first * B;
            float* to = data + first * view.x_stride + panel * B * view.channel_stride;
            const int64_t tokens = least(8, view.width - first);
            if (view.channel_stride == 1)
                for (int64_t token = 0; token < tokens; token++)
                    copy_numbers(from + token * B, to + token * view.x_stride, B);
            else
                transpose(from, B, 1, to, view.channel_stride, view.x_stride, tokens, B);
        }
}

// Every token of every panel starts with the bias, or with zero.
template <int B>
void fill_panels(const MlpProblem& p, const float* bias, int64_t channels, int64_t tokens, float* panels) {
    for (int64_t panel = 0; panel < channels / B; panel++) {
        float* to = panels + panel * panel_elements<B>(p);
        if (!bias) memset(to, 0, tokens * B * sizeof(float));
        if (bias)
            for (int64_t token = 0; token < tokens; token++) copy_numbers(bias + panel * B, to + token * B, B);
    }
}

// Sums of a hidden block become values; `kept` gets the sums, unless it is null.
template <int B>
void activate_panel(int64_t activation, float* sums, float* kept, int64_t tokens, bool past_caches) {
    constexpr int L = smaller(VECTOR_LANES, B);
    with_activation<L>(activation, [&](auto function) __attribute__((always_inline)) {
        for (int64_t at = 0; at < tokens * B; at += L) {
            const typename Vector<L>::exact sum[1] = {load<L>(sums + at)};
            typename Vector<L>::exact value, slope;
            if (kept) store_row<L, 1>(kept + at, sum, past_caches);
            function(sum[0], value, slope);
            store<L>(sums + at, value);
        }
    });
}

// The term of every block in the order that `slots` walks them, with blocks of `turned`, or of the weight itself.
template <int B>
void list_terms(const MlpLayer& layer, const int32_t* slots, const int32_t* panels, int64_t distance,
                const float* turned, Term* terms) {
    for (int64_t at = 0; at < layer.blocks; at++) {
        terms[at].weight = turned ? turned + at * (B * B) : layer.weight + static_cast<int64_t>(slots[at]) * B * B;
        terms[at].input_offset = panels[slots[at]] * distance;
    }
}

template <int B>
void turn_blocks(const MlpLayer& layer, const int32_t* slots, int64_t threads, float* turned) {
#pragma omp parallel for num_threads(threads)
    for (int64_t at = 0; at < layer.blocks; at++)
        transpose(layer.weight + static_cast<int64_t>(slots[at]) * B * B, B, 1, turned + at * (B * B), B, 1, B, B);
}

// Both layers' terms, by hidden block: the first layer's read the input (or are added to its gradient), the second
// layer's are added to the output (or read its gradient).
struct MlpTerms {
    const Term* first;
    const Term* second;

    template <int B>
    static bool list(const MlpProblem& p, const float* first_turned, const float* second_turned, MlpTerms& listed) {
        Term* terms = workspace().terms.take<Term>(p.first.blocks + p.second.blocks);
        if (!terms) return false;
        const int64_t distance = panel_elements<B>(p);
        list_terms<B>(p.first, p.first.row_slots, p.first.block_cols, distance, first_turned, terms);
        list_terms<B>(p.second, p.second.col_slots, p.second.block_rows, distance, second_turned,
                      terms + p.first.blocks);
        listed = {terms, terms + p.first.blocks};
        return true;
    }
};

// panels[term] += hidden * weight, for every term.
template <int B>
void scatter_panel(const float* hidden, const Term* terms, int64_t count, int64_t tokens, float* panels,
                   Prefetcher& ahead) {
    for (int64_t at = 0; at < count; at++) {
        const Term term = {terms[at].weight, 0};
        gather_run<B, true>(hidden, &term, 1, nullptr, panels + terms[at].input_offset, B, tokens, false, ahead);
    }
}

template <int B>
void forward_strip(const MlpProblem& p, const MlpTerms& terms, const TokenStrip& strip, float* panels,
                   bool past_caches) {
    const int64_t distance = panel_elements<B>(p);
    float *input = panels, *output = input + p.input_channels / B * distance;
    float* hidden = output + p.output_channels / B * distance;
    pack_strip<B>(p, strip_view(p.input, p.input_channels, strip), input);
    fill_panels<B>(p, p.second.bias, p.output_channels, strip.tokens, output);
    Prefetcher ahead;
    for (int64_t block = 0; block < p.hidden_channels / B; block++) {
        const int64_t read = p.first.row_offsets[block], added = p.second.col_offsets[block];
        const int64_t added_end = p.second.col_offsets[block + 1];
        if (added == added_end) continue;  // nobody reads this hidden block
        gather_run<B>(input, terms.first + read, p.first.row_offsets[block + 1] - read,
                      p.first.bias ? p.first.bias + block * B : nullptr, hidden, B, strip.tokens, false, ahead);
        float* kept = p.hidden ? p.hidden + strip.before * p.hidden_channels + block * B * strip.tokens : nullptr;
        activate_panel<B>(p.activation, hidden, kept, strip.tokens, past_caches && strip.tokens % 8 == 0);
        scatter_panel<B>(hidden, terms.second + added, added_end - added, strip.tokens, output, ahead);
    }
    unpack_strip<B>(p, output, strip_view(p.output, p.output_channels, strip));
    finish_stores();
}

template <int B>
int mlp_forward(const MlpProblem& p) {
    const int64_t panels = p.input_channels / B + p.output_channels / B + 1;
    float* packed = workspace().packed.take<float>(p.threads * panels * panel_elements<B>(p));
    float* turned = workspace().weights.take<float>((p.first.blocks + p.second.blocks) * (B * B));
    MlpTerms terms;
    if (!packed || !turned) return STATUS_OUT_OF_MEMORY;
    float* second_turned = turned + p.first.blocks * (B * B);
    if (!MlpTerms::list<B>(p, turned, second_turned, terms)) return STATUS_OUT_OF_MEMORY;
    turn_blocks<B>(p.first, p.first.row_slots, p.threads, turned);
    turn_blocks<B>(p.second, p.second.col_slots, p.threads, second_turned);
    const int64_t hidden_bytes = p.batch * p.tokens * p.hidden_channels * static_cast<int64_t>(sizeof(float));
    const bool past_caches =
        reinterpret_cast<uintptr_t>(p.hidden) % 64 == 0 && hidden_bytes >= HIDDEN_PAST_CACHES_BYTES;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p.threads)
    for (int64_t index = 0; index < strip_count(p); index++)
        forward_strip<B>(p, terms, token_strip(p, index), packed + omp_get_thread_num() * panels * panel_elements<B>(p),
                         past_caches);
    return STATUS_OK;
}

}  // namespace
