"""Correctness and speed of the Triton kernels on this machine's GPU, against cuBLAS and cuDNN in the same run.

`acf bench kernels --device cuda` runs it and writes ``kernels-<device>.json``. Sections: ``correctness``, ``layers``,
``norms``, ``conv``, ``overhead``, ``steps`` (whole training steps), ``bias`` (layers with a bias, and the correctness
of every epilogue), ``narrow`` (layers of about 1,000 channels, 1x1 and strided convolutions), ``experts`` (the grouped
products of a mixture) and ``two_four`` (2:4 layers through cuSPARSELt).
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor

from acf.bench.kernels.gpu_bias import bias_lines, measure_bias
from acf.bench.kernels.gpu_correctness import check_everything
from acf.bench.kernels.gpu_experts import experts_lines, measure_experts
from acf.bench.kernels.gpu_narrow import measure_narrow, narrow_lines
from acf.bench.kernels.gpu_timing import ROUNDS, dense_conv_passes, medians, sparse_conv_passes
from acf.bench.kernels.gpu_two_four import measure_two_four, two_four_lines
from acf.bench.kernels.precompile import (
    CONV_BLOCKS,
    THREE_BY_THREE,
    precompile,
    random_tensor,
    random_topology,
)
from acf.bench.kernels.roofline import RooflinePoint
from acf.bench.kernels.steps import measure_steps, step_lines
from acf.ops import block_conv2d, block_gradient_norms, block_linear
from acf.ops import linear as linear_ops
from acf.ops.triton import launch, product, weight_grad
from acf.ops.triton.tuning import TUNER

TOKENS, OUTPUTS, INPUTS = 8192, 16384, 4096
LAYER_CASES = ((128, (0.9, 0.75, 0.5)), (64, (0.9, 0.75, 0.5)), (32, (0.9,)), (16, (0.9,)))
LAYER_AIMS = {(128, 0.9): 7.5, (128, 0.75): 3.3, (128, 0.5): 1.6, (64, 0.9): 6.5, (64, 0.75): 2.8}
LAYER_AIMS |= {(32, 0.9): 5.0, (16, 0.9): 3.0}
CONV_CASES = ((256, 14), (256, 28), (512, 14), (512, 28))
CONV_BATCH, CONV_AIM = 256, 2.5
OVERHEAD_CALLS = 200


def measure_ceilings() -> dict[str, float]:
    """Copy bandwidth and dense bf16 rate of this machine, the two ceilings of the roofline."""
    source = torch.empty(1 << 31, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    a, b = random_tensor(8192, 8192), random_tensor(8192, 8192)
    times = medians({"copy": lambda: target.copy_(source), "matmul": lambda: a @ b})
    return {
        "copy_tb_per_s": 2 * source.numel() / times["copy"] / 1e9,
        "matmul_tflop_per_s": 2 * 8192**3 / times["matmul"] / 1e9,
    }


def measure_layers(ceilings: dict[str, float]) -> list[dict[str, Any]]:
    """Forward, input gradient and weight gradient of one linear layer, each against cuBLAS."""
    x, gradient, dense = random_tensor(TOKENS, INPUTS), random_tensor(TOKENS, OUTPUTS), random_tensor(OUTPUTS, INPUTS)
    library: dict[str, Callable[[], object]] = {
        "dense_forward": lambda: x @ dense.T,
        "dense_input_grad": lambda: gradient @ dense,
        "dense_weight_grad": lambda: gradient.T @ x,
    }
    rows = []
    for block, sparsities in LAYER_CASES:
        for sparsity in sparsities:
            topology = random_topology(OUTPUTS // block, INPUTS // block, block, 1 - sparsity)
            weight = random_tensor(topology.block_rows.numel(), block, block)
            times = medians(
                library
                | {
                    "forward": partial(linear_ops.block_linear_forward, x, weight, None, *topology),
                    "input_grad": partial(linear_ops.block_linear_input_grad, gradient, weight, *topology),
                    "weight_grad": partial(linear_ops.block_linear_weight_grad, gradient, x, *topology, x.dtype),
                }
            )
            rows.append(layer_row(block, sparsity, topology.block_rows.numel(), times, ceilings))
            print(rows[-1], flush=True)
    return rows


def layer_row(
    block: int, sparsity: float, blocks: int, times: dict[str, float], ceilings: dict[str, float]
) -> dict[str, Any]:
    """Ratios, rates and the distance to the floor (the larger of arithmetic and memory time) of one layer step."""
    passes = ("forward", "input_grad", "weight_grad")
    operations = 2 * TOKENS * blocks * block * block
    moved = 2 * (TOKENS * INPUTS + TOKENS * OUTPUTS + blocks * block * block)
    floor_ms = max(operations / ceilings["matmul_tflop_per_s"], moved / ceilings["copy_tb_per_s"]) / 1e9
    ours, dense = sum(times[name] for name in passes), sum(times[f"dense_{name}"] for name in passes)
    return {
        "block": block,
        "sparsity": sparsity,
        "ratio": dense / ours,
        "aim": LAYER_AIMS.get((block, sparsity)),
        "ms": times,
        "tflop_per_s": {name: operations / times[name] / 1e9 for name in passes},
        "floor_ms_per_pass": floor_ms,
        "over_floor": ours / (3 * floor_ms),
    }


def measure_norms() -> list[dict[str, Any]]:
    """Norms of all absent blocks at 90 %, and of a tenth of them, against one dense weight-gradient product."""
    x, gradient = random_tensor(TOKENS, INPUTS), random_tensor(TOKENS, OUTPUTS)
    rows = []
    for block, _ in LAYER_CASES:
        absent = torch.nonzero(torch.rand(OUTPUTS // block, INPUTS // block, device="cuda") < 0.9).int()
        few = absent[torch.rand(len(absent), device="cuda") < 0.1]
        lists = {"all": absent.T.contiguous(), "tenth": few.T.contiguous()}
        times = medians(
            {"dense_weight_grad": lambda: gradient.T @ x}
            | {
                name: partial(block_gradient_norms, gradient, x, candidates[0], candidates[1], (block, block))
                for name, candidates in lists.items()
            }
        )
        dense = times["dense_weight_grad"]
        rows.append(
            {"block": block, "all_over_dense": times["all"] / dense, "tenth_over_dense": times["tenth"] / dense}
            | {"aim": 1.1, "ms": times}
        )
        print(rows[-1], flush=True)
    return rows


def measure_convs() -> list[dict[str, Any]]:
    """Three passes of 3x3 convolutions at 90 %, channels last, each against cuDNN (which may try its algorithms)."""
    torch.backends.cudnn.benchmark = True
    rows = []
    for channels, size in CONV_CASES:
        x = random_tensor(CONV_BATCH, channels, size, size).contiguous(memory_format=torch.channels_last)
        gradient = torch.randn_like(x)
        dense = random_tensor(channels, channels, 3, 3).contiguous(memory_format=torch.channels_last)
        library = dense_conv_passes(x, gradient, dense, THREE_BY_THREE)
        for block in CONV_BLOCKS:
            topology = random_topology(channels // block, 9 * channels // block, block, 0.1)
            weight = random_tensor(topology.block_rows.numel(), block, block)
            ours = sparse_conv_passes(x, gradient, weight, topology, THREE_BY_THREE)
            times = medians(library | ours, repeat_ms=10)
            ratio = sum(times[f"dense_{name}"] for name in ours) / sum(times[name] for name in ours)
            rows.append(
                {"channels": channels, "size": size, "block": block, "ratio": ratio, "aim": CONV_AIM, "ms": times}
            )
            print(rows[-1], flush=True)
    return rows


def measure_overhead() -> dict[str, float]:
    """Host microseconds per call on a tiny problem: what a launch costs without CUDA graphs.

    The device is faster than the host at this size, so the time of many calls is the host's alone. Dense calls stand
    beside ours; those "by_triton" launch without what is remembered of earlier launches.
    """
    topology = random_topology(8, 8, 64, 0.2)
    x, gradient = random_tensor(256, 512), random_tensor(256, 512)
    weight, dense = random_tensor(topology.block_rows.numel(), 64, 64), random_tensor(512, 512)
    functions: dict[str, Callable[[], object]] = {
        "dense_forward": lambda: torch.nn.functional.linear(x, dense),
        "dense_forward_backward": forward_and_backward(torch.nn.functional.linear, x, dense, gradient),
        "forward": lambda: linear_ops.block_linear_forward(x, weight, None, *topology),
        "input_grad": lambda: linear_ops.block_linear_input_grad(gradient, weight, *topology),
        "weight_grad": lambda: linear_ops.block_linear_weight_grad(gradient, x, *topology, x.dtype),
        "forward_without_op": lambda: product.linear(x, weight, None, *topology),
        "weight_grad_without_op": lambda: weight_grad.linear_weight_grad(gradient, x, *topology, x.dtype),
        "forward_backward": forward_and_backward(partial(block_linear, topology=topology), x, weight, gradient),
    }
    result = {name: host_microseconds(function) for name, function in functions.items()}
    with torch.autograd.set_multithreading_enabled(False):  # the backward pass on the calling thread
        for name in ("dense_forward_backward", "forward_backward"):
            result[f"{name}_on_calling_thread"] = host_microseconds(functions[name])
    memories = [patch.dict(module._PREPARED, clear=True) for module in (launch, product, weight_grad)]
    with patch.object(launch, "READ_VERSIONS", ()), memories[0], memories[1], memories[2]:
        for name in ("forward", "input_grad", "weight_grad", "forward_backward"):
            result[f"{name}_by_triton"] = host_microseconds(functions[name])
    print({name: round(value, 1) for name, value in result.items()}, flush=True)
    return result


def forward_and_backward(
    function: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, gradient: Tensor
) -> Callable[[], object]:
    """One pass through ``function(x, weight)`` and back, with gradients of both."""
    leaves = (x.clone().requires_grad_(), weight.clone().requires_grad_())
    return lambda: torch.autograd.grad(function(*leaves), leaves, gradient)


def host_microseconds(function: Callable[[], object]) -> float:
    """Least mean time of a call among several rounds: whatever else the host does only adds to it."""
    for _ in range(10):
        function()
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(OVERHEAD_CALLS):
            function()
        times.append((time.perf_counter() - begin) / OVERHEAD_CALLS * 1e6)
    torch.cuda.synchronize()
    return min(times)


def check_ops_against_autograd() -> None:
    """One backward pass through the public functions, so that a broken registration cannot go unnoticed."""
    topology = random_topology(8, 8, 32, 0.3)
    x = random_tensor(100, 256).requires_grad_()
    weight = random_tensor(topology.block_rows.numel(), 32, 32).requires_grad_()
    torch.autograd.backward(block_linear(x, weight, topology).square().sum())
    image = random_tensor(2, 64, 9, 9).requires_grad_()
    conv_topology = random_topology(2, 18, 32, 0.3)
    kernel = random_tensor(conv_topology.block_rows.numel(), 32, 32).requires_grad_()
    torch.autograd.backward(block_conv2d(image, kernel, conv_topology, THREE_BY_THREE).square().sum())
    for tensor in (x, weight, image, kernel):
        if tensor.grad is None or not bool(torch.isfinite(tensor.grad).all()):
            sys.exit("a gradient is missing or not finite")


def run_gpu_bench(sections: Sequence[str], on_record: Callable[[dict[str, Any]], None]) -> None:
    """Measure ``sections`` in turn; after each ``on_record`` gets all so far, so that an interruption loses one."""
    begin = time.perf_counter()
    precompile(sections)
    check_ops_against_autograd()
    ceilings = measure_ceilings()
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "compile_s": time.perf_counter() - begin,
        "ceilings": ceilings,
    }
    measures: dict[str, Callable[[], Any]] = {
        "correctness": check_everything,
        "layers": lambda: measure_layers(ceilings),
        "norms": measure_norms,
        "conv": measure_convs,
        "overhead": measure_overhead,
        "steps": measure_steps,
        "bias": measure_bias,
        "narrow": measure_narrow,
        "experts": measure_experts,
        "two_four": measure_two_four,
    }
    for section in sections:
        found = measures[section]()
        record |= found if section == "steps" else {section: found}
        record["seconds"] = time.perf_counter() - begin
        record["chosen"] = {str(signature): asdict(config) for signature, config in TUNER._chosen.items()}
        on_record(record)


def roofline_points(record: dict[str, Any]) -> list[RooflinePoint]:
    """The passes of section ``layers`` as points of the roofline."""
    points = []
    for row in record.get("layers", ()):
        blocks = round((1 - row["sparsity"]) * OUTPUTS * INPUTS / row["block"] ** 2)
        weights = blocks * row["block"] ** 2
        intensity = 2 * TOKENS * weights / (2 * (TOKENS * (INPUTS + OUTPUTS) + weights))
        label = f"{TOKENS} x {OUTPUTS} x {INPUTS}, blocks of {row['block']}, {row['sparsity']:.0%}"
        points += [RooflinePoint(name, label, intensity, rate * 1e12) for name, rate in row["tflop_per_s"].items()]
    return points


def summary_lines(record: dict[str, Any]) -> list[str]:
    """One line per aim."""
    lines = [
        f"layer B={row['block']} {row['sparsity']:.0%}: {row['ratio']:.2f}x, aim {row['aim']}"
        for row in record.get("layers", ())
    ]
    lines += [
        f"norms B={row['block']}: {row['all_over_dense']:.2f} of a dense product, aim 1.1; "
        f"a tenth of the blocks {row['tenth_over_dense']:.2f}"
        for row in record.get("norms", ())
    ]
    lines += [
        f"conv {row['channels']} channels {row['size']}^2 B={row['block']}: {row['ratio']:.2f}x, aim {row['aim']}"
        for row in record.get("conv", ())
    ]
    lines += [f"host {name}: {value:.0f} us per call" for name, value in record.get("overhead", {}).items()]
    lines += bias_lines(record.get("bias")) + narrow_lines(record.get("narrow", ()))
    lines += experts_lines(record.get("experts", [])) + two_four_lines(record.get("two_four", []))
    return lines + step_lines(record.get("steps", ()))
