"""Live figures of a moving topology, and where to send them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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


OnMove = Callable[[int, Sequence[LayerFigures]], None]
"""Called with the step and the figures of every layer, after each step that may move blocks."""


class ScalarWriter(Protocol):
    """What TensorBoard's ``SummaryWriter`` offers, and all that is needed of it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Write one value of one curve."""


def write_scalars(writer: ScalarWriter) -> OnMove:
    """An ``on_move`` that writes every figure to ``writer`` as ``topology/LAYER/FIGURE``."""

    def on_move(step: int, figures: Sequence[LayerFigures]) -> None:
        for each in figures:
            for name in ("density", "flip_rate", "explored"):
                writer.add_scalar(f"topology/{each.layer}/{name}", getattr(each, name), step)

    return on_move
