"""Runs are kept one by one, not repeated, and summed up by method."""

import json

import pytest
import torch

from acf.bench.accuracy.comparison import Comparison
from acf.bench.accuracy.pool import _Watch, run_tasks
from acf.bench.accuracy.training import RunRecord, TrainingSpec
from acf.bench.columns import accuracy_markdown
from acf.errors import DataError
from acf.zoo.data.images import DeviceImages, ImageSet

SPEC = TrainingSpec("fashion-mnist", "small", width=16, epochs=1, batch=16, learning_rate=0.05, examples=64)


def record(method: str, seed: int, accuracy: float, seconds: float = 1.0) -> RunRecord:
    return RunRecord(method, seed, accuracy, loss=1.0, seconds=seconds, sparsity=0.0)


@pytest.fixture
def images() -> ImageSet:
    """Ten classes that a pixel each tells apart, so that any method learns them."""
    labels = torch.arange(64) % 10
    pixels = torch.zeros(64, 12, 12, 1, dtype=torch.uint8)
    pixels[torch.arange(64), labels] = 255
    return ImageSet("stripes", 0, pixels, labels, pixels[:40], labels[:40])


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


def test_the_table_has_a_row_per_method_and_the_command():
    comparison = Comparison(
        SPEC, "stripes", "a machine", "2026-11-15", ["acf bench accuracy"], [record("dense", 0, 90.0)]
    )
    text = accuracy_markdown(comparison)
    assert "| dense | 1 | 90.00 ± 0.00 % | +0.00 |" in text
    assert "stripes; a machine; 2026-11-15" in text
    assert "    acf bench accuracy" in text


def test_a_run_follows_from_its_seed_alone(images):
    first, again, other = run_tasks(SPEC, images, [("dst-75", 0), ("dst-75", 0), ("dst-75", 1)], "cpu")
    assert (first.loss, first.accuracy) == (again.loss, again.accuracy)
    assert first.loss != other.loss


def test_moves_and_density_over_the_run_are_written_down(images):
    name = "dst-75/init=dense/shrink_until=0/start_at=0.5/stop_at=1/moves=2/distribution=uniform"
    (run,) = run_tasks(SPEC, images, [(name, 0)], "cpu")
    assert run.moves == 2  # after steps 2 and 4 of 4
    assert run.mean_density == pytest.approx((2 * 1.0 + 2 * 0.25) / 4, abs=0.01)


def test_two_workers_finish_the_good_runs_before_the_error_of_a_bad_one_is_raised(images):
    tasks = [("dense", 0), ("nonsense", 0), ("static-75", 0)]
    runs = run_tasks(SPEC, images, tasks, "cpu", workers=2)
    assert {next(runs).method, next(runs).method} == {"dense", "static-75"}
    with pytest.raises(ValueError, match="nonsense"):
        next(runs)


def test_no_run_is_begun_that_might_end_after_the_budget():
    now = [0.0]
    watch = _Watch(100.0, clock=lambda: now[0])
    watch.note(record("dense", 0, 90.0, seconds=40.0))
    now[0] = 60.0
    assert watch.has_time
    now[0] = 60.1
    assert not watch.has_time


def test_training_images_are_shifted_and_mirrored_each_on_its_own():
    ramp = torch.arange(36, dtype=torch.uint8).reshape(1, 6, 6, 1).repeat(32, 1, 1, 1)
    labels = torch.zeros(32, dtype=torch.int64)
    data = DeviceImages(ImageSet("ramp", 2, ramp, labels, ramp, labels), torch.device("cpu"))
    batch, _ = data.train_batch(torch.arange(32), torch.Generator().manual_seed(0))
    assert batch.shape == (32, 1, 6, 6)
    assert len({tuple(image.flatten().tolist()) for image in batch}) > 10
    centres = (batch[:, 0, 2:4, 2:4] * data.deviation + data.mean).round()
    assert centres.min() >= 0
    assert centres.max() <= 35
