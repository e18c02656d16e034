"""What a training session refuses before anything is trained, and what it compiles."""

from dataclasses import replace

import pytest
import torch

from acf.bench.training.image_task import ImageTask
from acf.bench.training.schedule import StepSchedule
from acf.bench.training.session import TrainingSession, refuse_unfit
from acf.bench.training.task import Task
from acf.bench.training.variant import Variant
from acf.errors import SparsityError


@pytest.mark.parametrize("distribution", ["uniform", "cost"])
def test_a_block_that_does_not_divide_a_layer_is_refused_whatever_the_distribution(
    image_task: ImageTask, distribution: str
) -> None:
    with pytest.raises(SparsityError, match=r"block=48.*block 48 does not divide.*use a block that does"):
        refuse_unfit(image_task, [Variant.parse(f"static-90/block=48/distribution={distribution}/width=64")])


def test_a_plan_that_chooses_among_blocks_is_not_refused_for_one_that_does_not_divide(image_task: ImageTask) -> None:
    assert is_refused(image_task, "static-90/block=48/distribution=cost/width=64")
    assert not is_refused(image_task, "static-90/block=48/distribution=cost/plan_blocks=32+48/width=64")


def is_refused(task: ImageTask, variant: str) -> bool:
    try:
        refuse_unfit(task, [Variant.parse(variant)])
    except SparsityError:
        return True
    return False


def test_dense_experts_are_refused_on_a_gpu_whose_graphs_cannot_wait_for_token_counts(text_task: Task) -> None:
    dense = Variant.parse("dense/experts=2/width=128")
    refuse_unfit(text_task, [dense])
    text_task.device = torch.device("cuda")
    with pytest.raises(SparsityError, match=r"dense experts wait for the host.*keep all blocks instead: static-0/"):
        refuse_unfit(text_task, [dense])


@pytest.mark.parametrize("compiled", [False, True])
def test_the_loss_is_compiled_on_a_cpu_only_where_that_is_asked_for(
    text_task: Task, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_functions: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda function: compiled_functions.append(function) or function)
    text_task.spec = replace(text_task.spec, compiled=compiled)
    session = TrainingSession(text_task, Variant.parse("dense"), 0, StepSchedule(2))
    session.train_step()
    assert len(compiled_functions) == compiled
