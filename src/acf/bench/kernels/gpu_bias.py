"""Linear layers with a bias against the same layers without one, and against dense layers with one."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from acf.bench.kernels.gpu_epilogues import check_epilogues
from acf.bench.kernels.gpu_timing import Passes, medians
from acf.bench.kernels.precompile import SHAPES_WITH_BIAS, random_tensor, random_topology
from acf.ops.linear import (
    block_linear_forward,
    block_linear_input_grad,
    block_linear_weight_and_bias_grad,
    block_linear_weight_grad,
)

BIAS_TOKENS, BIAS_BLOCK, BIAS_DENSITY = 8192, 128, 0.1

BIAS_AIM = 1.05
"""A layer with a bias takes at most so many times as long as one without."""


def measure_bias() -> dict[str, Any]:
    """The largest error of each kind of epilogue, and the times of every shape with and without a bias."""
    return {
        "largest_relative_errors": check_epilogues(),
        "layers": [_measure_shape(*shape) for shape in SHAPES_WITH_BIAS],
    }


def _measure_shape(outputs: int, inputs: int) -> dict[str, Any]:
    """Three passes with float32 bias: ``ms`` per pass, and the ratios that the aims are about."""
    topology = random_topology(outputs // BIAS_BLOCK, inputs // BIAS_BLOCK, BIAS_BLOCK, BIAS_DENSITY)
    x, gradient, dense = (
        random_tensor(BIAS_TOKENS, inputs),
        random_tensor(BIAS_TOKENS, outputs),
        random_tensor(outputs, inputs),
    )
    weight = random_tensor(topology.block_rows.numel(), BIAS_BLOCK, BIAS_BLOCK)
    bias = torch.randn(outputs, device="cuda")
    dense_bias = bias.bfloat16()
    passes: Passes = {
        "forward": partial(block_linear_forward, x, weight, None, *topology),
        "forward_with_bias": partial(block_linear_forward, x, weight, bias, *topology),
        "input_grad": partial(block_linear_input_grad, gradient, weight, *topology),
        "weight_grad": partial(block_linear_weight_grad, gradient, x, *topology, x.dtype),
        "weight_and_bias_grad": partial(
            block_linear_weight_and_bias_grad, gradient, x, *topology, x.dtype, torch.float32
        ),
        "dense_forward": partial(torch.nn.functional.linear, x, dense),
        "dense_forward_with_bias": partial(torch.nn.functional.linear, x, dense, dense_bias),
        "dense_input_grad": lambda: gradient @ dense,
        "dense_weight_grad": lambda: gradient.T @ x,
        "dense_bias_grad": lambda: gradient.sum(0),
    }
    times = medians(passes, repeat_ms=10)
    without = _total(times, ("forward", "input_grad", "weight_grad"))
    with_bias = _total(times, ("forward_with_bias", "input_grad", "weight_and_bias_grad"))
    dense_without = _total(times, ("dense_forward", "dense_input_grad", "dense_weight_grad"))
    dense_with_bias = _total(
        times, ("dense_forward_with_bias", "dense_input_grad", "dense_weight_grad", "dense_bias_grad")
    )
    row = {
        "outputs": outputs,
        "inputs": inputs,
        "with_over_without": with_bias / without,
        "aim": BIAS_AIM,
        "ratio_without": dense_without / without,
        "ratio_with": dense_with_bias / with_bias,
        "ms": times,
    }
    print(row, flush=True)
    return row


def _total(times: dict[str, float], names: Sequence[str]) -> float:
    return sum(times[name] for name in names)


def bias_lines(record: dict[str, Any] | None) -> list[str]:
    """One line for every shape."""
    return [
        f"bias {row['outputs']}x{row['inputs']} B={BIAS_BLOCK}: {row['with_over_without']:.3f} of the time without, "
        f"aim {row['aim']}; {row['ratio_with']:.2f}x of dense with bias, {row['ratio_without']:.2f}x without"
        for row in (record["layers"] if record else ())
    ]
