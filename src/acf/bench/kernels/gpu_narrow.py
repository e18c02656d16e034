"""Layers that are hard to speed up: narrow ones with many tokens, 1x1, strided and few-channel convolutions."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from acf.bench.kernels.gpu_timing import Passes, dense_conv_passes, medians, sparse_conv_passes
from acf.bench.kernels.precompile import (
    NARROW_CONVS,
    NARROW_DENSITY,
    NARROW_LINEAR,
    NARROW_TOKENS,
    ConvCase,
    random_tensor,
    random_topology,
)
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad

LINEAR_AIM, CONV_AIM = 2.5, 1.0
"""Layers of 1,024 channels: 2.5 times as fast as dense; these convolutions: never slower."""


def measure_narrow() -> list[dict[str, Any]]:
    """Forward, input and weight gradient of every case at 90 % against the dense libraries."""
    torch.backends.cudnn.benchmark = True
    rows = [_measure_linear(*case) for case in NARROW_LINEAR]
    return rows + [_measure_conv(case, block) for case in NARROW_CONVS for block in case.blocks]


def _measure_linear(outputs: int, inputs: int, block: int) -> dict[str, Any]:
    topology = random_topology(outputs // block, inputs // block, block, NARROW_DENSITY)
    x, gradient, dense = (
        random_tensor(*shape) for shape in ((NARROW_TOKENS, inputs), (NARROW_TOKENS, outputs), (outputs, inputs))
    )
    weight = random_tensor(topology.block_rows.numel(), block, block)
    passes: Passes = {
        "forward": partial(block_linear_forward, x, weight, None, *topology),
        "input_grad": partial(block_linear_input_grad, gradient, weight, *topology),
        "weight_grad": partial(block_linear_weight_grad, gradient, x, *topology, x.dtype),
        "dense_forward": lambda: x @ dense.T,
        "dense_input_grad": lambda: gradient @ dense,
        "dense_weight_grad": lambda: gradient.T @ x,
    }
    return _row(f"linear {inputs}->{outputs}, {NARROW_TOKENS} tokens", block, LINEAR_AIM, medians(passes, repeat_ms=10))


def _measure_conv(case: ConvCase, block: int) -> dict[str, Any]:
    geometry, channels_last = case.geometry, torch.channels_last
    topology = random_topology(
        case.out_channels // block, geometry.taps * case.in_channels // block, block, NARROW_DENSITY
    )
    x = random_tensor(case.batch, case.in_channels, case.size, case.size).contiguous(memory_format=channels_last)
    out_size = geometry.output_size(case.size, case.size)
    gradient = random_tensor(case.batch, case.out_channels, *out_size).contiguous(memory_format=channels_last)
    dense = random_tensor(case.out_channels, case.in_channels, *geometry.kernel_size)
    weight = random_tensor(topology.block_rows.numel(), block, block)
    library = dense_conv_passes(x, gradient, dense.contiguous(memory_format=channels_last), geometry)
    times = medians(library | sparse_conv_passes(x, gradient, weight, topology, geometry), repeat_ms=10)
    return _row(f"conv {case.name}", block, CONV_AIM, times)


def _row(layer: str, block: int, aim: float, times: dict[str, float]) -> dict[str, Any]:
    ours = {name: time for name, time in times.items() if not name.startswith("dense_")}
    ratio = sum(times[f"dense_{name}"] for name in ours) / sum(ours.values())
    by_pass = {name: times[f"dense_{name}"] / time for name, time in ours.items()}
    row = {"layer": layer, "block": block, "ratio": ratio, "aim": aim, "ratio_by_pass": by_pass, "ms": times}
    print(row, flush=True)
    return row


def narrow_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line for every case."""
    lines = []
    for row in rows:
        passes = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in row["ratio_by_pass"].items())
        lines.append(f"{row['layer']} B={row['block']} 90%: {row['ratio']:.2f}x, aim {row['aim']} ({passes})")
    return lines
