"""Loss curves."""

from math import nan

from acf.bench.evaluation.plot import loss_curves, loss_svg
from acf.bench.evaluation.run import LossPoint, SystemRun


def run(system: str, seed: int, losses: list[float]) -> SystemRun:
    points = tuple(LossPoint(10 * (at + 1), loss) for at, loss in enumerate(losses))
    return SystemRun(system, seed, 30, 30, 1.0, 1.0, 0.0, None, "", 0.0, 0.0, 1, 0, {"top-1 %": 50.0}, losses=points)


def test_curves_are_means_over_seeds() -> None:
    runs = [run("dense", 0, [2.0, 1.0]), run("dense", 1, [4.0, 2.0]), run("dts-0.5", 0, [nan, 1.0])]
    assert loss_curves(runs) == {"dense": ((10.0, 3.0), (20.0, 1.5)), "dts-0.5": ((20.0, 1.0),)}


def test_the_plot_names_every_system_and_its_runs() -> None:
    text = loss_svg("a net", [run("dense", 0, [2.0, 1.0]), run("dense", 1, [4.0, 2.0])])
    assert text is not None
    assert "a net: training loss" in text
    assert "dense, mean of 2 runs" in text


def test_runs_of_earlier_versions_without_losses_give_no_plot() -> None:
    assert loss_svg("a net", [run("dense", 0, [])]) is None
