"""What block sizes and densities by stage give ResNet-18 at 90 %: accuracy of six sparse designs beside two dense runs.

    python docs/figures/resnet18_designs.py DATA --seconds 400

DATA holds the CIFAR-10 copy. Every design is trained from three seeds by a process of its own; all processes share one
GPU, so nothing is timed. Accuracy is that on the last tenth of the training images, which no run trains on. When
``--seconds`` have passed, the runs that are done are kept. Writes docs/results/training-designs.json.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from resnet18_factors import DENSE_MIDDLE, DENSITIES, LAYERS, runs_of
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

RECORD = Path(__file__).parents[1] / "results" / "training-designs.json"
EPOCHS = 12
SEEDS = (0, 1, 2)

SHORTCUTS = ("5.shortcut.0", "7.shortcut.0", "9.shortcut.0")
PLANNED = dict(zip(LAYERS, (0.315, 0.315, 0.201, 0.173, 0.110, 0.088, 0.0605), strict=True))
"""What `acf.plan` chose for the run of training-resnet18-tuned.json."""


@dataclass(frozen=True)
class Design:
    """Densities by part of the network (none: dense), stages whose blocks have a side of 32, and how it is trained."""

    meaning: str
    densities: dict[str, float] | None
    small_blocks_in: tuple[int, ...] = ()
    variant: str = "static-90/rate=0.4/decay=1e-3"
    shortcuts: float = 1.0

    def block(self, part: str) -> int:
        """Side of the blocks of a part named as in `LAYERS`."""
        return 32 if int(part.removeprefix("stage ")[0]) in self.small_blocks_in else 64


SECOND_STAGE = dict(zip(LAYERS, (0.15, 0.25, 0.3, 0.16, 0.16, 0.06, 0.055), strict=True))
THIRD_STAGE = dict(zip(LAYERS, (0.15, 0.15, 0.2, 0.22, 0.22, 0.06, 0.055), strict=True))

DESIGNS = {
    "dense": Design("dense, decay 2e-3", None, variant="dense/rate=0.2/decay=2e-3"),
    "dense-decay": Design("dense, decay 4e-3", None, variant="dense/rate=0.2/decay=4e-3"),
    "planned": Design("as planned: stage 1 at 31 %, blocks of 64", PLANNED),
    "even": Design("stage 1 at 15 %, blocks of 64", DENSITIES),
    "fine": Design("stage 1 at 15 %, blocks of 32 in stages 1 to 3", DENSITIES, (1, 2, 3)),
    "middle": Design("stage 1 at 15 %, stages 2 and 3 a third denser, blocks of 64", DENSE_MIDDLE),
    "second-stage": Design("stage 1 at 15 %, stage 2 at 30 %, blocks of 64", SECOND_STAGE),
    "third-stage": Design(
        "stage 1 at 15 %, stage 3 at 22 %, shortcuts at 20 %, blocks of 64", THIRD_STAGE, shortcuts=0.2
    ),
}


def sparsify(model: nn.Module, design: Design) -> None:
    """Make the convolutions of all stages sparse as ``design`` has them."""
    if design.densities is None:
        return
    densities = {name: design.densities[part] for part, names in LAYERS.items() for name in names}
    blocks = {name: design.block(part) for part, names in LAYERS.items() for name in names}
    if design.shortcuts < 1.0:
        densities |= dict.fromkeys(SHORTCUTS, design.shortcuts)
    spec = acf.BlockSparsity(0.9, block=64, rescale=True)
    sparsify_blocks(model, spec, lambda module, name: name in densities, densities, blocks)


def train(task: Task, name: str, seed: int) -> dict[str, Any]:
    """One run; its accuracy in per cent."""
    design = DESIGNS[name]
    training_session.sparsify_fresh = lambda model, variant, task: sparsify(model, design)
    steps = task.steps(EPOCHS, task.spec.batch)
    session = TrainingSession(task, Variant.parse(design.variant), seed, StepSchedule(steps))
    session.warm_up()
    while session.step < steps:
        session.train_step()
    found = {
        "accuracy": session.measure(),
        "moves": session.moves,
        "weights_absent": acf.weight_sparsity(session.model),
    }
    session.close()
    return {"design": name, "seed": seed, **found}


def work(data: Path, name: str, out: Path) -> None:
    """All seeds of the design ``name``."""
    task = load_task(TASKS["resnet18"], data, out, torch.device("cuda")).for_tuning()
    runs = []
    for seed in SEEDS:
        runs.append(train(task, name, seed))
        (out / f"runs-{name}.json").write_text(json.dumps(runs))


def means(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean accuracy of every design that has a run."""
    by_name = {name: [run["accuracy"] for run in runs if run["design"] == name] for name in DESIGNS}
    return [
        {"design": name, "meaning": DESIGNS[name].meaning, "accuracy": fmean(found), "seeds": len(found)}
        for name, found in by_name.items()
        if found
    ]


def train_all(data: Path, seconds: float) -> None:
    """Train every design in a process of its own for ``seconds`` at the most, and write the record."""
    with TemporaryDirectory() as folder:
        own = [__file__, str(data), "--out", folder]
        runs = runs_of([[*own, "--design", name] for name in DESIGNS], Path(folder), seconds)
    RECORD.write_text(json.dumps({**provenance("cuda"), "runs": runs, "means": means(runs)}, indent=1) + "\n")


def main() -> None:
    """All of it, or one design's part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--design", choices=DESIGNS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.design is None:
        train_all(options.data, options.seconds)
    else:
        work(options.data, options.design, options.out)


if __name__ == "__main__":
    main()
