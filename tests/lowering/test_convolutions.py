"""Convolutions as matrix products: checked against torch's own convolution and its gradients."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.lowering import matrix_products
from acf.sparse import conv_weight_to_matrix
from acf.trace import BitTensor, Trace, TracedConv, TracedOp

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


def pattern(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return (torch.rand(*shape, generator=generator, dtype=torch.float64) < 0.5).double()


def products(phase: str, conv: TracedConv, a: torch.Tensor, b: torch.Tensor) -> list[np.ndarray]:
    """The integer results of all matrix products of one operation."""
    tensors = {"a": BitTensor.from_array(a), "b": BitTensor.from_array(b)}
    gemms = matrix_products(Trace([], tensors), TracedOp("conv", phase, "a", "b", conv=conv))
    results = [gemm.a.astype(int) @ gemm.b.astype(int) for gemm in gemms]
    assert len(gemms) == len(results)
    return results


@given(PAIR, PAIR, PAIR, PAIR, st.sampled_from([1, 2]), st.integers(0, 10_000))
def test_every_phase_multiplies_exactly_what_torch_does(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding_plus_one: tuple[int, int],
    groups: int,
    seed: int,
) -> None:
    padding = (padding_plus_one[0] - 1, padding_plus_one[1] - 1)
    size = (7, 8)
    conv = TracedConv(kernel, stride, padding, dilation, input_size=size, groups=groups)
    generator = torch.Generator().manual_seed(seed)
    x = pattern(generator, 2, 4, *size).requires_grad_()
    weight = pattern(generator, 6, 4 // groups, *kernel).requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation, groups)
    assert tuple(y.shape[2:]) == conv.output_map
    gradient = pattern(generator, *y.shape)
    y.backward(gradient)
    matrix = conv_weight_to_matrix(weight.detach())

    forward = products("forward", conv, x.detach(), matrix)
    assert sum(int(part.sum()) for part in forward) == int(y.sum())
    outputs = np.concatenate(forward, axis=1)
    assert np.array_equal(outputs, y.detach().permute(0, 2, 3, 1).reshape(-1, 6).numpy())

    weight_grad = np.concatenate(products("weight_grad", conv, gradient, x.detach()), axis=0)
    assert np.array_equal(weight_grad, conv_weight_to_matrix(weight.grad).numpy())

    input_grad = products("input_grad", conv, gradient, matrix)
    assert sum(int(part.sum()) for part in input_grad) == int(x.grad.sum())
    ours = np.sort(np.concatenate([part.ravel() for part in input_grad] or [np.zeros(0, dtype=int)]))
    theirs = np.sort(x.grad.numpy().ravel().astype(int))
    # Pixels that no kernel tap reaches have no product; every other gradient appears once.
    assert np.array_equal(ours, theirs[theirs.size - ours.size :])


def test_a_stride_does_not_add_zeros_to_the_input_gradient() -> None:
    conv = TracedConv((3, 3), (2, 2), (1, 1), input_size=(8, 8))
    gradient, weight = torch.ones(1, 16, 4, 4), torch.ones(16, 9 * 8)
    tensors = {"a": BitTensor.from_array(gradient), "b": BitTensor.from_array(weight)}
    gemms = list(matrix_products(Trace([], tensors), TracedOp("conv", "input_grad", "a", "b", conv=conv)))
    assert [gemm.k for gemm in gemms] == [4 * 16, 2 * 16, 2 * 16, 16]
    assert sum(gemm.m for gemm in gemms) == 64
    dilated_macs = 64 * 9 * 16 * 8
    assert sum(gemm.dense_macs for gemm in gemms) == dilated_macs // 4


def test_a_product_says_its_phase_and_how_often_its_channels_repeat() -> None:
    conv = TracedConv((3, 3), stride=(2, 2), padding=(1, 1), input_size=(6, 6))
    tensors = {
        "x": BitTensor.from_array(np.ones((2, 4, 6, 6))),
        "w": BitTensor.from_array(np.ones((8, 9 * 4))),
        "g": BitTensor.from_array(np.ones((2, 8, 3, 3))),
    }
    (forward,) = matrix_products(Trace([], tensors), TracedOp("conv", "forward", "x", "w", conv=conv))
    (weight_grad,) = matrix_products(Trace([], tensors), TracedOp("conv", "weight_grad", "g", "x", conv=conv))
    input_grads = list(matrix_products(Trace([], tensors), TracedOp("conv", "input_grad", "g", "w", conv=conv)))
    assert (forward.phase, forward.k // forward.taps) == ("forward", 4)
    assert (weight_grad.phase, weight_grad.n // weight_grad.taps) == ("weight_grad", 4)
    assert sum(gemm.taps for gemm in input_grads) == 9  # a stride splits the taps among its residues
    assert {(gemm.phase, gemm.k // gemm.taps) for gemm in input_grads} == {("input_grad", 8)}
