"""The dense product of experts is the product of each expert's tokens with its own matrix, in every derivative."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from acf.errors import ArgumentError, TopologyError
from acf.ops import dense_experts
from acf.ops.dense_experts import host_bounds

# Torch's own forward mode loads its decompositions through torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")

ROUTINGS = {
    "uneven": [0, 3, 8, 11],
    "an expert without tokens": [0, 6, 6, 11],
    "all to one": [0, 0, 0, 11],
    "rows of no expert": [0, 2, 4, 9],
}


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Eleven tokens of six features, and three matrices of eight outputs."""
    torch.manual_seed(0)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((11, 6), (3, 8, 6)))  # type: ignore[return-value]


@pytest.mark.parametrize("offsets", ROUTINGS.values(), ids=ROUTINGS)
def test_every_expert_multiplies_its_own_tokens_forward_and_backward(offsets):
    x, weight = operands(torch.float32)
    y = dense_experts(x, weight, torch.tensor(offsets))
    products = [x[first:last] @ matrix.T for matrix, (first, last) in zip(weight, pairwise(offsets), strict=True)]
    expected = torch.cat([*products, x.new_zeros(11 - offsets[-1], 8)])
    torch.testing.assert_close(y, expected)
    output_grad = torch.randn_like(y)
    found, wanted = (torch.autograd.grad(each, (x, weight), output_grad) for each in (y, expected))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("offsets", ROUTINGS.values(), ids=ROUTINGS)
def test_derivatives_of_both_orders_and_modes_are_those_of_differences(offsets):
    bounds = torch.tensor(offsets)

    def product(x: Tensor, weight: Tensor) -> Tensor:
        return dense_experts(x, weight, bounds)

    assert torch.autograd.gradcheck(product, operands(torch.float64), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, operands(torch.float64))


def test_a_weight_of_another_dtype_is_cast_and_gets_its_gradient_in_its_own():
    x, weight = operands(torch.float32)
    y = dense_experts(x.bfloat16(), weight, torch.tensor(ROUTINGS["uneven"]))
    y.float().sum().backward()
    assert (y.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(weight.grad[0, 0], x[:3].detach().bfloat16().float().sum(0), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("offsets", [[1, 3, 8, 11], [0, 8, 3, 11], [0, 3, 8, 12]])
def test_offsets_that_do_not_ascend_over_the_tokens_are_refused(offsets):
    with pytest.raises(TopologyError, match=r"token offsets .* do not ascend from 0 to at most 11 tokens"):
        dense_experts(*operands(torch.float32), torch.tensor(offsets))


def test_a_cuda_graph_is_refused_since_it_cannot_wait_for_token_counts(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert host_bounds(torch.zeros(11, 6), torch.tensor(ROUTINGS["uneven"])) == ROUTINGS["uneven"]
    with pytest.raises(ArgumentError, match="CUDA graph cannot wait; make them block-sparse"):
        host_bounds(SimpleNamespace(is_cuda=True), torch.tensor(ROUTINGS["uneven"]))
