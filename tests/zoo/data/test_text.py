"""Documents, tokens and windows."""

from pathlib import Path

import numpy as np
import pytest
import torch

from acf.errors import DataError
from acf.zoo.data.text import SEPARATOR, TokenBatches, load_tokens, read_documents


def test_documents_of_a_file_are_split_at_the_separator(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(f"one{SEPARATOR} two {SEPARATOR}{SEPARATOR}three")
    assert read_documents(path) == ["one", "two", "three"]


def test_documents_of_a_folder_come_in_an_order_of_their_own(tmp_path: Path) -> None:
    for name in ("a.c", "b.rst", "c.txt", "d.o"):
        (tmp_path / name).write_text(name)
    found = read_documents(tmp_path)
    assert sorted(found) == ["a.c", "b.rst", "c.txt"]
    assert read_documents(tmp_path) == found


def test_a_missing_corpus_and_a_single_document_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a text file nor a folder"):
        read_documents(tmp_path / "none.txt")
    (tmp_path / "one.txt").write_text("alone")
    with pytest.raises(DataError, match="at least two"):
        read_documents(tmp_path / "one.txt")


def test_windows_are_the_tokens_and_their_successors() -> None:
    batches = TokenBatches(np.arange(100, dtype=np.uint16), context=8, device=torch.device("cpu"))
    tokens, targets = batches.draw(4, torch.Generator().manual_seed(0))
    assert tokens.shape == targets.shape == (4, 8)
    assert torch.equal(tokens + 1, targets)
    in_order = list(batches.in_order(batch=3, most=10))
    assert len(in_order) == 4
    assert torch.equal(in_order[0][0].flatten(), torch.arange(24))


def test_a_corpus_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(DataError, match="fewer than a window"):
        TokenBatches(np.zeros(5, dtype=np.uint16), context=8, device=torch.device("cpu"))


def test_tokens_are_trained_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, encoded = tmp_path / "corpus.txt", []

    def encode(documents: list[str], vocabulary: int) -> tuple[np.ndarray, np.ndarray, float]:
        encoded.append(documents)
        return np.full(3, len(encoded), np.uint16), np.zeros(2, np.uint16), 1.0

    monkeypatch.setattr("acf.zoo.data.text._encode", encode)
    corpus.write_text(SEPARATOR.join(("one", "two")))
    first, again = (load_tokens(corpus, vocabulary=300, cache=tmp_path / "cache") for _ in range(2))
    assert encoded == [["one", "two"]]
    assert np.array_equal(first.train, again.train)
    corpus.write_text(SEPARATOR.join(("one", "six")))  # the same name and size, another corpus
    assert load_tokens(corpus, 300, tmp_path / "cache").train.tolist() == [2, 2, 2]


def test_a_byte_level_bpe_is_trained_on_the_corpus(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed; it comes with transformers")
    (tmp_path / "corpus.txt").write_text(SEPARATOR.join(f"int value_{i} = {i};" for i in range(300)))
    tokens = load_tokens(tmp_path / "corpus.txt", vocabulary=300, cache=tmp_path / "cache")
    assert tokens.validation.size > 0
    assert int(tokens.train.max()) < 300
