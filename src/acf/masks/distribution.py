"""Distributions: how the sparsity of a whole model is divided among its layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from acf.errors import SparsityError


@dataclass(frozen=True)
class LayerShape:
    """A layer as a distribution sees it: its name, dense weight shape and number of blocks.

    A layer of several experts has ``copies`` weights of that shape.
    """

    name: str
    weight_shape: tuple[int, ...]
    block_count: int
    copies: int = 1

    @property
    def weights(self) -> int:
        """Number of weights when dense."""
        return self.copies * prod(self.weight_shape)


def uniform_densities(layers: Sequence[LayerShape], density: float) -> list[float]:
    """Every layer keeps the same fraction of its blocks."""
    return [density] * len(layers)


def erk_densities(layers: Sequence[LayerShape], density: float) -> list[float]:
    """Erdos-Renyi-kernel: a layer's density is proportional to ``sum(shape) / prod(shape)``.

    Layers whose share would exceed 1 stay dense and the rest absorb the difference (RigL, Evci et al. 2020).
    The weighted mean density over all layers is ``density``.
    """
    raw = [layer.copies * sum(layer.weight_shape) / layer.weights for layer in layers]
    full: set[int] = set()
    while True:
        rest = [i for i in range(len(layers)) if i not in full]
        if not rest:
            return [1.0] * len(layers)
        budget = density * sum(layer.weights for layer in layers) - sum(layers[i].weights for i in full)
        scale = budget / sum(raw[i] * layers[i].weights for i in rest)
        overflowing = {i for i in rest if raw[i] * scale > 1.0}
        if not overflowing:
            return [1.0 if i in full else raw[i] * scale for i in range(len(layers))]
        full |= overflowing


def measured_densities(layers: Sequence[LayerShape], density: float) -> list[float]:
    """Refuse: densities by cost follow from times, which `acf.plan` measures."""
    raise SparsityError(
        "distribution 'cost' needs the times of the layers on this machine; "
        "pass acf.plan(model, example, spec) to sparsify_ instead of the spec"
    )


DISTRIBUTIONS: dict[str, Callable[[Sequence[LayerShape], float], list[float]]] = {
    "uniform": uniform_densities,
    "erk": erk_densities,
    "balanced": uniform_densities,  # and the same number of blocks in every block row, see `acf.masks.selection`
    "cost": measured_densities,  # see `acf.masks.cost`
}


def kept_blocks(layers: Sequence[LayerShape], sparsity: float, distribution: str) -> list[int]:
    """Blocks each layer keeps at ``sparsity``: at least one, so that no layer cuts the network in two.

    >>> kept_blocks([LayerShape("fc", (64, 64), 16)], sparsity=0.75, distribution="uniform")
    [4]
    """
    if distribution not in DISTRIBUTIONS:
        raise SparsityError(
            f"distribution {distribution!r} is not one of {', '.join(DISTRIBUTIONS)}; use one of these names"
        )
    densities = DISTRIBUTIONS[distribution](layers, 1.0 - sparsity)
    return [max(1, round(density * layer.block_count)) for density, layer in zip(densities, layers, strict=True)]
