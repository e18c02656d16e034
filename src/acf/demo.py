"""The demo: the same CNN dense and block-sparse, trained, captured, and played on three architectures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from acf.masks import BlockDST
from acf.metrics import TrainingRecord
from acf.nn import BlockSparsity, sparsify_, weight_sparsity
from acf.options import option
from acf.report import report
from acf.sim import Result, simulate
from acf.trace import Trace, capture
from acf.train import attach
from acf.zoo.data.digits import Digits, build_cnn, load_digits

OnProgress = Callable[[str, float], None]
"""Called with what is being done and the share of the whole that is finished."""


@dataclass(frozen=True)
class DemoSpec:
    """What the demo trains and where it plays the result."""

    sparsity: float = option(0.9, "Share of blocks to drop, in [0, 1).")
    block: int = 16
    steps: int = option(660, "Training steps of each run.", min=1)
    batch_size: int = 64
    learning_rate: float = 2e-3
    every: int = 30
    seed: int = option(0, "Seed of weights and batches.")
    architectures: tuple[str, ...] = ("tensorcore", "tensordash", "acf-512")

    def __post_init__(self) -> None:
        _ = self.block_sparsity, self.policy  # both check their values, before anything is trained

    @property
    def block_sparsity(self) -> BlockSparsity:
        """What the sparse run asks of `acf.sparsify_`."""
        return BlockSparsity(self.sparsity, block=self.block, distribution="erk")

    @property
    def policy(self) -> BlockDST:
        """How the sparse run moves its blocks."""
        return BlockDST(total_steps=self.steps, every=self.every)


@dataclass(frozen=True)
class DemoOutcome:
    """A training record per run and a result per run and architecture, dense first."""

    records: tuple[TrainingRecord, ...]
    results: tuple[Result, ...]
    report_path: Path


def run_demo(spec: DemoSpec, folder: Path, on_progress: OnProgress = lambda what, share: None) -> DemoOutcome:
    """Train dense and sparse, capture a step of each into ``folder``, simulate, and write the report there."""
    data = load_digits()
    with one_torch_thread():  # images of 8 x 8 gain nothing from more, and lose much where another program computes too
        return _run(spec, data, folder, on_progress)


def _run(spec: DemoSpec, data: Digits, folder: Path, on_progress: OnProgress) -> DemoOutcome:
    labels = ("dense", f"sparse {spec.sparsity:.0%}")
    records: list[TrainingRecord] = []
    results: list[Result] = []
    for index, label in enumerate(labels):

        def on_part(what: str, share: float, index: int = index) -> None:
            on_progress(what, (index + share) / len(labels))

        model = build_model(spec, sparse=index > 0)
        records.append(train(model, data, spec, label, on_part))
        trace = capture_step(model, data, spec, label)
        trace.save(folder / f"{label.replace(' ', '-').replace('%', '')}.safetensors")
        for name in spec.architectures:
            on_part(f"simulate {label} on {name}", 0.95)
            results.append(simulate(trace, name))
    path = report(results, folder / "report.html", training=records, title="ACF demo: digits, dense and block-sparse")
    on_progress("report written", 1.0)
    return DemoOutcome(tuple(records), tuple(results), path)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute with one thread inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def build_model(spec: DemoSpec, sparse: bool) -> nn.Sequential:
    """The digits CNN from the seed, dense or block-sparse."""
    torch.manual_seed(spec.seed)
    model = build_cnn()
    if sparse:
        sparsify_(model, spec.block_sparsity)
    return model


def train(model: nn.Module, data: Digits, spec: DemoSpec, label: str, on_progress: OnProgress) -> TrainingRecord:
    """Train ``model`` with AdamW and a one-cycle rate; the topology of a sparse one moves by Algorithm 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, spec.learning_rate, total_steps=spec.steps)
    topology = None
    if weight_sparsity(model) > 0:
        topology = attach(model, optimizer, spec.policy)
    losses: list[float] = []
    accuracies: list[tuple[int, float]] = []
    started = time.perf_counter()
    for step, batch in enumerate(_batches(data, spec), start=1):
        images, labels = data.train_images[batch], data.train_labels[batch]
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % spec.every == 0 or step == spec.steps:
            accuracies.append((step, accuracy(model, data.test_images, data.test_labels)))
        on_progress(f"train {label}", 0.9 * step / spec.steps)
    moved: dict[int, int] = {}
    for change in topology.changes if topology else ():
        moved[change.step] = moved.get(change.step, 0) + change.moved_blocks
    return TrainingRecord(
        label=label,
        test_accuracy=accuracies[-1][1],
        weight_sparsity=weight_sparsity(model),
        losses=tuple(losses),
        test_accuracies=tuple(accuracies),
        moved_blocks=tuple(moved.items()),
        seconds=time.perf_counter() - started,
    )


def capture_step(model: nn.Module, data: Digits, spec: DemoSpec, label: str) -> Trace:
    """The operands of one more training step of the trained model, on the first training batch."""
    model.train()
    model.zero_grad()
    images, labels = data.train_images[: spec.batch_size], data.train_labels[: spec.batch_size]
    with capture(model, label) as trace:
        nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    return trace


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of ``images`` that the model labels right, in [0, 1]; the training mode is restored."""
    was_training = model.training
    model.eval()
    right = float((model(images).argmax(dim=1) == labels).float().mean())
    model.train(was_training)
    return right


def _batches(data: Digits, spec: DemoSpec) -> list[Tensor]:
    """Indices of every step's batch: whole epochs, each shuffled by the seed, cut to ``steps``."""
    generator = torch.Generator().manual_seed(spec.seed)
    batches: list[Tensor] = []
    while len(batches) < spec.steps:
        order = torch.randperm(len(data.train_images), generator=generator)
        batches += [batch for batch in torch.split(order, spec.batch_size) if len(batch) == spec.batch_size]
    return batches[: spec.steps]
