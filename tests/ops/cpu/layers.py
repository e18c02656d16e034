"""Random layers, and how far a native result may be from the float64 reference."""

import os
import shutil

import pytest
import torch
from torch import Tensor

from acf.sparse import BlockLayout, BlockTopology

RELATIVE_ERROR = {torch.float32: 3e-6, torch.bfloat16: 8e-3}

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++")),
    reason="no C++ compiler",
)


def random_topology(layout: BlockLayout, density: float, generator: torch.Generator) -> BlockTopology:
    """About ``density`` of the blocks, slots in random order."""
    mask = torch.rand(layout.grid_rows, layout.grid_cols, generator=generator) < density
    rows, cols = torch.nonzero(mask, as_tuple=True)
    order = torch.randperm(rows.numel(), generator=generator)
    return BlockTopology.build(layout, rows[order], cols[order])


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert actual.shape == expected.shape
    error = torch.linalg.vector_norm(actual.double() - expected)
    assert error <= RELATIVE_ERROR[dtype] * torch.linalg.vector_norm(expected) + 1e-30


def layer(
    tokens: int = 96, block: int = 16, grid: tuple[int, int] = (6, 4), density: float = 0.5
) -> tuple[Tensor, Tensor, Tensor, BlockTopology]:
    """``x``, ``output_grad``, ``weight`` and topology of a float32 layer."""
    generator = torch.Generator().manual_seed(7)
    layout = BlockLayout(grid[0] * block, grid[1] * block, block, block)
    topology = random_topology(layout, density, generator)
    x = torch.randn(tokens, layout.cols, generator=generator)
    output_grad = torch.randn(tokens, layout.rows, generator=generator)
    weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator)
    return x, output_grad, weight, topology
