"""Tiny tasks of both benchmarks, and an empty store."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from acf.bench.evaluation.resnet50 import ResNet50Task, default_spec, load_resnet50
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.evaluation.transformer import TextLengths, TransformerTask, load_transformer
from acf.bench.evaluation.transformer import default_spec as transformer_spec
from acf.zoo.data.parallel_text import ParallelText
from acf.zoo.data.rule_pairs import rule_pairs

CPU = torch.device("cpu")


@pytest.fixture
def image_task() -> ResNet50Task:
    """The small network on 64 digits in batches of 16."""
    pytest.importorskip("sklearn")
    return load_resnet50("digits", None, replace(default_spec("small", 16, "digits"), examples=64), CPU)


@pytest.fixture
def text_task() -> TransformerTask:
    """The small network on 64 pairs of the grammar in batches of 8."""
    pairs = tuple(rule_pairs(80))
    text = ParallelText("grammar pairs", pairs[:64], pairs[64:72], pairs[72:], words=True)
    return load_transformer(text, TextLengths(tokens=12, beams=1), transformer_spec("small", 8), CPU)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EvaluationStore]:
    """A store in an empty folder."""
    with EvaluationStore(tmp_path / "runs") as opened:
        yield opened
