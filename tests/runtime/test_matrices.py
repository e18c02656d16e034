"""Products as matrix multiplications give what torch's autograd gives."""

import numpy as np
import pytest
import torch

from acf import runtime
from acf.runtime.matrices import join_results, split_product
from acf.trace.op import PHASES, TracedConv
from tests.runtime.products import FILTERS, SPARSE, STRIDED

GEOMETRIES = (
    STRIDED,
    TracedConv(input_size=(6, 5), kernel_size=(3, 2), padding=(1, 1)),
    TracedConv(input_size=(7, 7), kernel_size=(2, 3), stride=(3, 2), dilation=(2, 2)),
)


def expected_convolution(conv: TracedConv, x: torch.Tensor, blocks: np.ndarray, phase: str) -> list[np.ndarray]:
    """Both operands of a phase and its result, by torch."""
    matrix = torch.from_numpy(FILTERS.to_matrix(blocks))
    weight = matrix.reshape(FILTERS.rows, *conv.kernel_size, -1).permute(0, 3, 1, 2).contiguous().requires_grad_()
    x = x.requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, None, conv.stride, conv.padding, conv.dilation)
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    input_grad, weight_grad = torch.autograd.grad(y, (x, weight), gradient)
    packed = FILTERS.from_matrix(weight_grad.permute(0, 2, 3, 1).reshape(FILTERS.rows, -1).numpy())
    values = {
        "forward": [x.detach().numpy(), blocks, y.detach().numpy()],
        "input_grad": [gradient.numpy(), blocks, input_grad.numpy()],
        "weight_grad": [gradient.numpy(), x.detach().numpy(), packed],
    }
    return values[phase]


@pytest.mark.parametrize("conv", GEOMETRIES, ids=str)
@pytest.mark.parametrize("phase", PHASES)
def test_a_convolution_in_every_pass_is_that_of_torch(conv: TracedConv, phase: str) -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((2, 8, *conv.input_size)).astype(np.float32))
    blocks = rng.standard_normal(FILTERS.shape).astype(np.float32)
    *operands, expected = expected_convolution(conv, x, blocks, phase)
    product = runtime.Product(phase=phase, rows=2, weight=FILTERS, conv=conv)
    result = join_results(product, [each.a @ each.b for each in split_product(product, operands)])
    assert [argument.shape for argument in product.arguments] == [each.shape for each in (*operands, expected)]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_a_weight_gradient_keeps_the_present_blocks() -> None:
    rng = np.random.default_rng(0)
    gradient, x = (rng.standard_normal((5, width)).astype(np.float32) for width in (16, 24))
    product = runtime.Product(phase="weight_grad", rows=5, weight=SPARSE)
    (matrices,) = split_product(product, (gradient, x))
    assert matrices.needed is not None
    assert matrices.needed.sum() == 4 * 64
    result = join_results(product, [matrices.a @ matrices.b])
    np.testing.assert_allclose(result[1], (gradient.T @ x)[:8, 16:], rtol=1e-5)
