"""Which layers the native CPU kernels take, and the strips of tokens they take them in."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.ops import reference
from acf.ops.cpu import kernels
from acf.ops.cpu.call import STRIP_TOKENS, strip_tokens
from acf.ops.linear import block_linear_forward
from acf.sparse import BlockLayout, BlockTopology


def topology_of(layout: BlockLayout, density: float) -> BlockTopology:
    """About ``density`` of the blocks."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(layout.grid_rows, layout.grid_cols, generator=generator) < density
    return BlockTopology.from_mask(layout, mask)


@pytest.mark.parametrize(
    ("dtype", "block_shape"),
    [(torch.float64, (16, 16)), (torch.float32, (16, 32)), (torch.float32, (12, 12))],
)
def test_what_the_kernels_do_not_know_takes_the_reference(dtype: torch.dtype, block_shape: tuple[int, int]) -> None:
    height, width = block_shape
    layout = BlockLayout(3 * height, 2 * width, height, width)
    topology = BlockTopology.from_mask(layout, torch.tensor([[1, 0], [0, 1], [1, 1]], dtype=torch.bool))
    x, weight = torch.randn(9, layout.cols, dtype=dtype), torch.randn(4, height, width, dtype=dtype)
    torch.testing.assert_close(block_linear_forward(x, weight, None, *topology), reference.linear(x, weight, topology))
    norms = kernels.block_gradient_norms(
        torch.randn(9, layout.rows, dtype=dtype), x, topology.block_rows, topology.block_cols, [height, width]
    )
    assert norms.dtype == torch.float32


@pytest.mark.parametrize(
    ("block", "dtype", "instructions", "dense_instructions", "native_density", "dense_density"),
    [
        (8, torch.float32, "avx512", "avx512bf16", 0.5, 1.0),
        (8, torch.bfloat16, "avx512bf16", "avx512bf16", 0.5, 1.0),
        (16, torch.bfloat16, "avx512", "avx512bf16", 0.3, 1.0),
        (8, torch.bfloat16, "avx512", "avx512bf16", 0.2, 0.6),
        (32, torch.bfloat16, "avx512bf16", "amx", 0.05, 0.5),
        (16, torch.bfloat16, "amx", "amx", 0.05, 0.5),
    ],
)
def test_dense_layers_take_the_dense_product_where_that_is_quicker(
    block: int,
    dtype: torch.dtype,
    instructions: str,
    dense_instructions: str,
    native_density: float,
    dense_density: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_dense_instructions", lambda: dense_instructions)
    monkeypatch.setattr(kernels, "instruction_set", lambda: instructions)
    layout = BlockLayout(8 * block, 8 * block, block, block)
    assert kernels._pays(block, dtype, topology_of(layout, native_density))
    assert not kernels._pays(block, dtype, topology_of(layout, dense_density))


@pytest.mark.parametrize(("block", "instructions"), [(16, "avx512bf16"), (32, "amx")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_of_larger_blocks_run_natively_at_any_density(
    dtype: torch.dtype, block: int, instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function in ("instruction_set", "_dense_instructions"):
        monkeypatch.setattr(kernels, function, lambda: instructions)
    topology = topology_of(BlockLayout(128, 128, block, block), 1.0)
    assert kernels._pays(block, dtype, topology)


@given(tokens=st.integers(0, 5000), threads=st.integers(1, 16))
def test_strips_of_tokens_are_short_multiples_of_eight(tokens: int, threads: int) -> None:
    strip = strip_tokens(tokens, threads)
    assert strip % 8 == 0
    assert 8 <= strip <= STRIP_TOKENS


@pytest.mark.parametrize(("tokens", "strips"), [(100, 2), (150, 4), (320, 6), (2048, 32)])
def test_strips_of_tokens_pair_off(tokens: int, strips: int) -> None:
    assert -(-tokens // strip_tokens(tokens, threads=1)) == strips
