"""Reading folders of `torch.distributed.checkpoint` (DCP) without running code of theirs, and with their checksums.

DCP unpickles its metadata and every value that is no tensor, and compares no checksum. Here the metadata may name the
classes of metadata alone, values are read as ``weights_only``, and the checksum of every part is compared.
"""

import io
import pickle
import zipfile
from enum import EnumMeta
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.planner import ReadItem

from acf.errors import FileError
from acf.train.checkpoint import first_unlike

_PLAIN = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}
"""What the metadata may name, beside its own classes and dtypes; none of them runs code that is given to it."""


class CheckedReader(FileSystemReader):
    """DCP's reader of a folder; a file that names other code, or has changed since it was written, is refused."""

    def read_metadata(self, *args: Any, **options: Any) -> metadata.Metadata:
        """The metadata of the folder."""
        for path in sorted(Path(self.path).glob("*.metadata")):
            _MetadataUnpickler(io.BytesIO(path.read_bytes())).load()
        return super().read_metadata(*args, **options)

    def _slice_file(self, file: Any, sinfo: Any) -> Any:
        """One part of a file, whose checksum is right."""
        part = super()._slice_file(file, sinfo)
        content = part.read()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            damaged = first_unlike(archive, len(content))
        if damaged is not None:
            raise FileError(f"{sinfo.relative_path} is damaged: {damaged} does not match its checksum")
        return io.BytesIO(content)


class PlainPlanner(DefaultLoadPlanner):
    """DCP's planner, which reads values that are no tensors without running code of theirs."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Read a value of plain kind."""
        plain = io.BytesIO()
        torch.save(torch.load(value, map_location="cpu", weights_only=True), plain)
        plain.seek(0)
        super().load_bytes(read_item, plain)


class _MetadataUnpickler(pickle.Unpickler):
    """Refuses metadata that names anything but its own classes, sizes and dtypes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member  # how Python up to 3.11.3 pickles the members of an enumeration
        allowed = (module, name) in _PLAIN
        if allowed or module in (metadata.__name__, "torch"):
            found = super().find_class(module, name)
            is_own = isinstance(found, type) and found.__module__ == metadata.__name__
            if allowed or is_own or isinstance(found, torch.dtype):
                return found
        raise FileError(f"the metadata names {module}.{name}, which no checkpoint needs; do not load this folder")


def _member(kind: Any, name: str) -> Any:
    """The member ``name`` of an enumeration of DCP's metadata; any other attribute is refused."""
    is_own = isinstance(kind, EnumMeta) and kind.__module__ == metadata.__name__
    if not is_own or name not in kind.__members__:
        raise FileError(f"the metadata asks for {name} of {kind}, which no checkpoint needs; do not load this folder")
    return kind[name]
