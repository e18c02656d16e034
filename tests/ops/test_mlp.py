"""Two sparse layers with an activation between them, in one function, equal the three calls they stand for."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from acf.ops import MlpLayer, block_linear, block_mlp
from acf.sparse import BlockLayout, BlockTopology

FIRST = BlockTopology.build(BlockLayout(16, 12, 4, 3), torch.tensor([3, 0, 1, 1]), torch.tensor([3, 0, 1, 2]))
SECOND = BlockTopology.build(BlockLayout(8, 16, 4, 4), torch.tensor([1, 0, 1]), torch.tensor([3, 0, 1]))


PLAIN = {
    "gelu": F.gelu,
    "gelu_tanh": lambda hidden: F.gelu(hidden, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
}


def operands(with_bias: bool, dtype: torch.dtype = torch.float64) -> list[Tensor | None]:
    """x, first weight and bias, second weight and bias."""
    shapes = ((2, 5, 12), (4, 4, 3), (16,) if with_bias else None, (3, 4, 4), (8,) if with_bias else None)
    return [None if shape is None else torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def plain(x: Tensor, first: Tensor, bias: Any, second: Tensor, second_bias: Any, activation: str = "gelu") -> Tensor:
    return block_linear(PLAIN[activation](block_linear(x, first, FIRST, bias)), second, SECOND, second_bias)


def fused(x: Tensor, first: Tensor, bias: Any, second: Tensor, second_bias: Any, activation: str = "gelu") -> Tensor:
    return block_mlp(x, MlpLayer(first, FIRST, bias), MlpLayer(second, SECOND, second_bias), activation)


@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_are_those_of_the_three_calls(with_bias: bool, activation: str) -> None:
    tensors = operands(with_bias)
    leaves = [tensor for tensor in tensors if tensor is not None]
    y, expected = fused(*tensors, activation), plain(*tensors, activation)
    torch.testing.assert_close(y, expected)
    output_grad = torch.randn_like(y)
    for result, wanted in zip(
        torch.autograd.grad(y, leaves, output_grad), torch.autograd.grad(expected, leaves, output_grad), strict=True
    ):
        torch.testing.assert_close(result, wanted)


def test_the_gradient_is_that_of_finite_differences() -> None:
    assert torch.autograd.gradcheck(fused, operands(True))


@pytest.mark.parametrize(
    ("trained", "ops"),
    [
        ("second", {"weight_grad"}),
        ("first", {"scaled_input_grad", "weight_grad"}),
        ("bias", {"scaled_input_grad", "bias_grad"}),
        ("second_bias", {"bias_grad"}),
        ("x", {"scaled_input_grad", "input_grad"}),
    ],
)
def test_only_the_gradients_that_are_needed_are_computed(trained: str, ops: set[str], gradient_ops_of: Any) -> None:
    tensors = dict(zip(("x", "first", "bias", "second", "second_bias"), operands(True), strict=True))
    leaves = {name: tensor.detach().requires_grad_(name == trained) for name, tensor in tensors.items()}
    found = gradient_ops_of(lambda: fused(*leaves.values()).sum().backward())
    assert found == {"acf::bias_grad" if op == "bias_grad" else f"acf::block_linear_{op}" for op in ops}
    assert leaves[trained].grad is not None


def test_nothing_is_kept_for_a_gradient_where_none_is_taken() -> None:
    with torch.no_grad():
        assert not fused(*operands(True)).requires_grad


def test_a_compiler_takes_it_whole_and_computes_the_same() -> None:
    tensors = operands(True, torch.float32)
    leaves = [tensor for tensor in tensors if tensor is not None]
    y = torch.compile(fused, fullgraph=True, backend="aot_eager")(*tensors)
    expected = fused(*tensors)
    torch.testing.assert_close(y, expected)
    for result, wanted in zip(
        torch.autograd.grad(y.sum(), leaves), torch.autograd.grad(expected.sum(), leaves), strict=True
    ):
        torch.testing.assert_close(result, wanted)


def test_a_large_value_has_slope_one_and_a_very_negative_one_slope_zero() -> None:
    x = torch.full((1, 12), 40.0, dtype=torch.bfloat16, requires_grad=True)
    first = torch.ones(4, 4, 3, dtype=torch.bfloat16)
    y = fused(x, first, None, torch.ones(3, 4, 4, dtype=torch.bfloat16), None)
    negative = fused(-x, first, None, torch.ones(3, 4, 4, dtype=torch.bfloat16), None)
    assert torch.isfinite(y).all()
    assert not negative.any()
    (grad,) = torch.autograd.grad(negative.sum(), x)
    assert not grad.any()
