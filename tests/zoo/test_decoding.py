"""Beam search over a model whose scores are a table."""

import math

import pytest
import torch
from torch import Tensor, nn

from acf.errors import DataError
from acf.zoo.data.subwords import BEGIN, END, PADDING
from acf.zoo.decoding import Decoding, translate
from acf.zoo.networks.transformer import DecoderState, Transformer, TransformerSpec

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

    def decoder_state(self, encoded: Tensor, mask: None) -> DecoderState:
        return DecoderState([], mask)

    def decode_next(self, tokens: Tensor, state: DecoderState) -> Tensor:
        return self.table[tokens]


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


def test_decoding_token_by_token_gives_the_scores_of_the_whole_prefix() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerSpec(32, width=16, heads=2, inner=32, layers=2, padding=PADDING)).eval()
    source, target = torch.randint(4, 32, (3, 6)), torch.randint(4, 32, (3, 5))
    source[1, 4:] = PADDING
    mask = model.source_mask(source)
    encoded = model.encode(source, mask)
    state = model.decoder_state(encoded, mask)
    found = torch.stack([model.decode_next(target[:, place], state) for place in range(5)], dim=1)
    torch.testing.assert_close(found, model.decode(target, encoded, mask))


def test_beams_that_change_places_go_on_with_their_own_past() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerSpec(32, width=16, heads=2, inner=32, layers=2)).eval()
    source = torch.randint(4, 32, (1, 6)).expand(2, 6)
    encoded = model.encode(source, None)
    state = model.decoder_state(encoded, None)
    prefixes = torch.tensor([[4, 5, 6], [4, 7, 8]])
    for place in range(3):
        model.decode_next(prefixes[:, place], state)
    state.reorder(torch.tensor([1, 0]))
    newest = torch.tensor([9, 10])
    found = model.decode_next(newest, state)
    whole = torch.cat([prefixes.flip(0), newest[:, None]], dim=1)
    torch.testing.assert_close(found, model.decode(whole, encoded, None)[:, -1])


def test_no_beam_is_refused() -> None:
    with pytest.raises(DataError, match="0 beams of 8 tokens decode nothing"):
        Decoding(BEGIN, END, 8, beams=0)
