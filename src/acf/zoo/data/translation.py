"""Multi30k (Elliott et al., 2016), English to German: 29,000 pairs of short captions, in whole words.

Sentences follow one another without padding, so that a window of tokens holds several pairs and every position counts.
"""

from pathlib import Path

import torch
from torch import Tensor

from acf.zoo.data.compressed import unpacked
from acf.zoo.data.labelled_data import LabelledData
from acf.zoo.data.words import number_words
from acf.zoo.networks.transformer import VOCABULARY

TOKENS = 64
"""Tokens of a window on either side."""

_UNKNOWN, _END, _FIRST_WORD = 0, 1, 2


def read_translation(folder: Path, split: str) -> LabelledData:
    """Windows ``[n, 2, TOKENS]`` of source and shifted target tokens, and the next target tokens ``[n, TOKENS]``."""
    sides = (_lines(folder / "multi30k-en-de" / f"train.{language}.gz") for language in ("en", "de"))
    return LabelledData("Multi30k English to German, whole words", *translation_windows(*sides))


def translation_windows(source: list[list[str]], target: list[list[str]]) -> tuple[Tensor, Tensor]:
    """Inputs ``[n, 2, TOKENS]`` and labels ``[n, TOKENS]`` of paired sentences, given as lists of words.

    A window starts with a sentence and holds as many pairs as fit on both sides; its last sentences are cut where the
    window ends, and a short side is continued with the sentences that follow.
    """
    numbers = number_words(source + target, VOCABULARY - _FIRST_WORD)
    sides = [[_tokens(words, numbers) for words in sentences] for sentences in (source, target)]
    windows = []
    first = 0
    while (last := _end_of_window(sides, first)) is not None:
        read, written = (_joined(side, first) for side in sides)
        windows.append([read, [_END, *written[:-1]], written])
        first = last
    whole = torch.tensor(windows, dtype=torch.int64).reshape(-1, 3, TOKENS)
    return whole[:, :2], whole[:, 2]


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in unpacked(path).decode("utf-8").split("\n")[:-1]]


def _tokens(words: list[str], numbers: dict[str, int]) -> list[int]:
    return [*(numbers[word] + _FIRST_WORD if word in numbers else _UNKNOWN for word in words), _END]


def _end_of_window(sides: list[list[list[int]]], first: int) -> int | None:
    """The sentence after those that fill both sides of a window; None where too few are left."""
    filled = [0, 0]
    for place in range(first, len(sides[0])):
        filled = [count + len(side[place]) for count, side in zip(filled, sides, strict=True)]
        if min(filled) >= TOKENS:
            return place + 1
    return None


def _joined(side: list[list[int]], first: int) -> list[int]:
    """`TOKENS` tokens from sentence ``first`` on."""
    joined: list[int] = []
    for sentence in side[first:]:
        joined += sentence
        if len(joined) >= TOKENS:
            break
    return joined[:TOKENS]
