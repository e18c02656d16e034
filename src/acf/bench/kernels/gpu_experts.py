"""The grouped products of a mixture of experts against torch's own grouped product, pass by pass."""

from functools import partial
from typing import Any

import torch

from acf.bench.kernels.gpu_timing import Passes, medians
from acf.bench.kernels.precompile import random_tensor
from acf.ops.experts import block_experts_forward, block_experts_input_grad, block_experts_weight_grad
from acf.sparse import BlockLayout, BlockTopology

EXPERTS, TOKENS, DENSITY = 8, 32768, 0.1
"""Tokens of all experts together: 16,384 of a batch, each sent to two experts."""

SHAPES = {"gate_up": (11264, 2048), "down": (2048, 5632)}
"""Outputs and inputs of one expert's layers."""

EXPERT_BLOCKS = (128, 64)


def measure_experts() -> list[dict[str, Any]]:
    """Three passes of every shape and block at 90 %, tokens routed at random."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.bincount(torch.randint(EXPERTS, (TOKENS,), generator=generator), minlength=EXPERTS)
    ends = counts.cumsum(0).int().cuda()
    return [_measure(name, *shape, block, ends) for name, shape in SHAPES.items() for block in EXPERT_BLOCKS]


def _measure(name: str, outputs: int, inputs: int, block: int, ends: torch.Tensor) -> dict[str, Any]:
    layout = BlockLayout(EXPERTS * outputs, inputs, block, block, stacked=EXPERTS)
    places = torch.randperm(layout.block_count)[: round(DENSITY * layout.block_count)].cuda()
    topology = BlockTopology.build(layout, places // layout.grid_cols, places % layout.grid_cols)
    offsets = torch.cat([ends.new_zeros(1), ends])
    x, gradient = random_tensor(TOKENS, inputs), random_tensor(TOKENS, outputs)
    dense, weight = random_tensor(EXPERTS, outputs, inputs), random_tensor(len(places), block, block)
    passes: Passes = {
        "forward": partial(block_experts_forward, x, weight, *topology, offsets),
        "input_grad": partial(block_experts_input_grad, gradient, weight, *topology, offsets),
        "weight_grad": partial(block_experts_weight_grad, gradient, x, *topology, offsets, x.dtype, None),
        "dense_forward": lambda: torch._grouped_mm(x, dense.transpose(1, 2), offs=ends),
        "dense_input_grad": lambda: torch._grouped_mm(gradient, dense, offs=ends),
        "dense_weight_grad": lambda: torch._grouped_mm(gradient.T, x, offs=ends),
    }
    times = medians(passes, repeat_ms=10)
    kinds = ("forward", "input_grad", "weight_grad")
    ratios = {kind: times[f"dense_{kind}"] / times[kind] for kind in kinds}
    ours, library = sum(times[kind] for kind in kinds), sum(times[f"dense_{kind}"] for kind in kinds)
    row = {"layer": name, "block": block, "ratio": library / ours, "ratio_by_pass": ratios, "ms": times}
    print(row, flush=True)
    return row


def experts_lines(rows: list[dict[str, Any]]) -> list[str]:
    """One line for every layer and block."""
    return [
        f"experts {row['layer']} B={row['block']} 90%: {row['ratio']:.2f}x ("
        + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in row["ratio_by_pass"].items())
        + ")"
        for row in rows
    ]
