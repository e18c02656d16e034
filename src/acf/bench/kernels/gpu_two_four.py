"""Linear 2:4 layers through cuSPARSELt and through masked dense products, against a dense layer."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import acf
from acf.bench.kernels.gpu_timing import medians
from acf.ops.dense import dense_products

TOKENS = 8192
SHAPES = ((4096, 4096), (4096, 11008), (8192, 28672))
"""Outputs and inputs."""

SPECS = {
    "bdwp": acf.NMSparsity(2, 4, "bdwp"),
    "sr-ste": acf.NMSparsity(2, 4, "sr-ste"),
    "transposable": acf.NMSparsity(2, 4, "bdwp", transposable=True),
}


def measure_two_four() -> list[dict[str, Any]]:
    """Forward and both gradients as one CUDA graph, with the pruning and compression that every step needs."""
    return [_measure(*shape) for shape in SHAPES]


def _measure(outputs: int, inputs: int) -> dict[str, Any]:
    x = torch.randn(TOKENS, inputs, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    steps = {"dense": _step(None, outputs, inputs, x)}
    for name, spec in SPECS.items():
        steps[name] = _step(spec, outputs, inputs, x)
        steps[f"{name}, masked"] = _masked(_step(spec, outputs, inputs, x))
    times = medians(steps, repeat_ms=10)
    ratios = {name: times["dense"] / ms for name, ms in times.items() if name != "dense"}
    row = {"outputs": outputs, "inputs": inputs, "ratio": ratios, "ms": times}
    print(row, flush=True)
    return row


def _step(spec: acf.NMSparsity | None, outputs: int, inputs: int, x: torch.Tensor) -> Callable[[], object]:
    layer = nn.Sequential(nn.Linear(inputs, outputs, bias=False, device="cuda", dtype=torch.bfloat16))
    if spec is not None:
        acf.sparsify_(layer, spec)
    gradient = torch.randn(TOKENS, outputs, device="cuda", dtype=torch.bfloat16)
    wanted = [x, *layer.parameters()]

    def step() -> object:
        return torch.autograd.grad(layer(x), wanted, gradient)

    return step


def _masked(step: Callable[[], object]) -> Callable[[], object]:
    def masked() -> object:
        with dense_products():
            return step()

    return masked


def two_four_lines(rows: list[dict[str, Any]]) -> list[str]:
    """One line for every shape."""
    return [
        f"2:4 {row['outputs']}x{row['inputs']}: "
        + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in row["ratio"].items())
        for row in rows
    ]
