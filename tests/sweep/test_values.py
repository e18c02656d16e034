"""A sweep as plain values, and back."""

import json
from pathlib import Path

import pytest

from acf.errors import ReportError
from acf.sweep.evaluation import Attempt, Objective
from acf.sweep.run import SweepRecord, SweepRow
from acf.sweep.values import sweep_from_values, sweep_values


def record() -> SweepRecord:
    rows = (
        SweepRow(Attempt({"tile": 8, "skip": "both"}, {"step_seconds": 1.0, "accuracy": 0.9}), on_front=True),
        SweepRow(Attempt({"tile": 12, "skip": "both"}, None, "tile 12 is not one of 8, 16, 32"), on_front=False),
    )
    shares = {"tile": {"step_seconds": 0.75, "accuracy": 0.5}, "skip": {"step_seconds": 0.25, "accuracy": 0.0}}
    return SweepRecord("sizes", (Objective("step_seconds"), Objective("accuracy", maximise=True)), rows, shares)


def test_a_sweep_is_the_same_after_json() -> None:
    values = json.loads(json.dumps(sweep_values(Path("sweep.sqlite"), record())))
    assert sweep_from_values(values) == record()


def test_values_of_something_else_are_refused() -> None:
    with pytest.raises(ReportError, match=r"no record of a sweep \(KeyError: 'objectives'\); pass its sweep.sqlite"):
        sweep_from_values({"points": []})
