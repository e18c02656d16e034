"""Products, weight gradients and gradient norms of experts agree with a loop over them."""

from dataclasses import replace

import pytest
import torch

from acf.ops import expert_loop, reference
from acf.ops.triton import experts
from acf.sparse import BlockLayout, BlockTopology
from tests.ops.triton.interpreted import assert_close, distinct, poisoned, random_topology


@pytest.mark.parametrize(
    ("block", "dtype", "offsets"),
    [
        (16, torch.float32, [0, 37, 37, 42]),  # no multiple of a tile, and an expert without tokens
        (16, torch.bfloat16, [0, 0, 70, 70]),  # all tokens to one expert
        (32, torch.bfloat16, [0, 3, 5, 20]),  # and rows of no expert after them
    ],
)
def test_products_of_experts_agree_with_the_loop(block: int, dtype: torch.dtype, offsets: list[int]) -> None:
    flat = random_topology(6, 3, block)
    layout = BlockLayout(6 * block, 3 * block, block, block, stacked=3)
    topology = BlockTopology.build(layout, flat.block_rows, flat.block_cols)
    bounds, tokens = torch.tensor(offsets, dtype=torch.int32), offsets[-1] + (5 if offsets[1] == 3 else 0)
    weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
    x, output_grad = (torch.randn(tokens, width * block).to(dtype) for width in (3, 2))
    for forward, operand in ((True, x), (False, output_grad)):
        meaning = expert_loop.linear if forward else expert_loop.input_grad
        one_matrix = reference.linear if forward else reference.linear_input_grad
        expected = meaning(operand.double(), weight.double(), topology, bounds, one_matrix)
        configs = distinct(experts.expert_product_configs(block, 2, "tf32"), block)
        for config in [*configs, replace(configs[0], swap=True)]:
            out = poisoned(*expected.shape, dtype=dtype)
            experts.launch_product(config, operand, weight, out, topology, bounds, forward)
            assert_close(out, expected, dtype)
    gradient = expert_loop.weight_grad(output_grad.double(), x.double(), topology, bounds, reference.linear_weight_grad)
    configs = distinct(experts.expert_weight_grad_configs(block, 2, "tf32"), block)
    for config in [*configs, *(replace(config, swap=True, pack=2) for config in configs[:2])]:
        out = poisoned(*gradient.shape, dtype=dtype)
        owners = experts.owners_of(topology, config.by_input)
        experts.launch_weight_grad(config, (output_grad, x), out, owners, bounds)
        assert_close(out, gradient, dtype)


@pytest.mark.parametrize("out_blocks", [1, 4], ids=["by column", "by row"])
def test_gradient_norms_of_experts_agree_with_the_loop(out_blocks: int) -> None:
    rows, cols = (each.int() for each in torch.nonzero(torch.ones(3 * out_blocks, 2)).T)
    x, output_grad = torch.randn(20, 32), torch.randn(20, out_blocks * 16)
    bounds = torch.tensor([0, 13, 13, 20], dtype=torch.int32)
    expected = expert_loop.gradient_norms(output_grad, x, (rows, cols), bounds, (16, 16), reference.gradient_norms)
    norms_found = experts.experts_gradient_norms(output_grad, x, rows, cols, bounds, [16, 16])
    torch.testing.assert_close(norms_found, expected)
