"""Beam search over a model whose scores are a table."""

import math

import pytest
import torch
from torch import Tensor, nn

from acf.errors import DataError
from acf.zoo.data.subwords import BEGIN, END, PADDING
from acf.zoo.decoding import Decoding, translate
from acf.zoo.networks.transformer import Transformer, TransformerSpec

A, B, C = 4, 5, 6


class TableModel(nn.Module):
    """The next token depends on the last one alone: ``shares[last]`` are probabilities."""

    def __init__(self, shares: dict[int, dict[int, float]]) -> None:
        super().__init__()
        self.table = torch.full((7, 7), -1e9)
        for last, following in shares.items():
            for token, share in following.items():
                self.table[last, token] = math.log(share)

    def source_mask(self, source: Tensor) -> None:
        return None

    def encode(self, source: Tensor, mask: None) -> Tensor:
        return torch.zeros(*source.shape, 1)

    def decode(self, target: Tensor, encoded: Tensor, mask: None) -> Tensor:
        return self.table[target]


GARDEN_PATH = TableModel({BEGIN: {A: 0.6, B: 0.4}, A: {END: 0.4, C: 0.3, A: 0.3}, B: {END: 1.0}, C: {END: 1.0}})
"""The likeliest first token is A, the likeliest sentence is B."""


@pytest.mark.parametrize(("beams", "found"), [(1, [A]), (2, [B])])
def test_more_beams_find_the_likelier_sentence(beams: int, found: list[int]) -> None:
    source = torch.zeros(3, 4, dtype=torch.int64)
    assert translate(GARDEN_PATH, source, Decoding(BEGIN, END, 6, beams, length_penalty=0.0)) == [found] * 3


def test_a_sentence_that_never_ends_is_cut() -> None:
    endless = TableModel({BEGIN: {A: 1.0}, A: {A: 1.0}})
    assert translate(endless, torch.zeros(1, 2, dtype=torch.int64), Decoding(BEGIN, END, 5, 1)) == [[A] * 5]


def test_padding_changes_no_translation() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerSpec(32, width=16, heads=2, inner=32, layers=2, padding=PADDING)).train()
    source = torch.tensor([[7, 8, 9, END]])
    longer = torch.cat([source, torch.full((1, 5), PADDING)], dim=1)
    decoding = Decoding(BEGIN, END, 8, beams=3)
    assert translate(model, source, decoding) == translate(model, longer, decoding)
    assert model.training, "the mode is put back"


def test_no_beam_is_refused() -> None:
    with pytest.raises(DataError, match="0 beams of 8 tokens decode nothing"):
        Decoding(BEGIN, END, 8, beams=0)
