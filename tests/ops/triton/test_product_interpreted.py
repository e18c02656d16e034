"""Products of block-sparse linear layers agree with the reference."""

import pytest
import torch

from acf.ops import reference
from acf.ops.triton import product, weight_grad
from acf.ops.triton.configs import product_configs
from acf.ops.triton.tuning import LaunchConfig
from tests.ops.triton.interpreted import BLOCK_SIZES, assert_close, distinct, poisoned, random_topology


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block", BLOCK_SIZES)
@pytest.mark.parametrize("forward", [True, False], ids=["forward", "input_grad"])
def test_products_agree_with_the_reference(block: int, dtype: torch.dtype, forward: bool) -> None:
    topology = random_topology(4, 3, block)
    weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
    x = torch.randn(37, (3 if forward else 4) * block).to(dtype)
    meaning = reference.linear if forward else reference.linear_input_grad
    expected = meaning(x.double(), weight.double(), topology)
    bias = torch.randn(4 * block)
    for config in distinct(product_configs(block, 2, "tf32"), block):
        out = poisoned(*expected.shape, dtype=dtype)
        product.launch_product(config, x, weight, out, topology, forward)
        assert_close(out, expected, dtype)
        if forward:
            product.launch_product(config, x, weight, out, topology, True, bias)
            assert_close(out, expected + bias, dtype)


def test_packing_several_blocks_into_one_step_changes_nothing() -> None:
    topology = random_topology(5, 7, 16)
    weight = torch.randn(topology.block_rows.numel(), 16, 16)
    x = torch.randn(20, 7 * 16)
    expected = reference.linear(x.double(), weight.double(), topology)
    for kernel in ("descriptor", "gather"):
        out = poisoned(*expected.shape, dtype=torch.float32)
        config = LaunchConfig(kernel, tile=16, depth=16, pack=4)
        product.launch_product(config, x, weight, out, topology, True)
        assert_close(out, expected, torch.float32)


@pytest.mark.parametrize("kind", ["one block", "all blocks"])
@pytest.mark.parametrize("tokens", [1, 65])
def test_ops_take_sparse_and_full_topologies_and_any_token_count(kind: str, tokens: int) -> None:
    topology = random_topology(3, 5, 16, kind)
    weight = torch.randn(topology.block_rows.numel(), 16, 16)
    x, output_grad = torch.randn(tokens, 80), torch.randn(tokens, 48)
    assert_close(product.linear(x, weight, None, *topology), reference.linear(x, weight, topology), x.dtype)
    assert_close(
        product.linear_input_grad(output_grad, weight, *topology),
        reference.linear_input_grad(output_grad, weight, topology),
        x.dtype,
    )
    assert_close(
        weight_grad.linear_weight_grad(output_grad, x, *topology, x.dtype),
        reference.linear_weight_grad(output_grad, x, topology),
        x.dtype,
    )


def test_operands_that_are_not_contiguous_or_not_aligned_are_read_rightly() -> None:
    topology = random_topology(3, 2, 16)
    weight = torch.randn(16, 16, topology.block_rows.numel()).permute(2, 1, 0)
    transposed, misaligned = torch.randn(32, 21).T, torch.randn(1 + 21 * 32)[1:].view(21, 32)
    for x in (transposed, misaligned):
        assert_close(product.linear(x, weight, None, *topology), reference.linear(x, weight, topology), x.dtype)


def test_other_blocks_and_float64_run_the_reference() -> None:
    for block, dtype in ((8, torch.float32), (16, torch.float64)):
        topology = random_topology(3, 2, block)
        weight = torch.randn(topology.block_rows.numel(), block, block, dtype=dtype)
        x = torch.randn(7, 2 * block, dtype=dtype)
        assert torch.equal(product.linear(x, weight, None, *topology), reference.linear(x, weight, topology))


def test_a_nan_reaches_only_the_outputs_it_reaches_in_dense() -> None:
    topology = random_topology(4, 3, 16)
    weight = torch.randn(topology.block_rows.numel(), 16, 16)
    x = torch.randn(9, 48)
    x[4, 20] = float("nan")
    hit = torch.zeros(4, dtype=torch.bool)
    hit[topology.block_rows[topology.block_cols == 1].long()] = True
    result = product.linear(x, weight, None, *topology).isnan().view(9, 4, 16)
    assert torch.equal(result[4].all(1), hit)
    assert not result[torch.arange(9) != 4].any()
