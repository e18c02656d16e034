"""Train a network of the zoo with several seeds, capture a step of each, and count the zeros of every layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean, stdev
from typing import Any

from acf.bench import OnProgress
from acf.errors import DataError
from acf.options import option, required
from acf.trace import Trace
from acf.zoo.capture import CapturedStep, CaptureSpec, captured_steps
from acf.zoo.data import LabelledData

OPERANDS: dict[str, str] = {"activation": "activations", "gradient": "gradients", "weight": "weights"}
"""What the record calls the zeros of an operand, by its role in a trace."""


@dataclass(frozen=True)
class ZerosSpec:
    """What to train: every pair of ``sparsities`` and ``gradient_targets``, each with ``seeds`` seeds.

    The other fields are those of `CaptureSpec`.
    """

    model: str = field(metadata=required("A network's name, for example resnet50."))
    sparsities: tuple[float, ...] = option(
        (0.0,), "Shares of blocks to train without; blocks move meanwhile.", flags=("--sparsity",)
    )
    gradient_targets: tuple[float, ...] = option((0.0,), "Shares of zeros that DTS aims at; 0: no DTS.")
    seeds: int = option(3, "How many seeds.", min=1)
    steps: int = option(40, "Training steps before the captured one.")
    batch: int = option(8, "Examples of a training step and of the captured one.")
    image_size: int = option(112, "Height and width that images are resized to.")
    learning_rate: float = option(1e-4, "Of AdamW, constant.")

    def __post_init__(self) -> None:
        if not self.sparsities or not self.gradient_targets or self.seeds < 1:
            raise DataError(
                f"{len(self.sparsities)} sparsities, {len(self.gradient_targets)} gradient targets and {self.seeds} "
                "seeds give no run; give at least one of each"
            )
        for variant in self.variants:
            self.capture(*variant, seed=0)

    @property
    def variants(self) -> list[tuple[float, float]]:
        """Pairs of a sparsity and a gradient target."""
        return list(product(self.sparsities, self.gradient_targets))

    def capture(self, sparsity: float, gradient_target: float, seed: int) -> CaptureSpec:
        """The run of one seed."""
        return CaptureSpec(
            self.model,
            steps=self.steps,
            batch=self.batch,
            image_size=self.image_size,
            learning_rate=self.learning_rate,
            seed=seed,
            sparsity=sparsity,
            gradient_target=gradient_target,
        )


@dataclass(frozen=True)
class Spread:
    """Mean and sample deviation over seeds; the deviation of a single seed is 0."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """The spread of one figure over seeds."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0)


Shares = dict[str, dict[str, float]]
"""Fractions of zero elements: by layer, then "activations", "gradients", "weights"."""


@dataclass(frozen=True)
class MeasuredZeros:
    """Zeros of one variant over its seeds: ``layers`` by name, ``whole`` of all elements of the step together.

    ``losses`` are those of the captured step, one for each seed.
    """

    network: str
    sparsity: float
    gradient_target: float
    data: str
    losses: tuple[float, ...]
    whole: dict[str, Spread]
    layers: dict[str, dict[str, Spread]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; shares rounded to a thousandth of a per cent."""
        head = {"network": self.network, "sparsity": self.sparsity, "gradient_target": self.gradient_target}
        layers = {name: _plain(shares) for name, shares in self.layers.items()}
        return head | {"data": self.data, "losses": self.losses, "whole": _plain(self.whole), "layers": layers}


def _plain(shares: Mapping[str, Spread]) -> dict[str, dict[str, float]]:
    return {name: {"mean": round(each.mean, 5), "deviation": round(each.deviation, 5)} for name, each in shares.items()}


def layer_zeros(trace: Trace) -> tuple[Shares, dict[str, float]]:
    """Shares of zeros by layer, and of all layers' elements together; products without weights are left out."""
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    for op in trace.ops:
        if not op.weighted:
            continue
        for key, role in zip(op.operands, op.roles, strict=True):
            bits = trace.tensors[key]
            counts.setdefault(op.name, {})[OPERANDS[role]] = (bits.nonzeros, bits.size)
    shares = {
        layer: {operand: 1 - nonzeros / size for operand, (nonzeros, size) in operands.items()}
        for layer, operands in counts.items()
    }
    sums = {
        operand: [sum(layer[operand][place] for layer in counts.values() if operand in layer) for place in (0, 1)]
        for operand in OPERANDS.values()
    }
    return shares, {operand: 1 - nonzeros / size for operand, (nonzeros, size) in sums.items() if size}


def measure_zeros(spec: ZerosSpec, data: LabelledData, on_progress: OnProgress) -> Iterator[MeasuredZeros]:
    """Train and count, one variant after another."""
    runs = len(spec.variants) * spec.seeds
    for place, (sparsity, target) in enumerate(spec.variants):
        steps: list[CapturedStep] = []
        for seed in range(spec.seeds):
            on_progress(f"{sparsity:.0%} sparse, DTS {target:g}, seed {seed}", (place * spec.seeds + seed) / runs)
            steps += captured_steps(spec.capture(sparsity, target, seed), data)
        traces, losses = [step.trace for step in steps], tuple(step.loss for step in steps)
        yield gathered(spec.model, (sparsity, target), data.name, traces, losses)
    on_progress("done", 1.0)


def gathered(
    network: str, variant: tuple[float, float], data: str, traces: Sequence[Trace], losses: tuple[float, ...]
) -> MeasuredZeros:
    """Zeros of one ``variant``, its sparsity and gradient target, over ``traces`` of several seeds."""
    counted = [layer_zeros(trace) for trace in traces]
    first_layers, first_whole = counted[0]
    layers = {
        name: {operand: Spread.of([shares[name][operand] for shares, _ in counted]) for operand in operands}
        for name, operands in first_layers.items()
    }
    whole = {operand: Spread.of([sums[operand] for _, sums in counted]) for operand in first_whole}
    return MeasuredZeros(network, *variant, data, losses, whole, layers)
