"""Tokens of sentences and back."""

import pytest

from acf.errors import DataError
from acf.zoo.data.parallel_text import ParallelText
from acf.zoo.data.subwords import END, PADDING, UNKNOWN, WordCodec, padded, train_codec

PAIRS = (("ein Haus, zwei Häuser", "one house, two houses"), ("drei Häuser", "three houses"))


def test_words_come_back_and_unknown_ones_do_not() -> None:
    codec = WordCodec(["a b", "b c"], vocabulary=100)
    tokens = codec.encode(["c b", "b d"])
    assert tokens[1][1] == UNKNOWN
    assert codec.decode(tokens[:1]) == ["c b"]
    assert codec.vocabulary == 7


def test_a_bpe_gives_back_any_text() -> None:
    pytest.importorskip("tokenizers")
    codec = train_codec(ParallelText("", PAIRS, PAIRS, PAIRS), 300)
    unseen = ["Häuserzeile 42 — neu"]
    assert codec.decode(codec.encode(unseen)) == unseen
    assert codec.vocabulary <= 300
    assert min(min(tokens) for tokens in codec.encode(unseen)) > END, "text has no special tokens"


def test_sentences_are_filled_up_and_never_cut() -> None:
    assert padded([[7, 8], [9]], 3).tolist() == [[7, 8, PADDING], [9, PADDING, PADDING]]
    with pytest.raises(DataError, match="a sentence of 2 tokens is longer than 1"):
        padded([[7, 8]], 1)
