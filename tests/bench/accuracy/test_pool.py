"""Runs follow from their seed, one after another or in processes, and stop in time."""

import pytest
import torch

from acf.bench.accuracy.pool import Workers, _Watch, run_tasks
from acf.bench.accuracy.training import RunRecord, TrainingSpec
from acf.zoo.data.images import ImageSet

SPEC = TrainingSpec("fashion-mnist", "small", width=16, epochs=1, batch=16, learning_rate=0.05, examples=64)


@pytest.fixture
def images() -> ImageSet:
    """Ten classes that a pixel each tells apart, so that any method learns them."""
    labels = torch.arange(64) % 10
    pixels = torch.zeros(64, 12, 12, 1, dtype=torch.uint8)
    pixels[torch.arange(64), labels] = 255
    return ImageSet("stripes", 0, pixels, labels, pixels[:40], labels[:40])


def test_a_run_follows_from_its_seed_alone(images):
    first, again, other = run_tasks(SPEC, images, [("dst-75", 0), ("dst-75", 0), ("dst-75", 1)], Workers())
    assert (first.loss, first.accuracy) == (again.loss, again.accuracy)
    assert first.loss != other.loss


def test_moves_and_density_over_the_run_are_written_down(images):
    name = "dst-75/init=dense/shrink_until=0/start_at=0.5/stop_at=1/moves=2/distribution=uniform"
    (run,) = run_tasks(SPEC, images, [(name, 0)], Workers())
    assert run.moves == 2  # after steps 2 and 4 of 4
    assert run.mean_density == pytest.approx((2 * 1.0 + 2 * 0.25) / 4, abs=0.01)


def test_two_workers_finish_the_good_runs_before_the_error_of_a_bad_one_is_raised(images):
    tasks = [("dense", 0), ("nonsense", 0), ("static-75", 0)]
    runs = run_tasks(SPEC, images, tasks, Workers(count=2))
    assert {next(runs).method, next(runs).method} == {"dense", "static-75"}
    with pytest.raises(ValueError, match="nonsense"):
        next(runs)


def test_no_run_is_begun_that_might_end_after_the_budget():
    now = [0.0]
    watch = _Watch(100.0, clock=lambda: now[0])
    watch.note(RunRecord("dense", 0, accuracy=90.0, loss=1.0, seconds=40.0, sparsity=0.0))
    now[0] = 60.0
    assert watch.has_time
    now[0] = 60.1
    assert not watch.has_time
