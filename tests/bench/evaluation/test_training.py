"""Runs that are interrupted go on exactly, and are measured and traced on the way."""

import pytest
import torch

from acf.bench.evaluation.resnet50 import ResNet50Task
from acf.bench.evaluation.run import STAGES
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.evaluation.systems import systems_of
from acf.bench.evaluation.training import RunPlan, train_system
from acf.bench.evaluation.transformer import TransformerTask
from acf.errors import DataError

PLAN = RunPlan(steps=6, measurements=2, checkpoint_every=2, idle_seconds=0.0)


class KilledError(Exception):
    """Stands for a process that ends in the middle."""


def kill_after(share: float):
    def on_step(done: float) -> None:
        if done >= share:
            raise KilledError

    return on_step


@pytest.mark.parametrize("kind", ["masked", "rigl"])
def test_a_run_that_was_killed_ends_like_one_that_was_not(
    kind: str, text_task: TransformerTask, store: EvaluationStore
) -> None:
    [system] = systems_of([kind], [0.5], 32)
    whole = train_system(text_task, system, 1, PLAN, store, lambda share: None)
    with pytest.raises(KilledError):
        train_system(text_task, system, 1, PLAN, store, kill_after(0.6))
    assert store.checkpoint(system.name, 1).exists()
    resumed = train_system(text_task, system, 1, PLAN, store, lambda share: None)
    assert resumed.resumed == 1
    assert resumed.metrics == whole.metrics
    assert [point.quality for point in resumed.curve] == [point.quality for point in whole.curve]
    assert (resumed.moves, resumed.timed_steps, resumed.outputs) == (whole.moves, whole.timed_steps, whole.outputs)
    assert whole.moves > 0


def test_masked_weights_keep_their_sparsity_and_learn(image_task: ResNet50Task, store: EvaluationStore) -> None:
    [system] = systems_of(["masked"], [0.9], 16)
    run = train_system(image_task, system, 0, PLAN, store, lambda share: None)
    assert run.sparsity == pytest.approx(0.9, abs=0.01)
    assert run.metrics["top-1 %"] <= run.metrics["top-2 %"] <= run.metrics["top-5 %"]
    assert run.examples_per_s == pytest.approx(16 * run.timed_steps / run.seconds)


def test_a_step_is_traced_at_start_middle_and_end(text_task: TransformerTask, store: EvaluationStore) -> None:
    [system] = systems_of(["dense"], [], 16)
    plan = RunPlan(steps=4, measurements=1, checkpoint_every=4, captured=2, idle_seconds=0.0)
    traced = train_system(text_task, system, 0, plan, store, lambda share: None)
    assert all(store.trace("dense", stage).exists() for stage in STAGES)
    plain = train_system(text_task, system, 0, RunPlan(4, 1, 4, idle_seconds=0.0), store, lambda share: None)
    assert traced.metrics == plain.metrics, "tracing changed the run"


def test_other_seeds_are_traced_after_their_last_step_alone(text_task: TransformerTask, store: EvaluationStore) -> None:
    (system,) = systems_of(["dense"], (0.5,), 16)
    plan = RunPlan(steps=4, measurements=1, checkpoint_every=4, captured=2, idle_seconds=0.0)
    train_system(text_task, system, 1, plan, store, lambda share: None)
    assert [path.name for path in (store.folder / "traces").iterdir()] == ["dense-end-seed1.safetensors"]


def test_an_out_of_memory_batch_says_which_to_pass(
    text_task: TransformerTask, store: EvaluationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*batch: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(text_task, "loss", exhausted)
    [system] = systems_of(["dense"], [], 16)
    with pytest.raises(DataError, match=r"a batch of 8 does not fit into the memory of this cpu .*pass --batch 4"):
        train_system(text_task, system, 0, PLAN, store, lambda share: None)


def test_the_first_trace_comes_after_a_twentieth_of_the_steps_and_of_few_steps_before_the_first() -> None:
    stages = {steps: RunPlan(steps, measurements=1, checkpoint_every=1).stage_steps() for steps in (6, 100)}
    assert stages == {
        6: {"start": 0, "middle": 3, "end": 6},
        100: {"start": 5, "middle": 50, "end": 100},
    }
