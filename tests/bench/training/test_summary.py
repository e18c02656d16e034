"""The row of a variant beside the baseline."""

import pytest

from acf.bench.training.summary import summarize
from tests.bench.training.conftest import MakeRun


def test_rows_compare_with_the_baseline(make_run: MakeRun) -> None:
    dense = [make_run("dense", 0, 10.0, (50.0, 90.0), joules=100.0)]
    sparse = [make_run("static-90", 0, 5.0, (80.0, 100.0), joules=50.0)]
    own, row = summarize(dense, dense, True), summarize(sparse, dense, True)
    assert (own.speedup, own.quality_gap, own.seconds_to_baseline, own.sooner) == (1.0, 0.0, 10.0, 1.0)
    assert (row.speedup, row.quality_gap, row.energy_ratio) == (2.0, 10.0, 2.0)
    assert row.seconds_to_baseline == pytest.approx(3.75)  # half-way between 80 % at 2.5 s and 100 % at 5 s
    assert row.sooner == pytest.approx(10.0 / 3.75)


def test_energy_is_compared_with_and_without_what_the_idle_device_draws(make_run: MakeRun) -> None:
    dense = make_run("dense", 0, 10.0, (90.0,), joules=5000.0, idle_watts=100.0)
    sparse = make_run("static-90", 0, 5.0, (90.0,), joules=2500.0, idle_watts=200.0)
    row = summarize([sparse], [dense], True)
    assert (row.energy_ratio, row.net_joules) == (2.0, 1500.0)
    assert row.net_energy_ratio == pytest.approx(4000.0 / 1500.0)
    unknown = make_run("static-90", 1, 5.0, (90.0,), joules=2500.0)
    assert summarize([unknown], [dense], True).net_energy_ratio is None


def test_a_loss_is_better_when_lower_and_may_never_be_reached(make_run: MakeRun) -> None:
    dense, sparse = make_run("dense", 0, 10.0, (3.0, 2.0)), make_run("static-90", 0, 5.0, (3.0, 2.5))
    row = summarize([sparse], [dense], False)
    assert row.quality_gap == -0.5
    assert row.seconds_to_baseline is None
    assert row.sooner is None
    assert row.energy_ratio is None


def test_compilation_counts_as_at_the_first_use(make_run: MakeRun) -> None:
    first = make_run("dense", 0, 10.0, (1.0, 2.0), compile_seconds=20.0)
    later = make_run("dense", 1, 10.0, (1.0, 2.0), compile_seconds=1.0)
    row = summarize([first, later], [first], True)
    assert (row.compile_seconds, row.whole_seconds) == (20.0, 30.0)
    assert summarize([later], [first], True, longest_trial_compile_seconds=30.0).whole_seconds == 40.0


def test_the_mean_of_the_baseline_reaches_its_own_final_quality_though_not_every_seed_does(make_run: MakeRun) -> None:
    runs = [make_run("dense", seed, 10.0, (50.0, end)) for seed, end in enumerate((89.1, 90.3, 90.9))]
    assert summarize(runs, runs, True).sooner == 1.0
