"""Labelled examples: how a batch is made of them."""

import torch

from acf.zoo.data.labelled_data import LabelledData


def test_sentences_of_a_batch_are_cut_to_its_longest() -> None:
    data = LabelledData("words", torch.tensor([[1, 2, 0, 0], [1, 2, 3, 0]]), torch.zeros(2), padded=True)
    assert data.batch(torch.tensor([0]), 0, "cpu")[0].shape == (1, 2)
    assert data.batch(torch.tensor([0, 1]), 0, "cpu")[0].shape == (2, 3)
