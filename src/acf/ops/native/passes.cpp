// Forward, input gradient and weight gradient, compiled once per instruction set (ACF_ISA names it).
#include "gather.h"
#include "outer.h"
#include "problem.h"
#ifndef ACF_ISA_AMX
#include "mlp_backward.h"
#endif

namespace {

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

bool mlp_fits(const MlpProblem& p) {
    const int64_t hidden_blocks = p.hidden_channels / p.block;
    return offsets_fit(p.first.row_offsets, hidden_blocks, p.first.blocks) &&
           all_below(p.first.row_slots, p.first.blocks, p.first.blocks) &&
           all_below(p.first.block_cols, p.first.blocks, p.input_channels / p.block) &&
           offsets_fit(p.second.col_offsets, hidden_blocks, p.second.blocks) &&
           all_below(p.second.col_slots, p.second.blocks, p.second.blocks) &&
           all_below(p.second.block_rows, p.second.blocks, p.output_channels / p.block);
}

template <typename Argument>
int choose(const Argument& p, bool fits, int (*const (&passes)[4])(const Argument&)) {
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
#define ACF_CHOOSE(Argument, pass, fits, Number) \
    choose<Argument>(*problem, fits(*problem), {pass<8, Number>, pass<16, Number>, pass<32, Number>, pass<64, Number>})
#ifdef ACF_ISA_AVX512BF16  // called with bfloat16 only
#define ACF_EXPORT(exported, Argument, pass, fits) \
    extern "C" int ACF_NAME(exported, ACF_ISA)(const Argument* problem) { \
        return ACF_CHOOSE(Argument, pass, fits, uint16_t);                \
    }
#else
#define ACF_EXPORT(exported, Argument, pass, fits)                                                          \
    extern "C" int ACF_NAME(exported, ACF_ISA)(const Argument* problem) {                                   \
        if (problem->bfloat16) return ACF_CHOOSE(Argument, pass, fits, uint16_t);                           \
        return ACF_CHOOSE(Argument, pass, fits, float);                                                     \
    }
#endif
ACF_EXPORT(acf_forward_, Problem, forward, rows_fit)
ACF_EXPORT(acf_input_gradient_, Problem, input_gradient, cols_fit)
ACF_EXPORT(acf_weight_gradient_, Problem, weight_gradient, rows_fit)
#ifndef ACF_ISA_AMX  // the separate products are in tile registers
ACF_EXPORT(acf_mlp_forward_, MlpProblem, mlp_forward, mlp_fits)
ACF_EXPORT(acf_mlp_backward_, MlpProblem, mlp_backward, mlp_fits)
#endif
