"""Records of training runs on the page of `acf report`."""

from pathlib import Path

from acf.bench.training.page import training_section
from acf.bench.training.record import load_comparison

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def test_every_variant_has_a_curve_by_seconds_and_by_joules_and_a_row() -> None:
    comparison = load_comparison(RESULTS / "training-resnet18.json")
    section = training_section(comparison)
    assert section.title == f"Training: {comparison.task.name}, width {comparison.task.width}"
    assert [plot.title for plot in section.plots] == [
        f"{comparison.task.quality} by {cost}" for cost in ("seconds", "joules")
    ]
    for plot in section.plots:
        names = [trace.name for trace in plot.figure.data]
        assert len(set(names)) == len(names) == len(comparison.variants())  # shortened, and still different
        assert plot.caption.startswith("Up and left is better")
    variants, *trials = section.tables
    assert [row[0] for row in variants.table.rows] == comparison.variants()
    assert [len(table.table.rows) for table in trials] == ([len(comparison.trials)] if comparison.trials else [])
