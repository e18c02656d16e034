"""The grouped product of experts is the product of each expert's tokens with its own matrix, in every derivative."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from acf.errors import TopologyError
from acf.ops import block_experts, block_experts_gradient_norms
from acf.ops.experts import block_experts_forward
from acf.sparse import BlockLayout, BlockTopology

# Torch's own forward mode loads its decompositions through torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")

ROUTINGS = {
    "uneven": [0, 3, 8, 11],
    "an expert without tokens": [0, 6, 6, 11],
    "all to one": [0, 0, 0, 11],
    "rows of no expert": [0, 2, 4, 9],
}


def random_experts(block: int, dtype: torch.dtype) -> tuple[BlockLayout, BlockTopology, Tensor, Tensor]:
    """Three experts of 2 x 3 blocks, slots in random order, packed weights and eleven tokens."""
    torch.manual_seed(0)
    layout = BlockLayout(6 * block, 3 * block, block, block, stacked=3)
    chosen = torch.nonzero(torch.rand(6, 3) < 0.6)
    chosen = chosen[torch.randperm(chosen.shape[0])]
    topology = BlockTopology.build(layout, chosen[:, 0], chosen[:, 1])
    weight = torch.randn(chosen.shape[0], block, block, dtype=dtype, requires_grad=True)
    return layout, topology, weight, torch.randn(11, 3 * block, dtype=dtype, requires_grad=True)


def one_by_one(x: Tensor, matrices: Tensor, offsets: list[int]) -> Tensor:
    products = [x[first:last] @ matrix.T for matrix, (first, last) in zip(matrices, pairwise(offsets), strict=True)]
    return torch.cat([*products, x.new_zeros(x.shape[0] - offsets[-1], matrices.shape[1])])


@pytest.mark.parametrize("offsets", ROUTINGS.values(), ids=ROUTINGS)
@pytest.mark.parametrize(("block", "dtype"), [(3, torch.float64), (16, torch.float32)], ids=["reference", "native"])
def test_every_expert_multiplies_its_own_tokens_forward_and_backward(block, dtype, offsets):
    layout, topology, weight, x = random_experts(block, dtype)
    y = block_experts(x, weight, topology, torch.tensor(offsets))
    matrices = layout.unpack(weight, topology.block_rows, topology.block_cols).reshape(3, 2 * block, -1)
    expected = one_by_one(x, matrices, offsets)
    torch.testing.assert_close(y, expected)
    output_grad = torch.randn_like(y)
    for found, wanted in zip(
        torch.autograd.grad(y, (x, weight), output_grad),
        torch.autograd.grad(expected, (x, weight), output_grad),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("block", "dtype"), [(3, torch.float64), (16, torch.float32)], ids=["reference", "native"])
def test_gradient_norms_are_those_of_each_expert_s_dense_gradient(block, dtype):
    layout, _, _, x = random_experts(block, dtype)
    output_grad, offsets = torch.randn(11, 2 * block, dtype=dtype), [0, 6, 6, 11]
    parts = [output_grad[first:last].T @ x[first:last] for first, last in pairwise(offsets)]
    rows, cols = torch.tensor([5, 0, 2, 4, 1]), torch.tensor([2, 1, 0, 0, 2])
    norms = block_experts_gradient_norms(output_grad, x.detach(), rows, cols, torch.tensor(offsets), (block, block))
    expected = layout.block_norms(torch.cat(parts).detach())[rows, cols]
    torch.testing.assert_close(norms, expected)
    assert norms[2] == 0.0  # a block of the expert without tokens


def test_derivatives_of_both_modes_and_of_second_order_are_right():
    layout, topology, _, _ = random_experts(2, torch.float64)
    weight = torch.randn(topology.block_rows.numel(), 2, 2, dtype=torch.float64, requires_grad=True)
    x = torch.randn(5, layout.cols, dtype=torch.float64, requires_grad=True)

    def product(x: Tensor, weight: Tensor) -> Tensor:
        return block_experts(x, weight, topology, torch.tensor([0, 2, 2, 4]))

    assert torch.autograd.gradcheck(product, (x, weight), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, (x, weight))


def test_per_sample_gradients_of_the_weight_come_from_vmap():
    _, topology, weight, x = random_experts(3, torch.float64)
    offsets = torch.tensor([0, 3, 8, 11])

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return block_experts(x, weight, topology, offsets).square().sum()

    batch = torch.stack([x.detach(), 2 * x.detach()])
    together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight.detach(), batch)
    torch.testing.assert_close(together[1], torch.func.grad(loss)(weight.detach(), batch[1]))


def test_a_weight_of_another_dtype_has_a_gradient_of_its_own_dtype():
    _, topology, weight, x = random_experts(16, torch.float32)
    y = block_experts(x.bfloat16(), weight, topology, torch.tensor([0, 3, 8, 11]))
    y.sum().backward()
    assert y.dtype is torch.bfloat16
    assert weight.grad.dtype is torch.float32


def test_an_input_of_another_width_is_refused_by_its_shape():
    _, topology, weight, _ = random_experts(3, torch.float64)
    with pytest.raises(TopologyError, match=r"x is \[4, 6\] and these experts take \[tokens, 9\]"):
        block_experts(torch.randn(4, 6, dtype=torch.float64), weight, topology, torch.tensor([0, 1, 2, 4]))


@pytest.mark.parametrize("offsets", [[1, 3, 8, 11], [0, 8, 3, 11], [0, 3, 8, 12]])
def test_offsets_that_do_not_divide_the_tokens_are_refused(offsets):
    _, topology, weight, x = random_experts(3, torch.float64)
    with pytest.raises(TopologyError, match="do not ascend from 0 to at most 11 tokens"):
        block_experts_forward(x, weight, *topology, torch.tensor(offsets))
