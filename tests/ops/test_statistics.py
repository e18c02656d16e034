"""A convolution that gives batch statistics, and batch norm by these statistics, agree with torch's own layers."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from acf.ops import Conv2dGeometry, batch_norm_with_statistics, block_conv2d, block_conv2d_statistics
from acf.sparse import BlockLayout, BlockTopology

GEOMETRY = Conv2dGeometry((3, 3), stride=(2, 1), padding=(1, 1))
TOPOLOGY = BlockTopology.build(BlockLayout(8, 36, 4, 4), torch.tensor([0, 1, 1]), torch.tensor([3, 0, 8]))
EPS = 1e-5


def operands(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, bias = torch.randn(3, 4, 6, 5), torch.randn(3, 4, 4), torch.randn(8)
    return tuple(each.to(dtype).requires_grad_() for each in (x, weight, bias))  # type: ignore[return-value]


def normalised(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    y, mean, variance = block_conv2d_statistics(x, weight, TOPOLOGY, GEOMETRY, bias)
    return batch_norm_with_statistics(y, mean, variance, scale, shift, EPS)[0]


def expected(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    y = block_conv2d(x, weight, TOPOLOGY, GEOMETRY, bias)
    return functional.batch_norm(y, None, None, scale, shift, True, 0.0, EPS)


def test_statistics_are_those_of_the_output() -> None:
    x, weight, bias = operands()
    y, mean, variance = block_conv2d_statistics(x, weight, TOPOLOGY, GEOMETRY, bias)
    torch.testing.assert_close(y, block_conv2d(x, weight, TOPOLOGY, GEOMETRY, bias))
    torch.testing.assert_close(mean, y.mean((0, 2, 3)))
    torch.testing.assert_close(variance, y.var((0, 2, 3), correction=0))
    assert y.requires_grad
    assert not mean.requires_grad
    assert not variance.requires_grad


def test_statistics_of_sixteen_bit_outputs_are_float32_and_of_what_is_stored() -> None:
    with torch.no_grad():
        y, mean, variance = block_conv2d_statistics(*operands(torch.bfloat16)[:2], TOPOLOGY, GEOMETRY)
    assert (y.dtype, mean.dtype, variance.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    torch.testing.assert_close(mean, y.float().mean((0, 2, 3)))
    torch.testing.assert_close(variance, y.float().var((0, 2, 3), correction=0))


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


def test_given_statistics_are_used_and_returned_while_they_are_those_of_the_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = operands()
    y, mean, variance = block_conv2d_statistics(*inputs[:2], TOPOLOGY, GEOMETRY, inputs[2])
    with monkeypatch.context() as patched:
        patched.delattr(functional, "batch_norm")
        _, found_mean, found_variance = batch_norm_with_statistics(y, mean, variance, None, None, EPS)
    torch.testing.assert_close((found_mean, found_variance), (mean, variance), rtol=0.0, atol=0.0)
    with torch.no_grad():
        y.mul_(2.0)
    changed, found_mean, found_variance = batch_norm_with_statistics(y, mean, variance, None, None, EPS)
    torch.testing.assert_close(changed, functional.batch_norm(y, None, None, training=True))
    torch.testing.assert_close((found_mean, found_variance), (2 * mean, 4 * variance))


def test_statistics_from_elsewhere_are_taken_anew() -> None:
    y = torch.randn(4, 8, 3, 3)
    normalised_y, mean, _ = batch_norm_with_statistics(y, torch.zeros(8), torch.ones(8), None, None, EPS)
    torch.testing.assert_close(normalised_y, functional.batch_norm(y, None, None, training=True))
    torch.testing.assert_close(mean, y.mean((0, 2, 3)))
