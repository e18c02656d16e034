"""Densities from measured times: the best use of a budget of weights and of milliseconds.

ERK is the solution of a small optimisation problem: with ``fan`` the sum of a layer's weight shape and ``n`` its number
of weights, maximising ``sum(fan * log(density))`` under a budget of weights gives ``density ~ fan / n``, which is ERK's
rule. Here the same sum is maximised with a price on time beside the price on weights, so that a layer whose blocks cost
much time for what they add gets fewer of them, and a layer that is faster dense than at the density it wants stays
dense.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from acf.masks.distribution import LayerShape

DENSITIES = tuple(0.01 * 90 ** (index / 60) for index in range(61))
"""Densities a sparse layer may get, from 1 % to 90 % in equal ratios; 1.0 is always the dense layer."""

BISECTIONS = 60


@dataclass(frozen=True)
class LayerCost:
    """Seconds of one layer's three passes: ``dense``, and ``fixed + slope * density`` when it is block-sparse."""

    shape: LayerShape
    dense_seconds: float
    fixed_seconds: float
    slope_seconds: float

    def seconds(self, density: float) -> float:
        """Time at ``density``; 1.0 means the dense layer."""
        return self.dense_seconds if density >= 1.0 else self.fixed_seconds + self.slope_seconds * density

    @property
    def fan(self) -> float:
        """Sum of the weight's dimensions, ERK's weight of a layer."""
        return float(sum(self.shape.weight_shape))

    def options(self) -> list[float]:
        """Densities worth considering: at least one block, and none that is slower than the dense layer."""
        least = 1.0 / self.shape.block_count
        sparse = [max(least, density) for density in DENSITIES]
        return [*(density for density in sparse if self.seconds(density) < self.dense_seconds), 1.0]


def cost_densities(costs: Sequence[LayerCost], density: float, seconds: float) -> list[float]:
    """Densities with ``density`` of all weights at the most, that take ``seconds`` at the most where that is possible.

    Fewer weights than ``density`` are kept where the time allows no more.
    """
    budget = density * sum(cost.shape.weights for cost in costs)

    def within_weights(time_price: float) -> list[float]:
        return _cheapest_price(
            lambda weight_price: _choose(costs, weight_price, time_price),
            lambda chosen: _weights(costs, chosen) <= budget,
        )

    return _cheapest_price(within_weights, lambda chosen: total_seconds(costs, chosen) <= seconds)


def total_seconds(costs: Sequence[LayerCost], densities: Sequence[float]) -> float:
    """Time of all layers at these densities."""
    return sum(cost.seconds(density) for cost, density in zip(costs, densities, strict=True))


def _weights(costs: Sequence[LayerCost], densities: Sequence[float]) -> float:
    return sum(cost.shape.weights * density for cost, density in zip(costs, densities, strict=True))


def _choose(costs: Sequence[LayerCost], weight_price: float, time_price: float) -> list[float]:
    """Every layer's best density when weights and seconds have these prices."""

    def worth(cost: LayerCost, density: float) -> float:
        price = weight_price * cost.shape.weights * density + time_price * cost.seconds(density)
        return cost.fan * log(density) - price

    return [max(cost.options(), key=lambda density: worth(cost, density)) for cost in costs]


def _cheapest_price(choose: Callable[[float], list[float]], fits: Callable[[list[float]], bool]) -> list[float]:
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
