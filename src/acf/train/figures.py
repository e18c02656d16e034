"""Live figures of a changing topology and of sparse gradients, and sinks that print or write them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from torch import nn

from acf.gradients import tracking
from acf.train.distributed import unwrapped


@dataclass(frozen=True)
class LayerFigures:
    """One layer after one step: ``density``, ``flip_rate`` and ``explored`` are shares in [0, 1].

    ``flip_rate`` is the share of its blocks that changed places at the last move; ``explored`` is the share of all its
    blocks that were ever present.
    """

    step: int
    layer: str
    density: float
    flip_rate: float
    explored: float


@dataclass(frozen=True)
class GradientFigures:
    """The gradient at one layer's output after one step: ``target`` and ``sparsity`` are shares of zeros in [0, 1].

    ``threshold`` is the magnitude below which elements of the next gradient are dropped.
    """

    step: int
    layer: str
    target: float
    sparsity: float
    threshold: float


def gradient_figures(model: nn.Module, step: int) -> tuple[GradientFigures, ...]:
    """The figures of every layer of ``model`` with a `GradientSparsity`, after ``step``; waits for the device.

    Pass them to what takes the figures of a topology: ``store(step, acf.gradient_figures(model, step))``.
    """
    found = tracking(unwrapped(model))
    return tuple(GradientFigures(step, name, x.target, x.sparsity, x.threshold) for name, x in found.items())


OnMove = Callable[[int, Sequence[LayerFigures]], None]
"""Called with the step and the figures of every layer, after each step that may move blocks."""

FigureSink = Callable[[int, Sequence[LayerFigures | GradientFigures]], None]
"""Takes the figures of topologies and of gradients alike; can be used as an `OnMove`."""


class ScalarWriter(Protocol):
    """What TensorBoard's ``SummaryWriter`` offers, and all that is needed of it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Write one value of one curve."""


def write_scalars(writer: ScalarWriter) -> FigureSink:
    """An ``on_move`` that writes each figure to ``writer``: ``topology/LAYER/FIGURE`` or ``gradient/LAYER/FIGURE``."""

    def sink(step: int, figures: Sequence[LayerFigures | GradientFigures]) -> None:
        for each in figures:
            kind = "topology" if isinstance(each, LayerFigures) else "gradient"
            for name, value in _values(each).items():
                writer.add_scalar(f"{kind}/{each.layer}/{name}", value, step)

    return sink


def print_figures(stream: TextIO | None = None) -> FigureSink:
    """An ``on_move`` that prints a line per layer, to the terminal or to ``stream``.

    >>> print_figures()(100, [LayerFigures(100, "fc1", density=0.1, flip_rate=0.3, explored=0.13)])
    step 100  fc1: density 0.1, flip_rate 0.3, explored 0.13
    """

    def sink(step: int, figures: Sequence[LayerFigures | GradientFigures]) -> None:
        for each in figures:
            values = ", ".join(f"{name} {value:.4g}" for name, value in _values(each).items())
            print(f"step {step}  {each.layer}: {values}", file=stream, flush=True)

    return sink


def _values(figures: LayerFigures | GradientFigures) -> dict[str, float]:
    return {name: value for name, value in vars(figures).items() if name not in ("step", "layer")}
