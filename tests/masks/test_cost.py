"""Densities from measured times."""

import pytest

from acf.errors import SparsityError
from acf.masks import LayerShape, kept_blocks
from acf.masks.cost import LayerCost, cost_densities, total_seconds
from acf.masks.distribution import erk_densities

SHAPES = [
    LayerShape("thin", (128, 128, 3, 3), 36),
    LayerShape("middle", (256, 256, 3, 3), 144),
    LayerShape("wide", (512, 512, 3, 3), 576),
]


def costs(slopes: tuple[float, ...], dense: float = 1.0, fixed: float = 0.0) -> list[LayerCost]:
    return [LayerCost(shape, dense, fixed, slope) for shape, slope in zip(SHAPES, slopes, strict=True)]


def test_where_time_costs_nothing_the_densities_follow_erk() -> None:
    chosen = cost_densities(costs((0.0, 0.0, 0.0)), density=0.1, seconds=1.0)
    wanted = erk_densities(SHAPES, 0.1)
    assert chosen == sorted(chosen, reverse=True)
    for density, erk in zip(chosen, wanted, strict=True):
        assert density == pytest.approx(erk, rel=0.08)  # the grid of densities is that coarse


def test_no_more_weights_are_kept_than_asked_for() -> None:
    chosen = cost_densities(costs((1.0, 1.0, 1.0)), density=0.1, seconds=10.0)
    kept = sum(density * shape.weights for density, shape in zip(chosen, SHAPES, strict=True))
    assert kept <= 0.1 * sum(shape.weights for shape in SHAPES)


@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.6])
def test_the_time_is_kept_to(seconds: float) -> None:
    measured = costs((1.0, 1.0, 1.0))
    assert total_seconds(measured, cost_densities(measured, density=0.1, seconds=seconds)) <= seconds


def test_a_layer_whose_blocks_cost_more_time_gets_fewer_of_them() -> None:
    even = cost_densities(costs((1.0, 1.0, 1.0)), density=0.1, seconds=0.5)
    dear = cost_densities(costs((4.0, 1.0, 1.0)), density=0.1, seconds=0.5)
    assert dear[0] < even[0]


def test_a_layer_that_is_never_faster_sparse_stays_dense() -> None:
    measured = [*costs((1.0, 1.0, 1.0))[1:], LayerCost(SHAPES[0], 0.1, 0.2, 1.0)]
    assert cost_densities(measured, density=0.2, seconds=10.0)[-1] == 1.0


def test_the_distribution_by_cost_asks_for_a_plan() -> None:
    with pytest.raises(SparsityError, match=r"acf\.plan\(model, example, spec\)"):
        kept_blocks(SHAPES, 0.9, "cost")
