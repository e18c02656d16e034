"""The demo, shortened: every part is real, so its outputs must agree with each other."""

from dataclasses import replace
from pathlib import Path

import pytest

import acf
from acf.demo import DemoOutcome, DemoSpec, run_demo
from acf.metrics.run_history import RunReader
from acf.tables import training_table

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'adaptive-compute-fabric[demo]'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def outcome(folder: Path) -> DemoOutcome:
    return run_demo(DemoSpec(steps=60, every=10), folder)


def test_both_runs_learn(outcome: DemoOutcome) -> None:
    for record in outcome.records:
        assert record.test_accuracy > 0.8  # chance is 0.1
        assert record.losses[-1] < record.losses[0] / 2


def test_the_sparse_run_is_sparse_and_its_blocks_move(outcome: DemoOutcome) -> None:
    dense, sparse = outcome.records
    assert dense.weight_sparsity == 0.0
    assert dense.moved_blocks == ()
    assert 0.88 < sparse.weight_sparsity < 0.91
    assert [step for step, _ in sparse.moved_blocks] == [10, 20, 30, 40]
    assert all(moved > 0 for _, moved in sparse.moved_blocks)


def test_every_run_is_played_on_every_architecture(outcome: DemoOutcome) -> None:
    labels = [record.label for record in outcome.records]
    assert [(result.workload, result.architecture) for result in outcome.results] == [
        (label, name) for label in labels for name in ("tensorcore-512", "tensordash-512", "acf-512", "acf-512-wide")
    ]


def test_machines_have_equal_peak_and_sparsity_pays_on_the_fabric(outcome: DemoOutcome) -> None:
    assert len({result.peak_macs_per_s for result in outcome.results}) == 1
    by_name = {(result.workload, result.architecture): result for result in outcome.results}
    sparse, dense = by_name["sparse 90%", "acf-512"], by_name["dense", "acf-512"]
    assert sparse.speedup_over(dense) > 4
    assert sparse.energy_j < dense.energy_j / 2
    assert sparse.speedup_over(by_name["sparse 90%", "tensordash-512"]) > 1


def test_masks_are_recorded_over_time(outcome: DemoOutcome) -> None:
    dense, sparse = outcome.records
    assert dense.masks == ()
    assert {mask.step for mask in sparse.masks} == {0, 10, 20, 30, 40, 50, 60}
    assert len(sparse.test_seconds) == len(sparse.test_accuracies)


def test_energy_of_training_stands_beside_time_where_the_machine_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "powercap" / "intel-rapl:0"
    package.mkdir(parents=True)
    (package / "max_energy_range_uj").write_text("1000000000")
    (package / "energy_uj").write_text("5000000")
    monkeypatch.setattr("acf.metrics.meters.POWERCAP", tmp_path / "powercap")
    outcome = run_demo(DemoSpec(steps=2, every=1, architectures=("tensorcore-512",)), tmp_path / "out")
    assert [len(record.test_joules) for record in outcome.records] == [2, 2]
    assert outcome.energy_source == "RAPL energy of all packages"
    assert "Test accuracy by energy of training" in outcome.report_path.read_text()


def test_where_no_counter_can_be_read_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.metrics.meters.POWERCAP", tmp_path / "absent")
    outcome = run_demo(DemoSpec(steps=2, every=1, architectures=("tensorcore-512",)), tmp_path / "out")
    assert outcome.records[0].test_joules == ()
    assert "the system shows no RAPL counter" in outcome.energy_source
    titles = [column.header for column in training_table(outcome).columns]
    assert titles[-2:] == ["wall-clock time", "energy"]


def test_the_saved_traces_give_the_reported_cycles(outcome: DemoOutcome, folder: Path) -> None:
    trace = acf.Trace.load(folder / "sparse-90.safetensors")
    assert acf.simulate(trace, "acf-512-wide") == outcome.results[-1]


def test_the_report_shows_both_runs(outcome: DemoOutcome) -> None:
    page = outcome.report_path.read_text()
    assert "sparse 90%" in page
    assert "tensordash" in page


def test_the_same_seed_gives_the_same_step(tmp_path: Path) -> None:
    spec = DemoSpec(steps=4, every=2, architectures=("acf-512",))
    first, again, other = (run_demo(each, tmp_path) for each in (spec, spec, replace(spec, seed=1)))
    assert first.results == again.results
    assert first.records[1].losses == again.records[1].losses
    assert first.records[1].losses != other.records[1].losses


def test_a_short_demo_moves_blocks_too() -> None:
    policy = DemoSpec(steps=20).policy
    assert any(policy.moves_at(step) for step in range(1, 21))


def test_both_runs_can_be_watched(outcome: DemoOutcome, folder: Path) -> None:
    dense, sparse = (RunReader(folder / "runs" / name).update() for name in ("dense", "sparse-90"))
    assert (dense.state, sparse.state, sparse.step) == ("finished", "finished", 60)
    assert sparse.steps[-1].measured["accuracy"] == outcome.records[1].test_accuracy
    assert [move.step for move in sparse.moves] == [0, 10, 20, 30, 40]
