"""Sentence polarity (Pang and Lee, 2005): 5,331 negative and as many positive sentences of film reviews.

Read as sentences with two classes, for a language model, or as which word occurs in which sentence, for a recommender.
"""

import zipfile
from pathlib import Path

import torch
from torch import Tensor

from acf.zoo.data.compressed import unpacked_member
from acf.zoo.data.labelled_data import LabelledData
from acf.zoo.data.words import number_words
from acf.zoo.networks.bert import VOCABULARY
from acf.zoo.networks.ncf import ITEMS, USERS

TOKENS = 64
"""Tokens per sentence; longer ones are cut, shorter ones padded with 0."""

_CLASS_TOKEN, _UNKNOWN, _FIRST_WORD = 1, 2, 3
_NEGATIVES = 4  # negative samples per positive pair: He et al., 2017, section 4.1

Sentences = tuple[list[list[str]], list[list[str]]]
"""Negative and positive sentences, each a list of words."""


def read_sentence_classes(folder: Path, split: str) -> LabelledData:
    """Sentences ``[n, TOKENS]`` with class 0, negative, or 1, positive."""
    return LabelledData("sentence polarity", *sentence_classes(read_sentences(folder)), padded=True)


def read_word_occurrences(folder: Path, split: str) -> LabelledData:
    """Pairs of a sentence and a word ``[n, 2]``, label 1.0 where the word occurs in the sentence."""
    name = "word occurrences in sentence polarity (no ratings)"
    return LabelledData(name, *word_occurrences(read_sentences(folder)))


def read_sentences(folder: Path) -> Sentences:
    """All sentences, split into words, from ``sentence-polarity/sentence_polarity.zip``."""
    with zipfile.ZipFile(folder / "sentence-polarity" / "sentence_polarity.zip") as archive:
        negative, positive = (
            unpacked_member(archive, f"sentence_polarity/rt-polarity.{kind}").decode("utf-8").split("\n")
            for kind in ("neg", "pos")
        )
    return [line.split() for line in negative if line.strip()], [line.split() for line in positive if line.strip()]


def sentence_classes(sentences: Sentences) -> tuple[Tensor, Tensor]:
    """Token numbers ``[n, TOKENS]`` that begin with a class token, and classes ``[n]``: 0 negative, 1 positive."""
    everything = sentences[0] + sentences[1]
    numbers = number_words(everything, VOCABULARY - _FIRST_WORD)
    tokens = torch.zeros(len(everything), TOKENS, dtype=torch.int64)
    for row, words in enumerate(everything):
        known = [numbers[word] + _FIRST_WORD if word in numbers else _UNKNOWN for word in words]
        line = [_CLASS_TOKEN, *known][:TOKENS]
        tokens[row, : len(line)] = torch.tensor(line)
    classes = torch.tensor([0] * len(sentences[0]) + [1] * len(sentences[1]))
    return tokens, classes


def word_occurrences(sentences: Sentences, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs of a sentence and a word, ``[n, 2]``, and whether the word occurs in the sentence, ``[n]`` of 0.0 and 1.0.

    A stand-in for users and items: sentences are the users, frequent words the items. Four negative samples are drawn
    for each positive pair; those that turn out to occur are left out.
    """
    users = (sentences[0] + sentences[1])[:USERS]
    numbers = number_words(users, ITEMS)
    occurring = [(user, numbers[word]) for user, words in enumerate(users) for word in set(words) if word in numbers]
    present = torch.zeros(USERS, ITEMS, dtype=torch.bool)
    positive = torch.tensor(sorted(occurring))
    present[positive[:, 0], positive[:, 1]] = True
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(ITEMS, (_NEGATIVES * len(positive),), generator=generator)
    negative = torch.stack([positive[:, 0].repeat(_NEGATIVES), drawn], dim=1)
    negative = negative[~present[negative[:, 0], negative[:, 1]]]
    labels = torch.cat([torch.ones(len(positive)), torch.zeros(len(negative))])
    return torch.cat([positive, negative]), labels
