"""Text as a task."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from acf.bench.training.text_task import TextTask
from acf.bench.training.variant import Variant
from acf.errors import DataError


def test_settings_are_chosen_on_training_tokens_that_are_held_out(text_task: TextTask) -> None:
    tuning = text_task.for_tuning().tokens
    assert np.array_equal(np.concatenate([tuning.train, tuning.validation]), text_task.tokens.train)
    assert tuning.validation.size == 200  # a fifth: the corpus has fewer tokens than a measurement would read


def test_depth_width_and_batch_are_those_of_the_variant(text_task: TextTask) -> None:
    sizes = Variant.parse("dense/layers=3/width=256/batch=5").sizes(text_task.spec)
    assert len(text_task.model(sizes).blocks) == 3
    assert text_task.model(sizes).spec.width == 256
    assert text_task.batch(0, sizes.batch, torch.Generator().manual_seed(0))[0].shape == (5, 16)


def test_a_corpus_without_one_batch_for_validation_is_refused(text_task: TextTask) -> None:
    with pytest.raises(DataError, match="100 validation tokens are fewer than one batch of 8 x 16"):
        TextTask(replace(text_task.spec, batch=8), text_task.tokens, text_task.device)
