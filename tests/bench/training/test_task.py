"""Sizes of tasks."""

from dataclasses import replace

import pytest
import torch

from acf.bench.training.task import TASKS, attention_order, computing
from acf.errors import SparsityError


def test_a_gpt_of_no_whole_number_of_heads_is_refused_before_any_data_is_read() -> None:
    with pytest.raises(SparsityError, match="width 100 is no multiple of 128"):
        replace(TASKS["gpt"], width=100)


def test_an_unknown_attention_is_refused() -> None:
    with pytest.raises(SparsityError, match="attention 'fast' is not one of cudnn, flash, efficient"):
        replace(TASKS["gpt"], attention="fast")


def test_every_attention_kernel_stays_allowed_behind_the_first() -> None:
    assert len(set(attention_order("cudnn"))) == len(attention_order("cudnn")) == 4


def test_on_a_cpu_nothing_is_cast() -> None:
    with computing(TASKS["gpt"], torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
