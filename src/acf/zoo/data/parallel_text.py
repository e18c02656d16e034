"""Sentence pairs for translation: Multi30k, Tatoeba, any line-parallel files, or pairs that a grammar makes."""

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from acf.errors import DataError
from acf.zoo.data.compressed import unpacked
from acf.zoo.data.rule_pairs import rule_pairs

Pairs = tuple[tuple[str, str], ...]
"""Source and target sentences."""

LANGUAGES = ("en", "de")
RULE_PAIRS = 3000
"""Sentence pairs of the embedded set, training, validation and test together."""

SPLITS = {
    "train": ("train",),
    "validation": ("valid", "val", "dev", "newstest2013"),
    "test": ("test", "test_2016_flickr", "newstest2014"),
}
"""Stems of the files of each part, the first that is found is read."""


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs in three parts; ``name`` is how results must cite the set, ``words``: split at blanks, no BPE."""

    name: str
    train: Pairs
    validation: Pairs
    test: Pairs
    words: bool = False

    def reversed(self) -> "ParallelText":
        """The other direction."""
        train, validation, test = (
            tuple((target, source) for source, target in part) for part in (self.train, self.validation, self.test)
        )
        return ParallelText(self.name, train, validation, test, self.words)


def read_lines(folder: Path) -> ParallelText:
    """``train.en``, ``train.de``, ``valid.*`` (or val, dev) and ``test.*``, plain or with ``.gz``: WMT and the like."""
    return _in_lines(f"{folder.name}, line-parallel text", folder)


def read_multi30k(folder: Path) -> ParallelText:
    """``multi30k-en-de/``: 29,000 captions; the test set is that of 2016 (Flickr)."""
    return _in_lines("Multi30k (test_2016_flickr)", folder / "multi30k-en-de")


def read_tatoeba(folder: Path) -> ParallelText:
    """``tatoeba-de-en/*.txt.gz``; a tenth of the groups of pairs that share a sentence is test, a tenth validation."""
    files = sorted((folder / "tatoeba-de-en").glob("*.txt.gz"))
    if not files:
        raise FileNotFoundError(f"no .txt.gz file in {folder / 'tatoeba-de-en'}")
    rows = [line.split("\t") for line in _lines(files[0])]
    pairs = [(english, german) for _, _, german, english in rows]
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "validation": [], "test": []}
    for group in _groups(pairs):
        digest = hashlib.sha256("\t".join(min(group)).encode()).digest()[0]
        parts["test" if digest < 26 else "validation" if digest < 51 else "train"] += group
    train, validation, test = (tuple(parts[name]) for name in SPLITS)
    return ParallelText("Tatoeba 2023-09-26 (own split)", train, validation, test)


def read_rules(folder: Path) -> ParallelText:
    """The embedded set; ``folder`` is not used."""
    pairs = tuple(rule_pairs(RULE_PAIRS))
    ends = RULE_PAIRS * 8 // 10, RULE_PAIRS * 9 // 10
    return ParallelText("grammar pairs", pairs[: ends[0]], pairs[ends[0] : ends[1]], pairs[ends[1] :], words=True)


PARALLEL_TEXTS: dict[str, Callable[[Path], ParallelText]] = {
    "multi30k": read_multi30k,
    "tatoeba": read_tatoeba,
    "lines": read_lines,
    "rules": read_rules,
}
"""Every set of sentence pairs by name; "rules" alone needs no folder."""


def load_parallel_text(name: str, folder: Path | None, direction: str = "en-de") -> ParallelText:
    """The set of that name; without one "multi30k", and "rules" without a ``folder``."""
    chosen = name or ("rules" if folder is None else "multi30k")
    if chosen not in PARALLEL_TEXTS:
        raise DataError(f"data set {chosen!r} is not one of {', '.join(PARALLEL_TEXTS)}; use one of these names")
    if direction not in ("en-de", "de-en"):
        raise DataError(f"direction {direction!r} is neither en-de nor de-en; use one of these")
    if folder is None and chosen != "rules":
        raise DataError(f"data set {chosen} needs a folder; name the folder that holds it with --data or $ACF_DATA")
    try:
        text = PARALLEL_TEXTS[chosen](folder or Path())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"data set {chosen} cannot be read in {folder} ({error}); name the folder that holds it, whole"
        ) from error
    return text if direction == "en-de" else text.reversed()


def _in_lines(name: str, folder: Path) -> ParallelText:
    train, validation, test = (_read_part(folder, stems) for stems in SPLITS.values())
    return ParallelText(name, train, validation, test)


def _read_part(folder: Path, stems: Sequence[str]) -> Pairs:
    for stem in stems:
        files = [_find(folder / f"{stem}.{language}") for language in LANGUAGES]
        if files[0] is not None and files[1] is not None:
            source, target = _lines(files[0]), _lines(files[1])
            if len(source) != len(target):
                raise ValueError(f"{files[0].name} has {len(source)} lines and {files[1].name} {len(target)}")
            return tuple(pair for pair in zip(source, target, strict=True) if all(pair))
    raise FileNotFoundError(f"{folder / stems[0]}.en and .de, plain or .gz, are missing")


def _find(path: Path) -> Path | None:
    return next((each for each in (path, path.with_name(f"{path.name}.gz")) if each.is_file()), None)


def _lines(path: Path) -> list[str]:
    """Stripped lines, split at line feeds alone."""
    lines = unpacked(path).decode("utf-8").split("\n")
    return [line.strip() for line in (lines[:-1] if lines[-1] == "" else lines)]


def _groups(pairs: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Pairs that share a sentence on either side, directly or through others, together."""
    parent: dict[tuple[int, str], tuple[int, str]] = {}

    def root(each: tuple[int, str]) -> tuple[int, str]:
        parent.setdefault(each, each)
        while parent[each] != each:
            parent[each] = each = parent[parent[each]]
        return each

    for english, german in pairs:
        parent[root((0, english))] = root((1, german))
    groups: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for pair in pairs:
        groups.setdefault(root((0, pair[0])), []).append(pair)
    return list(groups.values())
