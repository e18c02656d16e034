"""Checksums of the parts of a file, so that flipped bits are refused by name and not loaded as other values."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from acf.errors import FileError

Part = bytes | memoryview

CHECKSUMS_KEY = "acf.crc32"
"""Where the metadata of a safetensors file holds them: JSON, a CRC-32 by the name of every part."""


def checksums(parts: Mapping[str, Part]) -> str:
    """The text that `check_parts` takes.

    >>> checksums({"weight": b"123456789"})
    '{"weight": 3421780262}'
    """
    return json.dumps({name: zlib.crc32(content) for name, content in parts.items()})


def check_parts(path: Path, text: str | None, parts: Mapping[str, Part]) -> None:
    """Refuse ``parts`` of the file ``path`` that are not what they were when ``text`` was written.

    None, as in files of the first release, checks nothing.
    """
    if text is None:
        return
    try:
        expected = json.loads(text)
        if not isinstance(expected, dict):
            raise ValueError(f"{type(expected).__name__} in place of an object")
    except ValueError as error:
        raise FileError(f"{path} is damaged: its checksums cannot be read ({error}); write it again") from error
    for name, content in parts.items():
        if expected.get(name) != zlib.crc32(content):
            raise FileError(f"{path} is damaged: {name} is not what was written; take a copy, or write it again")
