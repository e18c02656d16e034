"""Sizes of tasks."""

from dataclasses import replace

import pytest
import torch
from torch.compiler import config as compiler_config
from torch.nn.attention import SDPBackend

from acf.bench.training.task import TASKS, attention_first, attention_order, computing
from acf.errors import SparsityError


def test_a_gpt_of_no_whole_number_of_heads_is_refused_before_any_data_is_read() -> None:
    with pytest.raises(SparsityError, match="width 100 is no multiple of 128"):
        replace(TASKS["gpt"], width=100)


def test_an_unknown_attention_is_refused() -> None:
    with pytest.raises(SparsityError, match="attention 'fast' is not one of cudnn, flash, efficient"):
        replace(TASKS["gpt"], attention="fast")


def test_every_attention_kernel_stays_allowed_behind_the_first() -> None:
    assert len(set(attention_order("cudnn"))) == len(attention_order("cudnn")) == 4


def test_the_first_attention_is_part_of_the_key_of_compiled_code_and_both_end_with_the_block() -> None:
    order, tag = torch._C._get_sdp_priority_order(), compiler_config.cache_key_tag
    with attention_first("cudnn"):
        assert torch._C._get_sdp_priority_order()[0] == int(SDPBackend.CUDNN_ATTENTION)
        assert compiler_config.cache_key_tag == f"{tag} attention=cudnn"
    assert (torch._C._get_sdp_priority_order(), compiler_config.cache_key_tag) == (order, tag)


@pytest.mark.parametrize(("asked", "dtype"), [("", torch.float32), ("bfloat16", torch.bfloat16)])
def test_on_a_cpu_products_are_in_float32_unless_bfloat16_is_asked_for(asked: str, dtype: torch.dtype) -> None:
    with computing(replace(TASKS["gpt"], dtype=asked), torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_steps_are_compiled_on_every_gpu_and_on_a_cpu_where_that_is_asked_for() -> None:
    spec, cpu = TASKS["gpt"], torch.device("cpu")
    assert spec.is_compiled(torch.device("cuda"))
    assert not spec.is_compiled(cpu)
    assert replace(spec, compiled=True).is_compiled(cpu)
