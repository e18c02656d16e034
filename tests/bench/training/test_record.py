"""Records of runs: what a damaged, an early and several of them mean."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from acf.bench.training.record import TrainingComparison, Trial, load_comparison, merge
from acf.bench.training.run import RunLength
from acf.bench.training.task import TASKS
from acf.errors import DataError, FileError
from tests.bench.training.conftest import MakeRun

LENGTH = RunLength(epochs=1, measurements=2)
PUBLISHED = Path(__file__).parents[3] / "docs" / "results" / "training-resnet18-blocks64.json"


def record(*runs: object, **session: str) -> TrainingComparison:
    return TrainingComparison(TASKS["resnet18"], LENGTH, True, [{"device": "gpu", "torch": "2", **session}], list(runs))


def trial(rate: float, quality: float | None) -> Trial:
    return Trial("dense", rate, 0.1, quality, steps=1, seconds=1.0, compile_seconds=0.0)


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text('{"task": {}}')
    with pytest.raises(FileError, match="no record of `acf bench training`"):
        load_comparison(tmp_path / "runs.json")


def test_an_early_record_is_read_and_its_compilation_follows_from_its_warm_up() -> None:
    published = load_comparison(PUBLISHED)
    assert published.sessions[0]["device"] == "NVIDIA H200"
    kept = json.loads(PUBLISHED.read_text())["summaries"]
    assert [row.speedup for row in published.summaries()] == pytest.approx([row["speedup"] for row in kept])
    first = published.runs[0]
    assert first.compile_seconds == pytest.approx(first.warm_up_seconds - 6 * first.step_ms / 1e3)


def test_records_of_several_sessions_are_shown_together_and_keep_their_origin(make_run: MakeRun) -> None:
    shared = make_run("dense", 0, 10.0, (90.0,))
    one = record(shared, date="monday")
    two = record(make_run("dense", 0, 12.0, (92.0,)), make_run("static-90", 0, 5.0, (91.0,)), date="tuesday")
    merged = merge([(Path("one"), one), (Path("two"), two), (Path("one"), one)])
    assert [(run.variant, merged.sessions[run.session]["date"]) for run in merged.runs] == [
        ("dense", "monday"),
        ("dense", "tuesday"),
        ("static-90", "tuesday"),
    ]
    assert merged.summaries()[1].speedup == pytest.approx(11.0 / 5.0)
    assert one.runs == [shared]


def test_records_that_cannot_stand_together_are_refused_by_name(make_run: MakeRun) -> None:
    run = make_run("dense", 0, 10.0, (90.0,), rate=0.4, weight_decay=0.1)
    ours = (Path("ours"), record(run))
    with pytest.raises(DataError, match="theirs has device abacus, and this comparison gpu"):
        merge([ours, (Path("theirs"), record(device="abacus"))])
    with pytest.raises(DataError, match=r"theirs has length\.measurements 5"):
        merge([ours, (Path("theirs"), replace(record(), length=replace(LENGTH, measurements=5)))])
    with pytest.raises(DataError, match=r"learning rate 0\.4 and at 0\.8 \(theirs\)"):
        merge([ours, (Path("theirs"), record(replace(run, rate=0.8)))])


def test_the_best_trial_is_of_the_highest_accuracy_or_the_lowest_loss() -> None:
    trials = [trial(0.1, 2.0), trial(0.2, 3.0), trial(0.4, None)]
    assert replace(record(), trials=trials).best_trial("dense") == trials[1]
    assert replace(record(), trials=trials, higher_is_better=False).best_trial("dense") == trials[0]
    assert record().best_trial("dense") is None


def test_only_a_best_rate_inside_those_tried_is_beyond_doubt() -> None:
    inside = replace(record(), trials=[trial(0.1, 1.0), trial(0.2, 3.0), trial(0.4, 2.0)])
    assert inside.at_the_edge() == []
    assert replace(inside, higher_is_better=False).at_the_edge() == ["dense"]


def test_a_run_that_diverged_is_null_in_the_file_and_diverged_when_read_again(
    tmp_path: Path, make_run: MakeRun
) -> None:
    runs = [make_run("dense", 0, 10.0, (90.0,)), make_run("static-90", 0, 5.0, (80.0, float("nan")))]
    record(*runs).save(tmp_path / "runs.json")
    text = (tmp_path / "runs.json").read_text()
    assert "NaN" not in text
    values = json.loads(text)["data"]
    assert values["runs"][1]["quality"] is None
    assert [point["quality"] for point in values["runs"][1]["curve"]] == [80.0, None]
    assert (values["summaries"][1]["quality"], values["summaries"][1]["diverged"]) == (None, 1)
    read = load_comparison(tmp_path / "runs.json")
    assert [run.diverged for run in read.runs] == [False, True]
    assert read.summaries()[1].seconds_to_baseline is None
