"""Sentences as token numbers: a byte-level BPE that is trained on the pairs, or whole words of a small set."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from acf.errors import DataError
from acf.extras import import_optional
from acf.zoo.data.parallel_text import ParallelText
from acf.zoo.data.words import number_words

PADDING, BEGIN, END, UNKNOWN = 0, 1, 2, 3
SPECIAL = ("<padding>", "<begin>", "<end>", "<unknown>")


class Codec(Protocol):
    """Text to tokens and back; the first four tokens are padding, begin, end and unknown."""

    vocabulary: int

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Tokens of every sentence, without begin and end."""

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """The sentences of such tokens."""


class WordCodec:
    """Whole words, split at blanks."""

    def __init__(self, sentences: Sequence[str], vocabulary: int) -> None:
        numbers = number_words([sentence.split() for sentence in sentences], vocabulary - len(SPECIAL))
        self._numbers = {word: number + len(SPECIAL) for word, number in numbers.items()}
        self._words = {number: word for word, number in self._numbers.items()}
        self.vocabulary = len(SPECIAL) + len(numbers)

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """One number for every word."""
        return [[self._numbers.get(word, UNKNOWN) for word in sentence.split()] for sentence in sentences]

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Words with blanks between."""
        return [" ".join(self._words.get(number, "") for number in sentence) for sentence in tokens]


class BpeCodec:
    """A byte-level BPE with one vocabulary for both languages (`tokenizers`)."""

    def __init__(self, sentences: Sequence[str], vocabulary: int) -> None:
        tokenizers = import_tokenizers()
        self._tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=SPECIAL[UNKNOWN]))
        self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
        self._tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list(SPECIAL),
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        self._tokenizer.train_from_iterator(sentences, trainer)
        self.vocabulary = int(self._tokenizer.get_vocab_size())

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Subword numbers."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(sentences))]

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Text without a blank at its start."""
        return [text.strip() for text in self._tokenizer.decode_batch([list(each) for each in tokens])]


def train_codec(text: ParallelText, vocabulary: int) -> Codec:
    """Whole words for a set that says so, else a BPE of ``vocabulary`` entries, from the training pairs alone."""
    sentences = [sentence for pair in text.train for sentence in pair]
    return WordCodec(sentences, vocabulary) if text.words else BpeCodec(sentences, vocabulary)


def padded(sentences: Sequence[Sequence[int]], length: int) -> NDArray[np.int64]:
    """``[sentences, length]``, filled up with `PADDING`; longer sentences are refused."""
    longest = max((len(sentence) for sentence in sentences), default=0)
    if longest > length:
        raise DataError(f"a sentence of {longest} tokens is longer than {length}; leave it out or allow more tokens")
    whole = np.full((len(sentences), length), PADDING, dtype=np.int64)
    for row, sentence in zip(whole, sentences, strict=True):
        row[: len(sentence)] = sentence
    return whole


def import_tokenizers() -> Any:
    """The package `tokenizers` with the modules that a BPE is made of."""
    for part in ("decoders", "models", "pre_tokenizers", "trainers"):
        import_optional(f"tokenizers.{part}", needed_by="training a BPE")
    return import_optional("tokenizers", needed_by="training a BPE")
