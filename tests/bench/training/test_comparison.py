"""Variants beside each other: alternation, resuming, and what the rows say."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acf.bench.training.comparison import ComparisonOptions, TrainingComparison, compare_variants, load_comparison
from acf.bench.training.run import CurvePoint, RunLength, TrainingRun
from acf.bench.training.task import TASKS, Task, load_task
from acf.errors import DataError, FileError

LENGTH = RunLength(epochs=1, measurements=2)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Random grey images in the layout of Fashion-MNIST; class c has bright rows c and c + 1, so it can be learnt."""
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for part, count in (("train", 512), ("t10k", 128)):
        labels = generator.integers(0, 10, count).astype(np.uint8)
        images = generator.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 2] += 180
        for name, values in ((f"{part}-images-idx3-ubyte.gz", images), (f"{part}-labels-idx1-ubyte.gz", labels)):
            header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
            (folder / name).write_bytes(gzip.compress(header + values.tobytes()))
    return load_task(TASKS["small"], tmp_path, tmp_path / "cache", torch.device("cpu"))


def run(
    variant: str, seed: int, seconds: float, qualities: tuple[float, ...], joules: float | None = None
) -> TrainingRun:
    curve = tuple(CurvePoint(i + 1, seconds * (i + 1) / len(qualities), q) for i, q in enumerate(qualities))
    return TrainingRun(
        variant=variant,
        seed=seed,
        steps=len(qualities),
        seconds=seconds,
        warm_up_seconds=1.0,
        step_ms=1.0,
        peak_gib=1.0,
        quality=qualities[-1],
        sparsity=0.0,
        parameters=1,
        moves=0,
        joules=joules,
        idle_watts=None,
        energy_source="",
        curve=curve,
    )


def test_variants_take_turns_and_a_second_call_makes_no_run_again(task: Task, tmp_path: Path) -> None:
    options = ComparisonOptions(("dense", "rigl-50/block=16/moves=2"), seeds=2, out=tmp_path / "runs.json")
    first = compare_variants(task, LENGTH, options, lambda what, share: None)
    assert [(each.variant.partition("-")[0], each.seed) for each in first.runs] == [
        ("dense", 0),
        ("rigl", 0),
        ("dense", 1),
        ("rigl", 1),
    ]
    assert all(each.quality > 15.0 for each in first.runs)
    assert first.runs[1].moves >= 1
    again = compare_variants(task, LENGTH, options, lambda what, share: pytest.fail("a run was made again"))
    assert again.to_dict() == load_comparison(tmp_path / "runs.json").to_dict() == first.to_dict()


def test_a_record_of_another_task_is_not_continued(task: Task, tmp_path: Path) -> None:
    other = TrainingComparison(replace(task.spec, batch=7), LENGTH, True, {})
    other.save(tmp_path / "runs.json")
    with pytest.raises(DataError, match="another task or length"):
        compare_variants(task, LENGTH, ComparisonOptions(("dense",), 1, tmp_path / "runs.json"), lambda *_: None)


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text('{"task": {}}')
    with pytest.raises(FileError, match="no record of `acf bench training`"):
        load_comparison(tmp_path / "runs.json")


def test_rows_compare_with_the_first_variant() -> None:
    comparison = TrainingComparison(TASKS["resnet18"], LENGTH, True, {})
    comparison.runs += [run("dense", 0, 10.0, (50.0, 90.0), 100.0), run("static-90", 0, 5.0, (80.0, 100.0), 50.0)]
    dense, sparse = comparison.summaries()
    assert (dense.speedup, dense.quality_gap, dense.seconds_to_baseline) == (1.0, 0.0, 10.0)
    assert (sparse.speedup, sparse.quality_gap, sparse.energy_ratio) == (2.0, 10.0, 2.0)
    assert sparse.seconds_to_baseline == pytest.approx(3.75)  # half-way between 80 % at 2.5 s and 100 % at 5 s


def test_a_loss_is_better_when_lower_and_may_never_be_reached() -> None:
    comparison = TrainingComparison(TASKS["gpt"], LENGTH, False, {})
    comparison.runs += [run("dense", 0, 10.0, (3.0, 2.0)), run("static-90", 0, 5.0, (3.0, 2.5))]
    sparse = comparison.summaries()[1]
    assert sparse.quality_gap == -0.5
    assert sparse.seconds_to_baseline is None
    assert sparse.energy_ratio is None


def test_without_data_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pass --data"):
        load_task(TASKS["gpt"], None, tmp_path, torch.device("cpu"))
