"""One run as a value."""

from acf.bench.training.run import RunLength, TrainingRun, mean_curve, seconds_to
from tests.bench.training.conftest import MakeRun


def test_a_run_survives_its_record_with_joules_at_every_point(make_run: MakeRun) -> None:
    run = make_run("dense", 0, 4.0, (1.0, 2.0), joules=100.0)
    assert [point.joules for point in run.curve] == [50.0, 100.0]
    assert TrainingRun.from_dict(run.to_dict()) == run


def test_a_quality_reached_before_the_first_measurement_is_placed_there(make_run: MakeRun) -> None:
    assert seconds_to(make_run("dense", 0, 4.0, (3.0, 2.0)).curve, 3.5, higher_is_better=False) == 2.0


def test_curves_of_several_seeds_meet_at_their_ends(make_run: MakeRun) -> None:
    runs = [make_run("dense", 0, 4.0, (1.0, 2.0)), make_run("dense", 1, 6.0, (0.0, 2.0, 4.0))]
    assert [(point.seconds, point.quality) for point in mean_curve(runs)] == [(3.0, 1.5), (5.0, 3.0)]


def test_a_shortened_run_keeps_its_kind_of_length_and_is_measured_once() -> None:
    assert RunLength(steps=100).shortened(0.25) == RunLength(steps=25, measurements=1)
    assert RunLength(seconds=60.0).shortened(0.5) == RunLength(seconds=30.0, measurements=1)
