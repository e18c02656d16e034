"""Where the time of a ResNet-18 step at 90 % goes: kernels by kind, and seconds of its layers by block and density.

    python docs/figures/resnet18_step.py DATA

DATA holds the CIFAR-10 copy; needs a GPU. Profiles steps of the dense network and of two sparse designs, then
times every 3x3 layer's forward and both gradients with blocks of 32 and 64, as `acf.plan`
does. Writes docs/results/training-step.json.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from resnet18_designs import DESIGNS, Design, sparsify
from resnet18_factors import DENSITIES
from torch.profiler import ProfilerActivity, profile

import acf
from acf.bench.provenance import provenance
from acf.bench.training import session as training_session
from acf.bench.training.load import load_task
from acf.bench.training.schedule import StepSchedule
from acf.bench.training.session import TrainingSession
from acf.bench.training.task import TASKS, Task, computing
from acf.bench.training.variant import Variant
from acf.nn.plan import PlanOptions, _costs

RECORD = Path(__file__).parents[1] / "results" / "training-step.json"
WARM_STEPS, TIMED_STEPS, PROFILED_STEPS = 20, 200, 5
BLOCKS = (32, 64)
COARSE = Design("stage 1 at 15 %, blocks of 32 in stages 1 and 2", DENSITIES, (1, 2))
PROFILED = {"dense": DESIGNS["dense"], "coarse": COARSE, "fine": DESIGNS["fine"]}

KINDS = {
    "sparse products": ("conv_weight_grad", "conv_statistics", "conv_product"),
    "sums and statistics of products": ("combine_statistics", "merge_taps", "sum_splits"),
    "pointwise": ("triton_poi",),
    "reductions": ("triton_red", "triton_per"),
    "cuDNN": ("cudnn", "cutlass", "sm90"),
}
"""Kernels by parts of their names, the first kind that fits; all else is "other"."""


def kind_of(kernel: str) -> str:
    """The kind of a kernel."""
    return next((kind for kind, parts in KINDS.items() if any(part in kernel for part in parts)), "other")


def measured_step(task: Task, name: str) -> dict[str, Any]:
    """Milliseconds of a step of the design ``name``, on the clock and in kernels by kind."""
    design = PROFILED[name]
    training_session.sparsify_fresh = lambda model, variant, task: sparsify(model, design)
    session = TrainingSession(task, Variant.parse(design.variant), 0, StepSchedule(10**5))
    session.warm_up()
    _train(session, WARM_STEPS)
    begun = time.perf_counter()
    _train(session, TIMED_STEPS)
    step_ms = 1e3 * (time.perf_counter() - begun) / TIMED_STEPS
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        _train(session, PROFILED_STEPS)
    session.close()
    by_kind: defaultdict[str, float] = defaultdict(float)
    for event in profiled.key_averages():
        by_kind[kind_of(event.key)] += event.device_time_total / 1e3 / PROFILED_STEPS
    kinds = [{"kind": kind, "ms": ms} for kind, ms in by_kind.items() if ms]
    times = {"step_ms": step_ms, "kernel_ms": sum(by_kind.values()), "kernels": kinds}
    return {"design": name, "meaning": design.meaning, **times}


def _train(session: TrainingSession, steps: int) -> None:
    for _ in range(steps):
        session.train_step()
    session.synchronize()


def layer_lines(task: Task) -> list[dict[str, Any]]:
    """Milliseconds of every kind of layer: dense, and with each block as a line over the density."""
    example = task.batch(0, task.spec.batch, torch.Generator(task.device).manual_seed(0))[0]
    spec, options = acf.BlockSparsity(0.9, distribution="cost"), PlanOptions(cuda_graphs=True, blocks=BLOCKS)
    with computing(task.spec, task.device):
        costs, _ = _costs(task.model(task.spec), example, spec, None, options)
    return [
        {
            "layer": name,
            "block": line.block,
            "dense_ms": 1e3 * cost.dense_seconds,
            "fixed_ms": 1e3 * line.fixed_seconds,
            "slope_ms": 1e3 * line.slope_seconds,
        }
        for name, cost in costs.items()
        for line in cost.lines
    ]


def main() -> None:
    """Profile, time and write the record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    task = load_task(TASKS["resnet18"], parser.parse_args().data, Path(), torch.device("cuda"))
    steps = [measured_step(task, name) for name in PROFILED]
    RECORD.write_text(json.dumps({**provenance("cuda"), "steps": steps, "layers": layer_lines(task)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
