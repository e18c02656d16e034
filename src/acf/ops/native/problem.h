// The one argument of every pass: a block-sparse 2-D convolution and the arrays it works on.
//
// A linear layer is the same thing: a 1x1 convolution over "images" one row high and some tens of tokens wide,
// of which the last may be narrower (missing_cols). All sizes and strides are 64-bit counts of elements.
#pragma once
#include <stdint.h>

struct Problem {
    int64_t bfloat16;  // 1: input, output and weight are bfloat16; 0: float
    int64_t threads;
    int64_t block;  // rows and columns of a block

    int64_t batch;
    int64_t missing_cols;  // by which input and output of the last image are narrower than the others
    int64_t input_channels, input_height, input_width;
    int64_t output_channels, output_height, output_width;
    int64_t kernel_height, kernel_width;
    int64_t stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;

    int64_t input_image_stride, input_channel_stride, input_y_stride, input_x_stride;
    int64_t output_image_stride, output_channel_stride, output_y_stride, output_x_stride;

    void* input;   // written by the input gradient, read by the others
    void* output;  // written by the forward pass, read by the others
    void* weight;  // [blocks, block, block]; written by the weight gradient, read by the others

    int64_t blocks;
    const int32_t* block_rows;
    const int32_t* block_cols;
    const int32_t* row_offsets;
    const int32_t* row_slots;
    const int32_t* col_offsets;
    const int32_t* col_slots;

    const float* bias;  // [output_channels], added by the forward pass; null: none

    int64_t epilogue;       // of the enumeration below; only where channels are innermost
    void* epilogue_operand;  // as the written image: the slope that an activation writes, or the scale that is read

    float* statistics;  // [2][output_channels]: mean and biased variance of what the forward pass writes; null: none.
                        // Only where channels are innermost, and without an epilogue.
};

// What happens to the sums of the forward pass and of the input gradient before they are stored.
enum Epilogue : int64_t {
    EPILOGUE_NONE = 0,
    EPILOGUE_SCALE = 1,
    EPILOGUE_GELU = 2,
    EPILOGUE_GELU_TANH = 3,
    EPILOGUE_SILU = 4,
    EPILOGUE_RELU = 5
};

// One side of a multilayer perceptron's tokens: [batch, tokens, channels] with any strides, in elements.
struct TokenArray {
    void* data;  // floats or bfloat16
    int64_t batch_stride, token_stride, channel_stride;
};

// One of its two layers: packed weight [blocks, block, block], where the blocks are, and what the backward pass writes.
struct MlpLayer {
    const void* weight;  // floats or bfloat16
    int64_t blocks;
    const int32_t* block_rows;
    const int32_t* block_cols;
    const int32_t* row_offsets;
    const int32_t* row_slots;
    const int32_t* col_offsets;
    const int32_t* col_slots;
    const float* bias;      // [channels written by the layer], or null
    float* weight_gradient;  // in the order of the weight
    float* bias_gradient;    // as the bias
};

// Two linear layers with an activation between them; biases and all parameters' gradients are floats.
struct MlpProblem {
    int64_t bfloat16;                    // 1: tokens, weights and `hidden` are bfloat16; 0: float
    int64_t threads, block, activation;  // activation: of Epilogue, from EPILOGUE_GELU on
    int64_t batch, tokens, strip;         // tokens of one batch entry; tokens that are worked on at a time
    int64_t input_channels, hidden_channels, output_channels;
    struct TokenArray input, output, input_gradient;  // the backward pass reads the gradient of the output
    void* hidden;  // sums before the activation, [strip][hidden block][token][block]; null: not kept
    struct MlpLayer first, second;
};

// What a pass returns.
enum Status : int { STATUS_OK = 0, STATUS_OUT_OF_MEMORY = 1, STATUS_BAD_TOPOLOGY = 2, STATUS_UNSUPPORTED_BLOCK = 3 };

// One set of passes per instruction set: passes.cpp is compiled once for each.
#define ACF_DECLARE_PASSES(isa)                           \
    int acf_forward_##isa(const struct Problem*);         \
    int acf_input_gradient_##isa(const struct Problem*);  \
    int acf_weight_gradient_##isa(const struct Problem*);

#define ACF_DECLARE_MLP_PASSES(isa)                      \
    int acf_mlp_forward_##isa(const struct MlpProblem*); \
    int acf_mlp_backward_##isa(const struct MlpProblem*);

#ifdef __cplusplus
extern "C" {
#endif
ACF_DECLARE_PASSES(portable)
ACF_DECLARE_PASSES(avx2)
ACF_DECLARE_PASSES(avx512)
ACF_DECLARE_PASSES(avx512bf16)
ACF_DECLARE_PASSES(amx)
ACF_DECLARE_MLP_PASSES(portable)
ACF_DECLARE_MLP_PASSES(avx2)
ACF_DECLARE_MLP_PASSES(avx512)
ACF_DECLARE_MLP_PASSES(avx512bf16)
#ifdef __cplusplus
}
#endif
