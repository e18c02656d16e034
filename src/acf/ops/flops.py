"""Floating-point operations of the ops, for `torch.utils.flop_counter` and for compilers that weigh recomputing.

A product and its two gradients each multiply and add once per stored weight and position (a token, or a pixel of the
output). Without these counts torch takes the ops to be free.
"""

from math import prod
from typing import Any

from torch.utils.flop_counter import register_flop_formula

from acf.ops import conv, conv_transpose, dense_experts, experts, gated, linear, mlp, statistics, whole_mlp
from acf.ops.library import Op
from acf.ops.semi_structured.product import multiply_compressed

Shape = tuple[int, ...]


def register() -> None:
    """Tell torch what every product costs."""
    for module_ops in (
        (linear.block_linear_forward, linear.block_linear_input_grad, linear.block_linear_weight_grad),
        (conv.block_conv2d_forward, conv.block_conv2d_input_grad, conv.block_conv2d_weight_grad),
    ):
        forward, input_grad, weight_grad = (_packet(op) for op in module_ops)
        register_flop_formula(forward)(_forward)
        register_flop_formula(input_grad)(_input_grad)
        register_flop_formula(weight_grad)(_weight_grad)
    for op in (experts.block_experts_forward, experts.block_experts_input_grad, experts.block_experts_weight_grad):
        register_flop_formula(_packet(op))(_experts)
    for op in (dense_experts.dense_experts_forward, dense_experts.dense_experts_weight_grad):
        register_flop_formula(_packet(op))(_dense_experts)
    register_flop_formula(_packet(linear.block_linear_weight_and_bias_grad))(_weight_and_bias_grad)
    register_flop_formula(_packet(conv_transpose.block_conv_transpose2d_weight_grad))(_transposed_weight_grad)
    register_flop_formula(_packet(statistics.block_conv2d_statistics))(_conv_statistics)
    register_flop_formula(_packet(mlp.block_linear_activation))(_linear_activation)
    register_flop_formula(_packet(mlp.block_linear_scaled_input_grad))(_input_grad)
    register_flop_formula(_packet(gated.block_linear_gated))(_gated)
    register_flop_formula(_packet(gated.block_linear_gated_input_grad))(_linear_activation)
    register_flop_formula(_packet(gated.block_linear_pair_input_grad))(_pair_input_grad)
    register_flop_formula(_packet(whole_mlp.block_mlp_forward))(_mlp_forward)
    register_flop_formula(_packet(whole_mlp.block_mlp_backward))(_mlp_backward)
    register_flop_formula(_packet(multiply_compressed))(_semi_structured)


def _packet(op: Op[Any]) -> Any:
    return op.overload.overloadpacket


def _forward(x: Shape, weight: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    return 2 * _positions(out_shape) * prod(weight)


def _conv_statistics(x: Shape, weight: Shape, *_: Any, out_shape: tuple[Shape, ...], **__: Any) -> int:
    return 2 * _positions(out_shape[0]) * prod(weight)


def _linear_activation(x: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    return 2 * _positions(x) * prod(weight)


def _gated(x: Shape, gate_weight: Shape, up_weight: Shape, *_: Any, **__: Any) -> int:
    return 2 * _positions(x) * (prod(gate_weight) + prod(up_weight))


def _pair_input_grad(gate_grad: Shape, up_grad: Shape, gate_weight: Shape, up_weight: Shape, *_: Any, **__: Any) -> int:
    return 2 * _positions(gate_grad) * (prod(gate_weight) + prod(up_weight))


def _mlp_forward(x: Shape, first_weight: Shape, first_bias: Any, second_weight: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(x[:-1]) * (prod(first_weight) + prod(second_weight))


def _mlp_backward(output_grad: Shape, x: Shape, hidden: Shape, *layers: Any, **_: Any) -> int:
    """A gradient of input and weight for each of the layers."""
    return 2 * _mlp_forward(x, *layers)


def _input_grad(output_grad: Shape, weight: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    return 2 * _positions(output_grad) * prod(weight)


def _semi_structured(x: Shape, packed: Shape, *_: Any, **__: Any) -> int:
    """Half of the weights ``[packed[0], x[1]]`` are multiplied."""
    return packed[0] * prod(x)


def _weight_grad(output_grad: Shape, x: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    return 2 * _positions(output_grad) * prod(out_shape)


def _transposed_weight_grad(output_grad: Shape, x: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    return 2 * _positions(x) * prod(out_shape)


def _weight_and_bias_grad(output_grad: Shape, x: Shape, *_: Any, out_shape: tuple[Shape, Shape], **__: Any) -> int:
    return 2 * _positions(output_grad) * prod(out_shape[0])


def _experts(tokens: Shape, other: Shape, *rest: Any, out_shape: Shape, **_: Any) -> int:
    """As if every expert had its share of the tokens: how many it has is known on the device alone."""
    packed, experts_and_end = other if len(other) == 3 else out_shape, int(rest[6][0])
    return 2 * tokens[0] * prod(packed) // (experts_and_end - 1)


def _dense_experts(tokens: Shape, other: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    """As if every token had an expert."""
    return 2 * tokens[0] * prod((other if len(other) == 3 else out_shape)[1:])


def _positions(shape: Shape) -> int:
    """Tokens of ``[tokens, features]``, or pixels of ``[batch, channels, height, width]``."""
    return shape[0] * prod(shape[2:])
