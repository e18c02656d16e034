"""Variants beside each other: alternation, resuming, tuned learning rates."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from acf.bench.training import comparison, session, tuning
from acf.bench.training.comparison import ComparisonOptions, compare_variants
from acf.bench.training.image_task import ImageTask
from acf.bench.training.loop import Assignment
from acf.bench.training.record import TrainingComparison, load_comparison
from acf.bench.training.run import RunLength, TrainingRun
from acf.bench.training.task import Task
from acf.bench.training.tuning import TuningOptions, try_settings
from acf.bench.training.variant import Variant
from acf.errors import DataError
from acf.nn.plan import PlannedLayer, SparsityPlan
from tests.bench.training.conftest import MakeRun

OnStep = Callable[[float], None]

LENGTH = RunLength(epochs=1, measurements=2)
SHORT = RunLength(steps=2, measurements=1)


def silent(what: str, share: float) -> None:
    assert 0.0 <= share <= 1.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, make_run: MakeRun) -> None:
    """Nothing is trained; quality is best at a learning rate of 0.4, and held-out data is a point easier."""

    def made(
        task: ImageTask,
        variant: Variant,
        seed: int,
        length: RunLength,
        on_step: OnStep = print,
        log_folder: Path | None = None,
    ) -> TrainingRun:
        sizes = variant.sizes(task.spec)
        if on_step is not print:
            on_step(1.0)
        easier = 1.0 if len(task.images) < 320 else 0.0
        quality = 90.0 - 10.0 * abs(sizes.rate - 0.4) + easier
        settings = {"rate": sizes.rate, "weight_decay": sizes.weight_decay}
        return make_run(variant.name, seed, 1.0, (quality,), **settings)

    def made_in_turns(
        task: ImageTask, assignments: list[Assignment], seed: int, length: RunLength
    ) -> list[TrainingRun]:
        return [made(task, each.variant, seed, length, each.on_step, each.log_folder) for each in assignments]

    monkeypatch.setattr(comparison, "train_in_turns", made_in_turns)
    monkeypatch.setattr(tuning, "train_variant", made)


def test_a_second_call_makes_no_run_again(image_task: Task, tmp_path: Path) -> None:
    options = ComparisonOptions(("dense", "rigl-50/block=16/moves=2"), seeds=1, out=tmp_path / "runs.json")
    first = compare_variants(image_task, LENGTH, options, silent)
    assert all(each.quality > 15.0 for each in first.runs)
    assert first.runs[1].moves >= 1
    again = compare_variants(image_task, LENGTH, options, lambda what, share: pytest.fail("a run was made again"))
    assert again.to_dict() == load_comparison(tmp_path / "runs.json").to_dict() == first.to_dict()


@pytest.mark.usefixtures("quick")
def test_variants_take_turns(image_task: Task) -> None:
    options = ComparisonOptions(("dense", "static-50/block=16"), seeds=2)
    runs = compare_variants(image_task, SHORT, options, silent).runs
    assert [(run.variant.partition("-")[0], run.seed) for run in runs] == [
        ("dense", 0),
        ("static", 0),
        ("dense", 1),
        ("static", 1),
    ]


@pytest.mark.usefixtures("quick")
def test_interleaved_variants_of_a_seed_train_together_but_for_those_that_the_record_has(
    image_task: Task, tmp_path: Path
) -> None:
    path, told = tmp_path / "runs.json", []
    compare_variants(image_task, SHORT, ComparisonOptions(("dense",), 1, path), silent)
    options = ComparisonOptions(("dense", "static-50/block=16", "static-75/block=16"), 2, path, interleaved=True)
    runs = compare_variants(image_task, SHORT, options, lambda what, share: told.append((what, share))).runs
    assert [(run.variant.partition("/")[0], run.seed) for run in runs] == [
        ("dense", 0),
        ("static-50", 0),
        ("static-75", 0),
        ("dense", 1),
        ("static-50", 1),
        ("static-75", 1),
    ]
    assert [share for _, share in told] == pytest.approx([each / 6 for each in range(2, 7)])
    assert told[0][0] == "static-50/block=16, seed 0"


@pytest.mark.usefixtures("quick")
def test_what_a_stopped_call_has_finished_is_kept(image_task: Task, tmp_path: Path) -> None:
    options = ComparisonOptions(("dense",), seeds=3, out=tmp_path / "runs.json", command="first")

    def stop_in_the_second(what: str, share: float) -> None:
        if "seed 1" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_variants(image_task, SHORT, options, stop_in_the_second)
    assert [run.seed for run in load_comparison(tmp_path / "runs.json").runs] == [0]
    done = compare_variants(image_task, SHORT, replace(options, command="second"), silent)
    assert [(run.seed, done.sessions[run.session]["command"]) for run in done.runs] == [
        (0, "first"),
        (1, "second"),
        (2, "second"),
    ]


@pytest.mark.usefixtures("quick")
def test_a_record_of_another_task_machine_or_data_is_not_continued(image_task: Task, tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    options = ComparisonOptions(("dense",), 1, path)
    TrainingComparison(replace(image_task.spec, batch=7), SHORT, True, [{}]).save(path)
    with pytest.raises(DataError, match=r"task\.batch 7, and this comparison 32"):
        compare_variants(image_task, SHORT, options, silent)
    TrainingComparison(image_task.spec, replace(SHORT, steps=9), True, [{}]).save(path)
    with pytest.raises(DataError, match=r"length\.steps 9, and this comparison 2"):
        compare_variants(image_task, SHORT, options, silent)
    TrainingComparison(image_task.spec, SHORT, True, [{"device": "abacus"}]).save(path)
    with pytest.raises(DataError, match="device abacus"):
        compare_variants(image_task, SHORT, options, silent)
    TrainingComparison(image_task.spec, SHORT, True, [{"data": "other images"}]).save(path)
    with pytest.raises(DataError, match=r"data other images, and this comparison .*320 training, 64 test images"):
        compare_variants(image_task, SHORT, options, silent)


@pytest.mark.usefixtures("quick")
def test_every_variant_trains_at_its_best_rate_and_all_that_was_tried_is_kept(image_task: Task, tmp_path: Path) -> None:
    names, path = ("dense", "static-50/block=16", "dense/rate=0.3"), tmp_path / "runs.json"
    options = ComparisonOptions(names, 2, path, TuningOptions(rates=(0.1, 0.3, 0.5, 0.8), share=0.5))
    done = compare_variants(image_task, SHORT, options, silent)
    assert [(trial.variant, trial.rate) for trial in done.trials] == [
        (variant, rate) for variant in names[:2] for rate in (0.1, 0.3, 0.5, 0.8)
    ]
    assert [trial.quality for trial in done.trials[:4]] == pytest.approx([88.0, 90.0, 90.0, 87.0])
    assert [(run.rate, run.quality) for run in done.runs[:3]] == [(0.3, 89.0), (0.3, 89.0), (0.3, 89.0)]
    assert json.loads(path.read_text())["data"]["tuning_share"] == 0.5
    again = compare_variants(image_task, SHORT, options, lambda what, share: pytest.fail("a run was made again"))
    assert again == done


@pytest.mark.usefixtures("quick")
def test_a_record_at_another_learning_rate_is_not_continued(image_task: Task, tmp_path: Path) -> None:
    tuned = ComparisonOptions(("dense",), 1, tmp_path / "runs.json", TuningOptions(rates=(0.1,)))
    compare_variants(image_task, SHORT, tuned, silent)
    with pytest.raises(DataError, match=r"dense has runs at the learning rate 0\.1 and at 0\.2"):
        compare_variants(image_task, SHORT, replace(tuned, tuning=TuningOptions()), silent)
    with pytest.raises(DataError, match=r"tuning_share 1\.0, and this comparison 0\.5"):
        compare_variants(image_task, SHORT, replace(tuned, tuning=TuningOptions(rates=(0.1,), share=0.5)), silent)


def test_a_trial_trains_on_the_part_that_is_not_held_out(image_task: ImageTask) -> None:
    variant = Variant.parse("dense/rate=0.05")
    trial = try_settings(image_task.for_tuning(), variant, RunLength(epochs=1, measurements=1))
    assert (trial.rate, trial.steps) == (0.05, 288 // 32)
    assert trial.quality is not None


def test_the_record_keeps_the_density_and_block_of_every_planned_layer(
    text_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = (PlannedLayer("blocks.0.mlp.0", 0.5, 2.0, 1.0, block=32), PlannedLayer("blocks.0.mlp.2", 1.0, 1.0, 1.0))
    monkeypatch.setattr(session, "plan", lambda model, example, spec, *_: SparsityPlan(spec, layers, 4.0, 3.0))
    options = ComparisonOptions(("static-50/block=16/distribution=cost",), seeds=1, out=tmp_path / "runs.json")
    [run] = compare_variants(text_task, SHORT, options, silent).runs
    assert (run.planned_layers, run.planned_speedup) == (layers, pytest.approx(4 / 3))
    assert load_comparison(tmp_path / "runs.json").runs == [run]
