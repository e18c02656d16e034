"""The plot of a record."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from acf.bench.training.plot import training_svg
from acf.bench.training.record import TrainingComparison
from acf.bench.training.run import RunLength
from acf.bench.training.task import TASKS
from acf.errors import DataError
from tests.bench.training.conftest import MakeRun

SVG = "{http://www.w3.org/2000/svg}"


def record(make_run: MakeRun, joules: float | None) -> TrainingComparison:
    runs = [
        make_run("dense", 0, 10.0, (9.0, 3.0, 2.0), joules=joules),
        make_run("dense", 1, 10.0, (9.0, 3.2, 2.2), joules=joules),
        make_run("static-90", 0, 5.0, (8.0, 2.8, 2.1), joules=joules),
        make_run("dense/width=512", 0, 4.0, (8.0, 2.8, float("nan")), joules=joules),
    ]
    return TrainingComparison(TASKS["gpt"], RunLength(epochs=1), False, [{"device": "<gpu>"}], runs)


def test_curves_by_seconds_and_joules_and_the_frontier_are_drawn(make_run: MakeRun) -> None:
    root = ElementTree.fromstring(training_svg(record(make_run, 50.0)))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"validation loss by seconds", "validation loss by joules", "seconds of training"} <= set(texts)
    assert "1  dense, mean of 2 runs" in texts
    assert (
        len(list(root.iter(f"{SVG}polyline"))) == 4 + 4 + 2
    )  # three curves and the baseline's final quality, twice; dense and sparse variants
    assert len(list(root.iter(f"{SVG}circle"))) == 2  # a variant that diverged has no place on the frontier
    assert any("gpt on <gpu>" in (text or "") for text in texts)


def test_without_a_meter_there_is_no_panel_of_joules_and_equal_times_compare_steps(make_run: MakeRun) -> None:
    equal = replace(record(make_run, None), length=RunLength(seconds=10.0))
    texts = [text.text for text in ElementTree.fromstring(training_svg(equal)).iter(f"{SVG}text")]
    assert "validation loss by joules" not in texts
    assert "ms per step" in texts
    assert "final validation loss, all variants, 10 s each" in texts


def test_a_name_longer_than_the_legend_is_squeezed_into_it(make_run: MakeRun) -> None:
    runs = [make_run(name, 0, 10.0, (2.0,), joules=None) for name in ("dense", "dense" + "/head_width=64" * 8)]
    drawn = training_svg(TrainingComparison(TASKS["gpt"], RunLength(epochs=1), False, [{}], runs))
    names = [text for text in ElementTree.fromstring(drawn).iter(f"{SVG}text") if "dense" in (text.text or "")]
    assert [text.get("textLength") for text in names] == [None, "800", None]


def test_a_record_without_runs_is_refused() -> None:
    with pytest.raises(DataError, match="no run"):
        training_svg(TrainingComparison(TASKS["gpt"], RunLength(), False))
