"""What training runs share: batches, loss and accuracy."""

from itertools import islice

import pytest
import torch
from torch import nn

from acf.errors import DataError
from acf.zoo.training import check_device, count_correct, shuffled_batches, training_loss


def test_an_epoch_has_every_example_at_most_once_and_full_batches_only() -> None:
    batches = list(islice(shuffled_batches(7, 3, torch.Generator().manual_seed(0)), 4))
    assert [len(batch) for batch in batches] == [3, 3, 3, 3]
    first, second = (torch.cat(batches[start : start + 2]).tolist() for start in (0, 2))
    assert len(set(first)) == len(set(second)) == 6
    assert first != second


def test_auxiliary_heads_count_three_tenths() -> None:
    scores, labels = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    alone = training_loss(scores, labels)
    assert training_loss((scores, scores, scores), labels) == pytest.approx(1.6 * alone)


def test_correct_predictions_are_counted_in_evaluation_mode_and_the_mode_is_restored() -> None:
    model = nn.Sequential(nn.Dropout(1.0), nn.Identity()).train()
    batches = [(torch.eye(3), torch.tensor([0, 1, 1])), (torch.eye(3)[:1], torch.tensor([0]))]
    assert count_correct(model, batches) == 3
    assert model.training


def test_a_device_that_is_not_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DataError, match="device 'tpu' is not one of cpu, cuda; use one of these names"):
        check_device("tpu")
    with pytest.raises(DataError, match="device 'cuda': torch finds no GPU here; use cpu"):
        check_device("cuda")
    check_device("cpu")
