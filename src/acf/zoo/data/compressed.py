"""Compressed files of data sets, unpacked to no more memory than such data can take."""

import gzip
import lzma
import zipfile
from pathlib import Path
from typing import Protocol

MOST_RATIO = 100
"""Of unpacked over packed bytes: texts and images reach 10; a file made to fill the memory reaches 1000."""

SPARE_BYTES = 1 << 20
"""That any file may unpack to, however small it is."""


def unpacked(path: Path) -> bytes:
    """The content of a file that is plain, ``.gz`` or ``.xz``; a `ValueError` where it unpacks to too much."""
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            return _read(file, path)
    if path.suffix == ".xz":
        with lzma.open(path) as file:
            return _read(file, path)
    return path.read_bytes()


def unpacked_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of one file of a ZIP archive, with the same bound."""
    member = archive.getinfo(name)
    if member.file_size > _most(member.compress_size):
        raise ValueError(_too_much(name))
    return archive.read(member)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _read(file: _Readable, path: Path) -> bytes:
    most = _most(path.stat().st_size)
    content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(_too_much(path.name))
    return content


def _most(packed_bytes: int) -> int:
    return MOST_RATIO * packed_bytes + SPARE_BYTES


def _too_much(name: str) -> str:
    return f"{name} unpacks to more than {MOST_RATIO} times its size, as no data does"
