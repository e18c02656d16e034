"""What the tests in Triton's interpreter share: random topologies, poisoned results and small launch configurations."""

import os
from dataclasses import asdict, replace
from itertools import combinations
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from acf.sparse import BlockLayout, BlockTopology

if TYPE_CHECKING:
    from acf.ops.triton.tuning import LaunchConfig

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
BLOCK_SIZES = (16, 32, 64, 128)
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 6e-3}


def random_topology(rows: int, cols: int, block: int, kind: str = "mixed") -> BlockTopology:
    """Slots in random order: an empty and a full row among random ones, or one block only, or all."""
    mask = torch.rand(rows, cols) < 0.4
    mask[0], mask[-1] = False, True
    if kind == "one block":
        mask = torch.zeros(rows, cols, dtype=torch.bool)
        mask[rows // 2, cols // 2] = True
    if kind == "all blocks":
        mask = torch.ones(rows, cols, dtype=torch.bool)
    chosen = torch.nonzero(mask)[torch.randperm(int(mask.sum()))]
    return BlockTopology.build(BlockLayout(rows * block, cols * block, block, block), chosen[:, 0], chosen[:, 1])


def poisoned(*shape: int, dtype: torch.dtype) -> Tensor:
    """NaN everywhere: an element that no program writes shows."""
    return torch.full(shape, float("nan"), dtype=dtype)


def assert_close(result: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Relative error of the Frobenius norm, in float64; NaN never passes."""
    norm = expected.double().norm()
    error = (result.double() - expected.double()).norm() / norm
    assert error < TOLERANCE[dtype], f"relative error {error:.2e}"


def small(config: "LaunchConfig", block: int) -> "LaunchConfig":
    """The configuration with tiles small enough for the interpreter; what it computes is the same."""
    return replace(config, tile=min(config.tile, 32), depth=min(config.depth, 32, block))


def distinct(configs: tuple["LaunchConfig", ...], block: int) -> list["LaunchConfig"]:
    """The different computations among ``configs``: warps and stages mean nothing to the interpreter."""
    return list(dict.fromkeys(replace(small(config, block), warps=4, stages=3) for config in configs))


def pairwise(configs: list["LaunchConfig"]) -> list["LaunchConfig"]:
    """Configurations in which any two fields take every pair of values that they take in ``configs``, greedily few."""
    pairs = {config: set(combinations(asdict(config).items(), 2)) for config in configs}
    chosen, missing = [], set().union(*pairs.values())
    while missing:
        chosen.append(max(configs, key=lambda config: len(pairs[config] & missing)))
        missing -= pairs[chosen[-1]]
    return chosen


def fused_or_exact(configs: tuple["LaunchConfig", ...], block: int, dtype: torch.dtype) -> list["LaunchConfig"]:
    """`distinct` without separate products in 16 bits: what they store between them is truncated in the interpreter."""
    return [each for each in distinct(configs, block) if dtype == torch.float32 or each.kernel != "separate"]
