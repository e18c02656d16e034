"""Files that are made to fill the memory are refused before they do."""

import gzip
import lzma
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from acf.zoo.data.compressed import unpacked, unpacked_member

TEXT = b"a sentence, and another one\n" * 2000
BOMB = bytes(200 << 20)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), ("", bytes)])
def test_a_file_is_unpacked_by_its_suffix(tmp_path: Path, suffix: str, pack: type[bytes]) -> None:
    path = tmp_path / f"train.en{suffix}"
    path.write_bytes(pack(TEXT))
    assert unpacked(path) == TEXT


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lambda content: lzma.compress(content, preset=0))]
)
def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path, suffix: str, pack) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(pack(BOMB))
    tracemalloc.start()
    with pytest.raises(ValueError, match="unpacks to more than 100 times its size"):
        unpacked(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


def test_a_member_of_an_archive_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", BOMB)
        archive.writestr("text", TEXT)
    with zipfile.ZipFile(path) as archive:
        assert unpacked_member(archive, "text") == TEXT
        with pytest.raises(ValueError, match="bomb unpacks to more than 100 times"):
            unpacked_member(archive, "bomb")
