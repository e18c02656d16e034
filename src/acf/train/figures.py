"""Live figures of a changing topology and of sparse gradients, and sinks that print or write them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO, overload

import torch
from torch import nn

from acf.errors import SparsityError
from acf.gradients import tracking
from acf.nn import block_sparse_layers
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


class ImageWriter(ScalarWriter, Protocol):
    """The same with images, for the masks."""

    def add_image(self, tag: str, img_tensor: Any, global_step: int, *, dataformats: str) -> Any:
        """Write one picture of one series."""


@overload
def write_scalars(writer: ScalarWriter) -> FigureSink: ...
@overload
def write_scalars(writer: ImageWriter, masks_of: nn.Module) -> FigureSink: ...
def write_scalars(writer: Any, masks_of: nn.Module | None = None) -> FigureSink:
    """An ``on_move`` that writes each figure to ``writer``: ``topology/LAYER/FIGURE`` or ``gradient/LAYER/FIGURE``.

    With ``masks_of``, the model, the mask of every block-sparse layer is written too, as the image ``mask/LAYER``: one
    pixel per block, white where it is present.
    """
    layers = {} if masks_of is None else block_sparse_layers(unwrapped(masks_of))

    def sink(step: int, figures: Sequence[LayerFigures | GradientFigures]) -> None:
        for each in figures:
            kind = "topology" if isinstance(each, LayerFigures) else "gradient"
            for name, value in _values(each).items():
                writer.add_scalar(f"{kind}/{each.layer}/{name}", value, step)
        for layer_name, layer in layers.items():
            pixels = layer.mask().to("cpu", torch.uint8) * 255
            writer.add_image(f"mask/{layer_name}", pixels, step, dataformats="HW")

    return sink


def print_figures(stream: TextIO | None = None, per_layer: bool = False) -> FigureSink:
    """An ``on_move`` that prints one line, the means over all layers, to the terminal or to ``stream``.

    ``per_layer`` prints a line for each layer instead.

    >>> figures = [LayerFigures(100, name, density=0.1, flip_rate=0.3, explored=0.13) for name in ("fc1", "fc2")]
    >>> print_figures()(100, figures)
    step 100  mean of 2 layers: density 0.1, flip_rate 0.3, explored 0.13
    >>> print_figures(per_layer=True)(100, figures[:1])
    step 100  fc1: density 0.1, flip_rate 0.3, explored 0.13
    """
    if stream is not None and not hasattr(stream, "write"):
        raise SparsityError(
            f"print_figures was called with {stream!r}, which is no stream: it makes the function that prints; "
            "pass on_move=acf.print_figures()"
        )

    def sink(step: int, figures: Sequence[LayerFigures | GradientFigures]) -> None:
        lines = {each.layer: _values(each) for each in figures} if per_layer else _means(figures)
        for label, figures_of in lines.items():
            values = ", ".join(f"{name} {value:.4g}" for name, value in figures_of.items())
            print(f"step {step}  {label}: {values}", file=stream, flush=True)

    return sink


def _means(figures: Sequence[LayerFigures | GradientFigures]) -> dict[str, dict[str, float]]:
    """Means over layers by their number, once for topologies and once for gradients where both are given."""
    lines = {}
    for kind, of_what in ((LayerFigures, ""), (GradientFigures, "'s gradients")):
        values = [_values(each) for each in figures if type(each) is kind]
        if values:
            count = f"mean of {len(values)} layers" if len(values) > 1 else "1 layer"
            label = count + (of_what if len(values) == 1 else of_what.replace("'s", "'"))
            lines[label] = {name: sum(each[name] for each in values) / len(values) for name in values[0]}
    return lines


def _values(figures: LayerFigures | GradientFigures) -> dict[str, float]:
    return {name: value for name, value in vars(figures).items() if name not in ("step", "layer")}
