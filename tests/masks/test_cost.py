"""Densities from measured times."""

import pytest

from acf.errors import SparsityError
from acf.masks import LayerShape, kept_blocks
from acf.masks.cost import LayerCost, TimeLine, cheapest_choices, total_seconds
from acf.masks.distribution import erk_densities

SHAPES = [
    LayerShape("thin", (128, 128, 3, 3), 36),
    LayerShape("middle", (256, 256, 3, 3), 144),
    LayerShape("wide", (512, 512, 3, 3), 576),
]


def cost(shape: LayerShape, slope: float, dense: float = 1.0, fixed: float = 0.0) -> LayerCost:
    return LayerCost(shape, dense, (TimeLine(64, shape.block_count, fixed, slope),))


def costs(slopes: tuple[float, ...]) -> list[LayerCost]:
    return [cost(shape, slope) for shape, slope in zip(SHAPES, slopes, strict=True)]


def cost_densities(measured: list[LayerCost], density: float, seconds: float) -> list[float]:
    return [choice.density for choice in cheapest_choices(measured, density, seconds)]


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
    assert total_seconds(cheapest_choices(measured, density=0.1, seconds=seconds)) <= seconds


def test_a_layer_whose_blocks_cost_more_time_gets_fewer_of_them() -> None:
    even = cost_densities(costs((1.0, 1.0, 1.0)), density=0.1, seconds=0.5)
    dear = cost_densities(costs((4.0, 1.0, 1.0)), density=0.1, seconds=0.5)
    assert dear[0] < even[0]


def test_a_layer_that_is_never_faster_sparse_stays_dense() -> None:
    measured = [*costs((1.0, 1.0, 1.0))[1:], cost(SHAPES[0], 1.0, dense=0.1, fixed=0.2)]
    assert cost_densities(measured, density=0.2, seconds=10.0)[-1] == 1.0


def test_of_two_block_sizes_of_equal_speed_the_finer_is_taken() -> None:
    lines = (TimeLine(64, 36, 0.1, 1.0), TimeLine(32, 144, 0.1, 1.0))
    choices = cheapest_choices([LayerCost(SHAPES[0], 1.0, lines)], density=0.2, seconds=10.0)
    assert [choice.block for choice in choices] == [32]


def test_a_fine_block_that_takes_more_time_is_taken_in_the_thin_layer_first() -> None:
    shapes = [LayerShape("thin", (256, 256), 144), LayerShape("wide", (4096, 4096), 144)]
    lines = (TimeLine(64, 144, 0.1, 1.0), TimeLine(32, 144, 0.102, 1.02))
    found = cheapest_choices([LayerCost(shape, 2.0, lines) for shape in shapes], density=0.1, seconds=0.35)
    assert [choice.block for choice in found] == [32, 64]


def test_the_distribution_by_cost_asks_for_a_plan() -> None:
    with pytest.raises(SparsityError, match=r"acf\.plan\(model, example, spec\)"):
        kept_blocks(SHAPES, 0.9, "cost")
