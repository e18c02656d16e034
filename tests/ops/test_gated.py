"""A gated pair of sparse layers and the one after it, in one function, equal the calls they stand for."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from acf.ops import MlpLayer, block_gated_mlp, block_linear
from acf.sparse import BlockLayout, BlockTopology

GATE = BlockTopology.build(BlockLayout(16, 12, 4, 4), torch.tensor([3, 0, 1, 1]), torch.tensor([2, 0, 1, 2]))
UP = BlockTopology.build(BlockLayout(16, 12, 4, 4), torch.tensor([0, 1, 3]), torch.tensor([1, 1, 0]))
DOWN = BlockTopology.build(BlockLayout(8, 16, 4, 4), torch.tensor([1, 0, 1]), torch.tensor([3, 0, 1]))
TOPOLOGIES = (GATE, UP, DOWN)
PLAIN = {
    "gelu": F.gelu,
    "gelu_tanh": lambda hidden: F.gelu(hidden, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
}


def operands(with_bias: bool, dtype: torch.dtype = torch.float64) -> list[Tensor | None]:
    """x, then weight and bias of gate, up and down."""
    torch.manual_seed(0)
    shapes: list[Any] = [(2, 5, 12)]
    for topology, outputs in zip(TOPOLOGIES, (16, 16, 8), strict=True):
        shapes += [(topology.block_rows.numel(), 4, 4), (outputs,) if with_bias else None]
    return [None if shape is None else torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def plain(x: Tensor, *parameters: Any, activation: str = "silu") -> Tensor:
    layers = zip(parameters[::2], parameters[1::2], TOPOLOGIES, strict=True)
    gate, up, down = (lambda x, each=each: block_linear(x, each[0], each[2], each[1]) for each in layers)
    return down(PLAIN[activation](gate(x)) * up(x))


def fused(x: Tensor, *parameters: Any, activation: str = "silu") -> Tensor:
    layers = zip(parameters[::2], TOPOLOGIES, parameters[1::2], strict=True)
    return block_gated_mlp(x, *(MlpLayer(*layer) for layer in layers), activation)


@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_are_those_of_plain_torch(with_bias: bool, activation: str) -> None:
    tensors = operands(with_bias)
    leaves = [tensor for tensor in tensors if tensor is not None]
    y, expected = fused(*tensors, activation=activation), plain(*tensors, activation=activation)
    torch.testing.assert_close(y, expected)
    output_grad = torch.randn_like(y)
    results, wanted = (torch.autograd.grad(each, leaves, output_grad) for each in (y, expected))
    for result, want in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, want)


def test_the_native_kernels_of_a_cpu_agree_with_plain_torch() -> None:
    torch.manual_seed(0)
    layouts = (BlockLayout(64, 32, 16, 16), BlockLayout(64, 32, 16, 16), BlockLayout(32, 64, 16, 16))
    layers = []
    for layout in layouts:
        mask = torch.rand(layout.grid_rows, layout.grid_cols) < 0.5
        mask[0, 0] = True
        topology = BlockTopology.from_mask(layout, mask)
        weight = torch.randn(topology.block_rows.numel(), 16, 16).div_(4).requires_grad_()
        layers.append(MlpLayer(weight, topology, torch.randn(layout.rows, requires_grad=True)))
    x = torch.randn(7, 32, requires_grad=True)
    leaves = [x, *(parameter for layer in layers for parameter in (layer.weight, layer.bias))]
    gate, up, down = (lambda x, each=each: block_linear(x, *each[:3]) for each in layers)
    y, expected = block_gated_mlp(x, *layers), down(F.silu(gate(x)) * up(x))
    torch.testing.assert_close(y, expected)
    for result, want in zip(*(torch.autograd.grad(each.square().sum(), leaves) for each in (y, expected)), strict=True):
        torch.testing.assert_close(result, want, rtol=1e-4, atol=1e-4)


def test_derivatives_of_first_and_second_order_are_those_of_finite_differences() -> None:
    tensors = operands(True)
    assert torch.autograd.gradcheck(fused, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(fused, tensors, fast_mode=True)


def test_without_gradients_the_value_is_the_same() -> None:
    tensors = operands(True)
    with torch.no_grad():
        torch.testing.assert_close(fused(*tensors), plain(*tensors))


def test_transforms_of_torch_func_see_through_it() -> None:
    x, *parameters = operands(True)
    jacobian = torch.func.jacrev(lambda x: fused(x, *parameters).sum(-1))(x)
    torch.testing.assert_close(jacobian, torch.func.jacrev(lambda x: plain(x, *parameters).sum(-1))(x))


@pytest.mark.parametrize("trained", range(7))
def test_every_input_can_be_the_only_one_that_is_trained(trained: int) -> None:
    tensors = operands(True)
    for index, tensor in enumerate(tensors):
        tensor.requires_grad_(index == trained)
    (result,) = torch.autograd.grad(fused(*tensors).square().sum(), tensors[trained])
    (expected,) = torch.autograd.grad(plain(*tensors).square().sum(), tensors[trained])
    torch.testing.assert_close(result, expected)


def test_weights_in_float32_keep_their_gradients_so_beside_inputs_in_bfloat16() -> None:
    x, *parameters = operands(True, torch.float32)
    y = fused(x.bfloat16(), *parameters)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert {parameter.grad.dtype for parameter in parameters} == {torch.float32}
