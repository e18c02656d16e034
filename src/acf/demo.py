"""The demo: one CNN trained dense and block-sparse, a step of each simulated on four machines of equal peak."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from acf.bench import OnProgress
from acf.masks import BlockDST
from acf.metrics import MaskSnapshot, RunLog, TrainingRecord
from acf.metrics.meters import EnergyMeter
from acf.nn import BlockSparseLayer, BlockSparsity, sparsify_, weight_sparsity
from acf.ops.cpu.build import load_library
from acf.options import option
from acf.report import report
from acf.sim import Result, simulate
from acf.train import attach
from acf.zoo.capture import capture_step
from acf.zoo.data.digits import Digits, load_digits
from acf.zoo.networks import NETWORKS
from acf.zoo.training import count_correct, shuffled_batches, train_step


@dataclass(frozen=True)
class DemoSpec:
    """What the demo trains, and the machines that it simulates."""

    sparsity: float = option(0.9, "Share of blocks to drop, in [0, 1).")
    block: int = 16
    steps: int = option(660, "Training steps of each run.", min=1)
    batch_size: int = 64
    learning_rate: float = 2e-3
    every: int = 30
    seed: int = option(0, "Seed of weights and batches.")
    architectures: tuple[str, ...] = ("tensorcore-512", "tensordash-512", "acf-512", "acf-512-wide")

    def __post_init__(self) -> None:
        _ = self.block_sparsity, self.policy  # both check their values, before anything is trained

    @property
    def block_sparsity(self) -> BlockSparsity:
        """What the sparse run asks of `acf.sparsify_`."""
        return BlockSparsity(self.sparsity, block=self.block, distribution="erk", rescale=False)

    @property
    def policy(self) -> BlockDST:
        """How the sparse run updates its topology."""
        return BlockDST(total_steps=self.steps, every=min(self.every, max(1, self.steps // 2)))


@dataclass(frozen=True)
class DemoOutcome:
    """A training record per run, a result per run and machine, dense first; and the report.

    The first result, dense on the first machine, is the baseline of all. ``energy_source`` names the counter that the
    joules of training come from, or says why there are none.
    """

    records: tuple[TrainingRecord, ...]
    results: tuple[Result, ...]
    report_path: Path
    energy_source: str = ""


def run_demo(spec: DemoSpec, folder: Path, on_progress: OnProgress = lambda what, share: None) -> DemoOutcome:
    """Train dense and sparse, capture a step of each into ``folder``, simulate, and write the report there."""
    data = load_digits()
    on_progress("compile the CPU kernels, the first time only", 0.0)
    load_library()  # before the clock of training starts
    with one_torch_thread():  # 8 x 8 images gain nothing from more threads, and lose much on a busy machine
        return _run(spec, data, folder, on_progress)


def _run(spec: DemoSpec, data: Digits, folder: Path, on_progress: OnProgress) -> DemoOutcome:
    labels = ("dense", f"sparse {spec.sparsity:.0%}")
    records: list[TrainingRecord] = []
    results: list[Result] = []
    for index, label in enumerate(labels):

        def on_part(what: str, share: float, index: int = index) -> None:
            on_progress(what, (index + share) / len(labels))

        model = build_model(spec, sparse=index > 0)
        stem = label.replace(" ", "-").replace("%", "")
        with RunLog(folder / "runs" / stem, model, spec.steps) as log:
            records.append(train(model, data, spec, label, on_part, log))
        first = data.train_images[: spec.batch_size], data.train_labels[: spec.batch_size]
        trace = capture_step(model, first, spec.steps, label).trace
        trace.save(folder / f"{stem}.safetensors")
        for name in spec.architectures:
            on_part(f"simulate {label} on {name}", 0.95)
            results.append(simulate(trace, name))
    path = report(results, folder / "report.html", training=records, title="ACF demo: digits, dense and block-sparse")
    on_progress("report written", 1.0)
    return DemoOutcome(tuple(records), tuple(results), path, EnergyMeter("cpu", idle_seconds=0.0).source)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Limit torch to one thread within the ``with`` block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def build_model(spec: DemoSpec, sparse: bool) -> nn.Module:
    """The digits CNN from the seed, dense or block-sparse."""
    torch.manual_seed(spec.seed)
    model = NETWORKS["digits-cnn"].build()
    if sparse:
        sparsify_(model, spec.block_sparsity)
    return model


def train(
    model: nn.Module, data: Digits, spec: DemoSpec, label: str, on_progress: OnProgress, log: RunLog
) -> TrainingRecord:
    """Train ``model`` with AdamW and a one-cycle rate; the topology of a sparse one moves by Algorithm 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, spec.learning_rate, total_steps=spec.steps)
    topology = attach(model, optimizer, spec.policy, on_move=log) if weight_sparsity(model) > 0 else None
    batches = shuffled_batches(len(data.train_images), spec.batch_size, torch.Generator().manual_seed(spec.seed))
    losses: list[float] = []
    accuracies: list[tuple[int, float]] = []
    seconds: list[float] = []
    joules: list[float | None] = []
    masks = list(masks_of(model, 0))
    meter = EnergyMeter("cpu", idle_seconds=0.0).__enter__()  # read while it runs, as the clock is
    started = time.perf_counter()
    for step, batch in enumerate(islice(batches, spec.steps), start=1):
        losses.append(train_step(model, optimizer, (data.train_images[batch], data.train_labels[batch])).item())
        schedule.step()
        if step % spec.every == 0 or step == spec.steps:
            seconds.append(time.perf_counter() - started)
            joules.append(meter.joules_so_far())
            correct = count_correct(model, [(data.test_images, data.test_labels)])
            accuracies.append((step, correct / len(data.test_labels)))
            masks += masks_of(model, step)
            log.step(step, losses[-1], accuracy=accuracies[-1][1])
        else:
            log.step(step, losses[-1])
        on_progress(f"train {label}", 0.9 * step / spec.steps)
    moved: Counter[int] = Counter()
    for change in topology.changes if topology else ():
        moved[change.step] += change.moved_blocks
    return TrainingRecord(
        label=label,
        test_accuracy=accuracies[-1][1],
        weight_sparsity=weight_sparsity(model),
        losses=tuple(losses),
        test_accuracies=tuple(accuracies),
        moved_blocks=tuple(moved.items()),
        seconds=time.perf_counter() - started,
        test_seconds=tuple(seconds),
        test_joules=tuple(value for value in joules if value is not None),
        masks=tuple(masks),
    )


def masks_of(model: nn.Module, step: int) -> Iterator[MaskSnapshot]:
    """The present blocks of every block-sparse layer after ``step``."""
    for name, module in model.named_modules():
        if isinstance(module, BlockSparseLayer):
            yield MaskSnapshot.of(step, name, module.mask().numpy())
