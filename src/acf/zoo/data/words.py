"""Numbers of words, by how often they occur."""

from collections import Counter


def number_words(sentences: list[list[str]], limit: int) -> dict[str, int]:
    """The ``limit`` most frequent words and their numbers, most frequent first; ties in alphabetical order.

    >>> number_words([["a", "b"], ["b", "c"]], limit=2)
    {'b': 0, 'a': 1}
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ordered[:limit])}
