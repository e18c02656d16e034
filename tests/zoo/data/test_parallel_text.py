"""Sentence pairs from files in their usual layouts, and from the grammar."""

import gzip
from pathlib import Path

import pytest

from acf.errors import DataError
from acf.zoo.data.parallel_text import load_parallel_text


def write_lines(folder: Path, stem: str, english: str, german: str, packed: bool) -> None:
    for language, text in (("en", english), ("de", german)):
        path = folder / f"{stem}.{language}{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())


@pytest.mark.parametrize("packed", [False, True])
def test_line_parallel_files_are_read_by_part(tmp_path: Path, packed: bool) -> None:
    write_lines(tmp_path, "train", "a house\na\u2028tree\n", "ein Haus \nein Baum\n", packed)
    write_lines(tmp_path, "newstest2013", "b\n", "c\n", packed)
    write_lines(tmp_path, "newstest2014", "d\n", "e\n", packed)
    text = load_parallel_text("lines", tmp_path)
    assert text.train == (("a house", "ein Haus"), ("a\u2028tree", "ein Baum")), "lines end at line feeds alone"
    assert (text.validation, text.test) == ((("b", "c"),), (("d", "e"),))
    assert load_parallel_text("lines", tmp_path, "de-en").test == (("e", "d"),)


def test_files_of_unequal_length_are_refused(tmp_path: Path) -> None:
    write_lines(tmp_path, "train", "a\nb\n", "c\n", packed=False)
    with pytest.raises(DataError, match=r"train\.en has 2 lines and train\.de 1"):
        load_parallel_text("lines", tmp_path)


def test_pairs_that_share_a_sentence_stay_in_one_part(tmp_path: Path) -> None:
    folder = tmp_path / "tatoeba-de-en"
    folder.mkdir()
    rows = [f"deu\teng\tgerman {n // 2}\tenglish {(n + 1) // 2}" for n in range(12)]
    rows += [f"deu\teng\tallein {n}\talone {n}" for n in range(200)]
    (folder / "tatoeba.txt.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    text = load_parallel_text("tatoeba", tmp_path)
    parts = (text.train, text.validation, text.test)
    assert sum(len(part) for part in parts) == len(rows)
    assert all(parts)
    chained = [any(pair[1].startswith("german") for pair in part) for part in parts]
    assert sum(chained) == 1, "a chain of shared sentences was cut"


def test_the_grammar_needs_no_folder_and_repeats_no_pair() -> None:
    text = load_parallel_text("", None)
    every = {*text.train, *text.validation, *text.test}
    assert len(every) == len(text.train) + len(text.validation) + len(text.test) == 3000
    assert text.words
    assert ("now this man finds a picture .", "jetzt findet dieser Mann ein Bild .") in every


@pytest.mark.parametrize(
    ("name", "direction", "message"),
    [
        ("wmt", "en-de", "data set 'wmt' is not one of multi30k, tatoeba, lines, rules"),
        ("lines", "en-fr", "direction 'en-fr' is neither en-de nor de-en"),
        ("lines", "en-de", "data set lines needs a folder"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, direction: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_parallel_text(name, None, direction)
