"""The block-sparse linear product against the dense product with a masked weight, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acf.ops import block_linear
from acf.sparse import BlockLayout, BlockTopology

EXACT = {"rtol": 1e-12, "atol": 1e-12}  # float64 sums of a few dozen products
MASKS = {
    "full": [[1, 1, 1], [1, 1, 1]],
    "one block": [[0, 0, 0], [0, 1, 0]],
    "empty row": [[0, 0, 0], [1, 0, 1]],
    "empty columns": [[0, 1, 0], [0, 1, 0]],
    "no block": [[0, 0, 0], [0, 0, 0]],
}


def shuffled(topology: BlockTopology, layout: BlockLayout) -> BlockTopology:
    """The same blocks in other slots, as after blocks have moved."""
    order = torch.randperm(topology.block_rows.numel())
    return BlockTopology.build(layout, topology.block_rows[order], topology.block_cols[order])


def assert_agrees_with_the_masked_dense_product(layout: BlockLayout, mask: Tensor, batch: tuple[int, ...]) -> None:
    topology = shuffled(BlockTopology.from_mask(layout, mask), layout)
    dense = torch.randn(layout.rows, layout.cols, dtype=torch.float64)
    elements = mask.repeat_interleave(layout.block_height, 0).repeat_interleave(layout.block_width, 1)
    x = torch.randn(*batch, layout.cols, dtype=torch.float64, requires_grad=True)
    x_dense = x.detach().clone().requires_grad_()
    dense.requires_grad_()
    weight = layout.pack(dense.detach(), topology.block_rows, topology.block_cols).requires_grad_()

    y = block_linear(x, weight, topology)
    expected = torch.nn.functional.linear(x_dense, dense * elements)
    output_grad = torch.randn_like(expected)
    y.backward(output_grad)
    expected.backward(output_grad)

    torch.testing.assert_close(y, expected, **EXACT)
    torch.testing.assert_close(x.grad, x_dense.grad, **EXACT)
    expected_grad = layout.pack(dense.grad, topology.block_rows, topology.block_cols)
    torch.testing.assert_close(weight.grad, expected_grad, **EXACT)


@pytest.mark.parametrize("batch", [(5,), (), (2, 3), (2, 1, 3), (0,)], ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_outputs_and_both_gradients_are_those_of_the_masked_dense_product(mask, batch):
    layout = BlockLayout(rows=8, cols=6, block_height=4, block_width=2)
    assert_agrees_with_the_masked_dense_product(layout, torch.tensor(mask, dtype=torch.bool), batch)


@given(
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    block=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    density=st.sampled_from([0.1, 0.5, 0.9]),
    seed=st.integers(0, 2**31),
)
def test_any_random_mask_and_block_shape_agrees_with_the_masked_dense_product(grid, block, density, seed):
    torch.manual_seed(seed)
    layout = BlockLayout(grid[0] * block[0], grid[1] * block[1], *block)
    assert_agrees_with_the_masked_dense_product(layout, torch.rand(grid) < density, (3,))


def test_numerical_gradients_agree():
    layout = BlockLayout(rows=4, cols=6, block_height=2, block_width=3)
    topology = BlockTopology.build(layout, torch.tensor([1, 0]), torch.tensor([0, 0]))
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, weight: block_linear(x, weight, topology), (x, weight))


@pytest.mark.parametrize("batch", [(3,), (2, 3)], ids=str)
def test_a_bias_and_its_gradient_are_those_of_adding_it(batch):
    topology = BlockTopology.build(BlockLayout(8, 12, 4, 3), torch.tensor([1, 0]), torch.tensor([3, 0]))
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((*batch, 12), (2, 4, 3), (8,))]
    y, expected = block_linear(*leaves[:2], topology, leaves[2]), block_linear(*leaves[:2], topology) + leaves[2]
    torch.testing.assert_close(y, expected)
    gradient = torch.randn_like(y)
    for ours, theirs in zip(*(torch.autograd.grad(out, leaves, gradient) for out in (y, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_bias_in_float32_keeps_its_dtype_beside_bfloat16_operands():
    topology = BlockTopology.build(BlockLayout(32, 16, 16, 16), torch.tensor([1]), torch.tensor([0]))
    x, weight = torch.randn(5, 16).bfloat16(), torch.randn(1, 16, 16).bfloat16()
    bias = torch.randn(32, requires_grad=True)
    y = block_linear(x, weight, topology, bias)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y[:, :16], bias[:16].expand(5, 16).bfloat16())  # a block row without blocks
    y.sum().backward()
    torch.testing.assert_close(bias.grad, torch.full((32,), 5.0))


def test_a_weight_in_float32_beside_a_bfloat16_input_is_cast_and_its_gradient_is_not_rounded():
    topology = BlockTopology.build(BlockLayout(32, 16, 16, 16), torch.tensor([1, 0]), torch.tensor([0, 0]))
    weight = torch.randn(2, 16, 16, requires_grad=True)
    x = torch.randn(64, 16).bfloat16()
    y = block_linear(x, weight, topology)
    torch.testing.assert_close(y, block_linear(x, weight.bfloat16(), topology))
    y.sum().backward()
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(weight.grad[0], x.float().sum(0).expand(16, 16), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("wanted", ["bias", "weight and bias"])
def test_only_the_parameters_gradients_that_are_asked_for_are_computed(wanted, gradient_ops_of):
    topology = BlockTopology.build(BlockLayout(4, 4, 2, 2), torch.tensor([1, 0]), torch.tensor([0, 0]))
    weight, bias = torch.randn(2, 2, 2, requires_grad="weight" in wanted), torch.randn(4, requires_grad=True)
    ops = gradient_ops_of(lambda: block_linear(torch.randn(3, 4), weight, topology, bias).sum().backward())
    assert ops == {"acf::block_linear_weight_and_bias_grad" if "weight" in wanted else "acf::bias_grad"}


@pytest.mark.parametrize("wanted", ["input", "weight"])
def test_only_the_gradient_that_is_asked_for_is_computed(wanted, gradient_ops_of):
    layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    topology = BlockTopology.build(layout, torch.tensor([1, 0]), torch.tensor([0, 0]))
    x = torch.randn(3, 4, requires_grad=wanted == "input")
    weight = torch.randn(2, 2, 2, requires_grad=wanted == "weight")
    ops = gradient_ops_of(lambda: block_linear(x, weight, topology).sum().backward())
    assert ops == {f"acf::block_linear_{wanted}_grad"}


def test_an_input_that_is_not_contiguous_gives_the_same_output():
    layout = BlockLayout(rows=4, cols=6, block_height=2, block_width=3)
    topology = BlockTopology.build(layout, torch.tensor([1, 0]), torch.tensor([0, 1]))
    weight = torch.randn(2, 2, 3, dtype=torch.float64)
    x = torch.randn(6, 3, 5, dtype=torch.float64).permute(2, 1, 0)
    y = block_linear(x, weight, topology)
    torch.testing.assert_close(y, block_linear(x.contiguous(), weight, topology), **EXACT)
