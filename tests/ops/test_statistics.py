"""A convolution that gives batch statistics, and batch norm by these statistics, agree with torch's own layers."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from acf.ops import Conv2dGeometry, batch_norm_after_conv2d, block_conv2d, block_conv2d_for_batch_norm
from acf.ops.statistics import block_conv2d_statistics
from acf.sparse import BlockLayout, BlockTopology

GEOMETRY = Conv2dGeometry((3, 3), stride=(2, 1), padding=(1, 1))
TOPOLOGY = BlockTopology.build(BlockLayout(8, 36, 4, 4), torch.tensor([0, 1, 1]), torch.tensor([3, 0, 8]))
EPS = 1e-5


def operands(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, bias = torch.randn(3, 4, 6, 5), torch.randn(3, 4, 4), torch.randn(8)
    return tuple(each.to(dtype).requires_grad_() for each in (x, weight, bias))  # type: ignore[return-value]


def normalised(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    y = block_conv2d_for_batch_norm(x, weight, TOPOLOGY, GEOMETRY, bias)
    return batch_norm_after_conv2d(y, scale, shift, None, 0.1, EPS)


def expected(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    y = block_conv2d(x, weight, TOPOLOGY, GEOMETRY, bias)
    return functional.batch_norm(y, None, None, scale, shift, True, 0.0, EPS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_statistics_are_those_of_the_stored_output(dtype: torch.dtype) -> None:
    x, weight, bias = operands(dtype)
    with torch.no_grad():
        y, mean, variance = block_conv2d_statistics(x, weight, bias, *TOPOLOGY, *GEOMETRY.as_lists())
    wide = torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(y, block_conv2d(x, weight, TOPOLOGY, GEOMETRY, bias))
    torch.testing.assert_close(mean, y.to(wide).mean((0, 2, 3)))
    torch.testing.assert_close(variance, y.to(wide).var((0, 2, 3), correction=0))


@pytest.mark.parametrize("affine", [True, False])
def test_gradients_are_those_of_a_convolution_and_a_batch_norm(affine: bool) -> None:
    inputs = operands()
    parameters = [torch.randn(8, dtype=torch.float64, requires_grad=True) for _ in range(2)] if affine else []
    results = []
    for function in (normalised, expected):
        y = function(*inputs, *(parameters or [None, None]))  # type: ignore[arg-type]
        results.append((y, *torch.autograd.grad((y**3).sum(), [*inputs, *parameters])))
    torch.testing.assert_close(*results, atol=1e-9, rtol=1e-7)


def test_second_derivatives_are_those_of_a_convolution_and_a_batch_norm() -> None:
    inputs = operands()
    scale, shift = (torch.randn(8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    results = []
    for function in (normalised, expected):
        first = torch.autograd.grad((function(*inputs, scale, shift) ** 3).sum(), inputs, create_graph=True)
        penalty = torch.stack([gradient.square().sum() for gradient in first]).sum()
        results.append(torch.autograd.grad(penalty, [*inputs[:2], scale]))
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-6)


def test_transforms_see_a_plain_batch_norm() -> None:
    inputs, scale, shift = operands(), torch.randn(8).double(), torch.randn(8).double()
    gradients = [
        torch.func.grad(lambda weight, f=function: (f(inputs[0], weight, inputs[2], scale, shift) ** 3).sum())(
            inputs[1]
        )
        for function in (normalised, expected)
    ]
    torch.testing.assert_close(*gradients)


def test_a_batch_norm_keeps_the_dtype_of_its_input_beside_float32_parameters() -> None:
    inputs = operands(torch.bfloat16)
    scale, shift = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    found, wanted = (function(*inputs, scale, shift) for function in (normalised, expected))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted)
    grads = [torch.autograd.grad(z.float().square().sum(), [*inputs, scale, shift]) for z in (found, wanted)]
    torch.testing.assert_close(*grads)


def running() -> tuple[Tensor, Tensor]:
    return torch.linspace(-1, 1, 8).double(), torch.linspace(1, 2, 8).double()


def refuse(*_: Any, **__: Any) -> Tensor:
    raise AssertionError("statistics were taken again")


def test_statistics_are_not_taken_again_while_the_output_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, averages, plain_averages = operands(), running(), running()
    y = block_conv2d_for_batch_norm(*inputs[:2], TOPOLOGY, GEOMETRY, inputs[2])
    wanted = functional.batch_norm(y.detach(), *plain_averages, None, None, True, 0.3, EPS)
    monkeypatch.setattr(functional, "batch_norm", refuse)
    torch.testing.assert_close(batch_norm_after_conv2d(y, None, None, averages, 0.3, EPS), wanted, check_stride=False)
    torch.testing.assert_close(averages, plain_averages)
    with torch.no_grad():
        y.mul_(2.0)
    with pytest.raises(AssertionError, match="taken again"):
        batch_norm_after_conv2d(y, None, None, averages, 0.3, EPS)


def test_other_tensors_have_no_statistics_but_their_own() -> None:
    inputs = operands()
    y = block_conv2d_for_batch_norm(*inputs[:2], TOPOLOGY, GEOMETRY, inputs[2])
    with torch.inference_mode():
        untracked = block_conv2d_for_batch_norm(*inputs[:2], TOPOLOGY, GEOMETRY, inputs[2])
    for other in (y + 1, y.detach(), y[1:], untracked, torch.randn(4, 8, 3, 3).double()):
        found = batch_norm_after_conv2d(other, None, None, None, 0.1, EPS)
        torch.testing.assert_close(found, functional.batch_norm(other, None, None, training=True))
