"""Densities and block sizes from measured times: the best use of a budget of weights and of milliseconds.

ERK is the solution of a small optimisation problem: with ``fan`` the sum of a layer's weight shape and ``n`` its number
of weights, maximising ``sum(fan * log(density))`` under a budget of weights gives ``density ~ fan / n``, which is ERK's
rule. Here the same sum is maximised with a price on time beside the price on weights, so that a layer whose blocks cost
much time for what they add gets fewer of them, and a layer that is faster dense than at the density it wants stays
dense. Where a layer may have one of several block sizes, a coarse block counts as a lower density.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from acf.masks.distribution import LayerShape

DENSITIES = tuple(0.01 * 90 ** (index / 60) for index in range(61))
"""Densities a sparse layer may get, from 1 % to 90 % in equal ratios; 1.0 is always the dense layer."""

COARSENESS = 0.5
"""What a block as wide as its layer costs, in units of log(density).

Fitted on ResNet-18 over CIFAR-10 at 90 %, two seeds each: blocks of 32 in place of 64 in the stages of 128 and 256
channels gained as much accuracy as raising the densities of the middle stages by a third. Later runs of three seeds
show no effect of either (docs/results/training.md, "Blocks and densities by stage"), so it is small on purpose: it
decides between blocks that take about the same time.
"""

BISECTIONS = 60


@dataclass(frozen=True)
class TimeLine:
    """Seconds of a layer's three passes with blocks of side ``block``: ``fixed + slope * density``."""

    block: int
    block_count: int
    fixed_seconds: float
    slope_seconds: float

    def seconds(self, density: float) -> float:
        """Time at ``density``."""
        return self.fixed_seconds + self.slope_seconds * density


class LayerChoice(NamedTuple):
    """What a layer may be: its density (1.0 means dense), the side of its blocks (0 when dense), and its seconds."""

    density: float
    block: int
    seconds: float


@dataclass(frozen=True)
class LayerCost:
    """Seconds of one layer's three passes: dense, and block-sparse as one line for each block size."""

    shape: LayerShape
    dense_seconds: float
    lines: tuple[TimeLine, ...]

    @property
    def dense(self) -> LayerChoice:
        """The layer as it is."""
        return LayerChoice(1.0, 0, self.dense_seconds)

    def sparse(self, density: float) -> LayerChoice:
        """The layer at ``density`` with its first block size, or dense where that is as fast."""
        line = self.lines[0]
        choice = LayerChoice(density, line.block, line.seconds(density))
        return choice if density < 1.0 and choice.seconds < self.dense_seconds else self.dense

    def choices(self) -> list[LayerChoice]:
        """All that are worth considering: at least one block, and none that is slower than the dense layer."""
        found = [
            LayerChoice(density, line.block, line.seconds(density))
            for line in self.lines
            for density in (max(1.0 / line.block_count, grid) for grid in DENSITIES)
        ]
        return [*(choice for choice in found if choice.seconds < self.dense_seconds), self.dense]

    def quality(self, choice: LayerChoice) -> float:
        """ERK's term for this layer, less for blocks that are coarse beside it."""
        fan, width = float(sum(self.shape.weight_shape)), min(self.shape.weight_shape[:2])
        return fan * (log(choice.density) - COARSENESS * choice.block / width)


def cheapest_choices(costs: Sequence[LayerCost], density: float, seconds: float) -> list[LayerChoice]:
    """Choices with ``density`` of all weights at the most, that take ``seconds`` at the most where that is possible.

    Fewer weights than ``density`` are kept where the time allows no more.
    """
    budget = density * sum(cost.shape.weights for cost in costs)
    choices = [[(choice, cost.quality(choice)) for choice in cost.choices()] for cost in costs]

    def best(weight_price: float, time_price: float) -> list[LayerChoice]:
        return [
            max(
                options,
                key=lambda option: (
                    option[1] - weight_price * cost.shape.weights * option[0].density - time_price * option[0].seconds
                ),
            )[0]
            for cost, options in zip(costs, choices, strict=True)
        ]

    def within_weights(time_price: float) -> list[LayerChoice]:
        return _cheapest_price(
            lambda weight_price: best(weight_price, time_price), lambda chosen: _weights(costs, chosen) <= budget
        )

    return _cheapest_price(within_weights, lambda chosen: total_seconds(chosen) <= seconds)


def total_seconds(choices: Sequence[LayerChoice]) -> float:
    """Time of all layers."""
    return sum(choice.seconds for choice in choices)


def _weights(costs: Sequence[LayerCost], choices: Sequence[LayerChoice]) -> float:
    return sum(cost.shape.weights * choice.density for cost, choice in zip(costs, choices, strict=True))


def _cheapest_price(
    choose: Callable[[float], list[LayerChoice]], fits: Callable[[list[LayerChoice]], bool]
) -> list[LayerChoice]:
    """The choice at the lowest price at which it fits; at the highest price tried if it never does."""
    chosen = choose(0.0)
    if fits(chosen):
        return chosen
    low, high = 1e-12, 1e12
    best = choose(high)
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        chosen = choose(middle)
        if fits(chosen):
            high, best = middle, chosen
        else:
            low = middle
    return best
