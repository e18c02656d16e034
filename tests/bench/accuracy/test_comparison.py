"""Runs are kept one by one, not repeated, and summed up by method."""

import json
from pathlib import Path

import pytest

from acf.bench.accuracy.comparison import Comparison
from acf.bench.accuracy.training import RunRecord, TrainingSpec
from acf.errors import DataError

SPEC = TrainingSpec("fashion-mnist", "small", width=16, epochs=1, batch=16, learning_rate=0.05, examples=64)


def record(method: str, seed: int, accuracy: float, seconds: float = 1.0) -> RunRecord:
    return RunRecord(method, seed, accuracy, loss=1.0, seconds=seconds, sparsity=0.0)


def test_what_is_pending_goes_seed_by_seed_and_leaves_out_what_is_done():
    comparison = Comparison(SPEC, runs=[record("dense", 0, 90.0)])
    assert comparison.pending(["dense", "dst-90"], range(2)) == [("dst-90", 0), ("dense", 1), ("dst-90", 1)]


def test_summaries_give_mean_deviation_and_difference_to_dense():
    runs = [record("dense", 0, 90.0), record("dense", 1, 92.0), record("set-90", 0, 88.0)]
    dense, rival = Comparison(SPEC, runs=runs).summaries()
    assert (dense.accuracy, dense.deviation, dense.to_dense) == (91.0, 1.414, 0.0)
    assert (rival.accuracy, rival.deviation, rival.to_dense, rival.seeds) == (88.0, 0.0, -3.0, 1)


def test_a_saved_comparison_is_continued_and_one_of_other_options_is_refused(tmp_path):
    path = tmp_path / "runs.json"
    comparison = Comparison(
        SPEC, "stripes", "a machine", "2026-11-15", ["acf bench accuracy"], [record("dense", 0, 90.0)]
    )
    comparison.save(path)
    assert Comparison.resume(path, SPEC) == comparison
    with pytest.raises(DataError, match="holds runs with width 16, not 32; pass another --out"):
        Comparison.resume(path, TrainingSpec("fashion-mnist", "small", 32, 1, 16, 0.05, examples=64))
    path.write_text(json.dumps({"runs": 3}))
    with pytest.raises(DataError, match="holds no accuracy comparison"):
        Comparison.resume(path, SPEC)


def test_a_device_holds_no_runs_to_go_on_with() -> None:
    assert Comparison.resume(Path("/dev/zero"), SPEC) == Comparison(SPEC)
