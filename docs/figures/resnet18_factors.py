"""What decides the accuracy of ResNet-18 at 90 %: seven choices varied together, each effect read from all runs.

    python docs/figures/resnet18_factors.py DATA --seconds 400

DATA holds the CIFAR-10 copy. Sixteen combinations of the seven choices (a fractional factorial: the last three are
exclusive ors of the first four), two seeds each, trained by ``--workers`` processes that share one GPU, so nothing is
timed. Accuracy is that on the last tenth of the training images, which no run trains on. When ``--seconds`` have
passed, the runs that are done are kept. Writes docs/results/training-factors.json.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

import acf
from acf.bench.provenance import provenance
from acf.bench.training import session as training_session
from acf.bench.training.load import load_task
from acf.bench.training.schedule import StepSchedule
from acf.bench.training.session import TrainingSession
from acf.bench.training.task import TASKS, Task
from acf.bench.training.variant import Variant
from acf.nn.sparsify_blocks import sparsify_blocks

RECORD = Path(__file__).parents[1] / "results" / "training-factors.json"
EPOCHS = 12
SEEDS = (0, 1)

LAYERS = {
    "stage 1": ("3.first", "3.second", "4.first", "4.second"),
    "stage 2, strided": ("5.first",),
    "stage 2": ("5.second", "6.first", "6.second"),
    "stage 3, strided": ("7.first",),
    "stage 3": ("7.second", "8.first", "8.second"),
    "stage 4, strided": ("9.first",),
    "stage 4": ("9.second", "10.first", "10.second"),
}
DENSITIES = dict(zip(LAYERS, (0.149, 0.102, 0.149, 0.119, 0.119, 0.088, 0.07), strict=True))
DENSE_MIDDLE = dict(zip(LAYERS, (0.149, 0.15, 0.2, 0.16, 0.16, 0.06, 0.06), strict=True))
LOW_FIRST_STAGE = 0.10

FACTORS = {
    "dense_middle": "stages 2 and 3 a third denser, stage 4 a little less",
    "small_blocks_in_stage_3": "blocks of 32 in stage 3 as in stages 1 and 2; else of 64",
    "sparse_first_stage": "stage 1 at 10 % instead of 15 %",
    "early_moves": "26 moves in the first quarter of the run, a fifth of the blocks at first",
    "double_decay": "weight decay 1e-3 instead of 5e-4",
    "zero_scale": "the last batch norm of every block starts with a scale of 0",
    "lower_rate": "rate 0.3 instead of rate 0.4",
}
Combination = dict[str, bool]


def combinations() -> Iterator[Combination]:
    """Sixteen of the 128."""
    for a, b, c, d in itertools.product((False, True), repeat=4):
        yield dict(zip(FACTORS, (a, b, c, d, a ^ b ^ c, a ^ b ^ d, a ^ c ^ d), strict=True))


def sparsify(model: nn.Module, chosen: Combination) -> None:
    """Make the convolutions of all stages sparse as ``chosen``."""
    for name, module in model.named_modules():
        if chosen["zero_scale"] and name.endswith("second_norm"):
            nn.init.zeros_(module.weight)
    by_part = dict(DENSE_MIDDLE if chosen["dense_middle"] else DENSITIES)
    if chosen["sparse_first_stage"]:
        by_part["stage 1"] = LOW_FIRST_STAGE
    small = ("stage 1", "stage 2", *(["stage 3"] if chosen["small_blocks_in_stage_3"] else []))
    densities = {name: by_part[part] for part, names in LAYERS.items() for name in names}
    blocks = {name: 32 if part.startswith(small) else 64 for part, names in LAYERS.items() for name in names}
    spec = acf.BlockSparsity(0.9, block=64, rescale=True)
    sparsify_blocks(model, spec, lambda module, name: name in densities, densities, blocks)


def train(task: Task, chosen: Combination, seed: int) -> dict[str, Any]:
    """One run; its accuracy in per cent."""
    training_session.sparsify_fresh = lambda model, variant, task: sparsify(model, chosen)
    moves = "rigl-90/fraction=0.2/moves=100/stop_at=0.25" if chosen["early_moves"] else "static-90"
    rate, decay = 0.3 if chosen["lower_rate"] else 0.4, 1e-3 if chosen["double_decay"] else 5e-4
    steps = task.steps(EPOCHS, task.spec.batch)
    session = TrainingSession(task, Variant.parse(f"{moves}/rate={rate}/decay={decay}"), seed, StepSchedule(steps))
    session.warm_up()
    while session.step < steps:
        session.train_step()
    found = {
        "accuracy": session.measure(),
        "moves": session.moves,
        "weights_absent": acf.weight_sparsity(session.model),
    }
    session.close()
    return {**chosen, "seed": seed, **found}


def work(data: Path, index: int, workers: int, out: Path) -> None:
    """Every ``workers``-th combination, from ``index`` on."""
    task = load_task(TASKS["resnet18"], data, out, torch.device("cuda")).for_tuning()
    runs = []
    for chosen in itertools.islice(combinations(), index, None, workers):
        for seed in SEEDS:
            runs.append(train(task, chosen, seed))
            (out / f"runs-{index}.json").write_text(json.dumps(runs))


def effects(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points of accuracy that each choice adds, by least squares over all runs, with standard errors."""
    design = np.array([[1.0, *(run[name] for name in FACTORS), run["seed"]] for run in runs])
    accuracy = np.array([run["accuracy"] for run in runs])
    fitted, *_ = np.linalg.lstsq(design, accuracy, rcond=None)
    variance = ((accuracy - design @ fitted) ** 2).sum() / (len(runs) - design.shape[1])
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    return [
        {"factor": name, "meaning": meaning, "points": float(fitted[place]), "standard_error": float(errors[place])}
        for place, (name, meaning) in enumerate(FACTORS.items(), start=1)
    ]


def runs_of(workers: Sequence[Sequence[str]], folder: Path, seconds: float) -> list[dict[str, Any]]:
    """What processes with these arguments wrote to ``runs-*.json`` in ``folder``, ended after ``seconds``."""
    untuned = {**os.environ, "ACF_AUTOTUNE": "0"}  # kernels that differ in speed alone
    running = [subprocess.Popen([sys.executable, *arguments], env=untuned) for arguments in workers]
    end = time.monotonic() + seconds
    while any(each.poll() is None for each in running) and time.monotonic() < end:
        time.sleep(1)
    for each in running:
        each.kill()
    return [run for part in sorted(folder.glob("runs-*.json")) for run in json.loads(part.read_text())]


def train_all(data: Path, workers: int, seconds: float) -> None:
    """Train in ``workers`` processes for ``seconds`` at the most and write the record."""
    with TemporaryDirectory() as folder:
        own = [__file__, str(data), "--workers", str(workers), "--out", folder]
        runs = runs_of([[*own, "--worker", str(each)] for each in range(workers)], Path(folder), seconds)
    RECORD.write_text(json.dumps({**provenance("cuda"), "runs": runs, "effects": effects(runs)}, indent=1) + "\n")


def main() -> None:
    """All of it, or one worker's part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is None:
        train_all(options.data, options.workers, options.seconds)
    else:
        work(options.data, options.worker, options.workers, options.out)


if __name__ == "__main__":
    main()
