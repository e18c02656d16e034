"""Checkpoints in one file, written atomically."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import AcfError, FileError, TopologyError
from acf.files import replacing
from acf.sparse import is_sharded
from acf.train.controller import TopologyController
from acf.train.controller_state import check_version

VERSION = 1
"""Format of a checkpoint file. 0: release 0.1.0, and dictionaries saved by hand; 1: with a number."""

VERSION_KEY = "acf_checkpoint_version"


def save_checkpoint(path: str | Path, **parts: Any) -> None:
    """Write the ``state_dict`` of every part that has one, and other parts as they are, to ``path``.

    The file replaces an older one atomically: a process that is killed while writing leaves the old one, and beside it
    a hidden ``.tmp`` file, which the next write into the folder removes.
    In a distributed run one process writes, of the model inside DistributedDataParallel. Other parts are numbers,
    strings, tensors and containers of these (``torch.get_rng_state()``, an epoch), so that ``torch.load`` with
    ``weights_only`` reads the file.
    """
    state = {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in parts.items()}
    for name, value in state.items():
        if _holds_shards(value):
            raise TopologyError(
                f"{name} is sharded over processes, and one file of one process would hold a part of it; pass "
                f"{name}=get_{'model' if name == 'model' else 'optimizer'}_state_dict(...) of "
                "torch.distributed.checkpoint.state_dict with full_state_dict=True, or save with "
                "torch.distributed.checkpoint"
            )
    if VERSION_KEY in parts:
        raise TopologyError(f"{VERSION_KEY} is the number of the file's format; give the part another name")
    state[VERSION_KEY] = VERSION
    write_state(Path(path), state)


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write plain values and tensors with ``torch.save``, atomically."""
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:  # what torch's writer makes of a file that cannot be written
        raise FileError(
            f"{path} cannot be written ({str(error).splitlines()[0]}); free some space, then call it again: an older "
            "checkpoint is kept"
        ) from error


def load_checkpoint(path: str | Path, **parts: Any) -> dict[str, Any]:
    """Load what `save_checkpoint` wrote into the ``parts`` of these names; returns what else the file holds.

    Models are loaded first and controllers last, in whatever order they are given. Nothing in the file is executed.
    Files of every older release are read, of a newer format refused.
    """
    state = _read(Path(path))
    check_version(state.pop(VERSION_KEY, 0), VERSION, str(path))
    missing = [name for name in parts if name not in state]
    if missing:
        raise TopologyError(
            f"{path} holds {', '.join(sorted(state)) or 'nothing'}, not {missing[0]}; "
            "ask for what it holds, or save it under that name"
        )
    for name, part in sorted(parts.items(), key=lambda item: _load_order(item[1])):
        _load_part(path, name, part, state.pop(name))
    return state


def _load_part(path: str | Path, name: str, part: Any, state: Any) -> None:
    try:
        part.load_state_dict(state)
    except AcfError:
        raise
    except Exception as error:  # torch's parts fail in many ways on what is not theirs
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"{path}: {name} cannot be loaded ({reason}); pass the {name} that was saved") from error


def _load_order(part: Any) -> int:
    """Order of loading: models first and controllers last, because a controller reads the model's topology."""
    return 0 if isinstance(part, nn.Module) else 2 if isinstance(part, TopologyController) else 1


def _read(path: Path) -> dict[str, Any]:
    _check_sums(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader fails in many ways on what was not written by torch
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(f"{path} is no checkpoint ({reason}); pass a file of acf.save_checkpoint") from error
    if not isinstance(state, dict):
        raise FileError(f"{path} is no checkpoint (it holds a {type(state).__name__}); pass a file of save_checkpoint")
    return state


def _check_sums(path: Path) -> None:
    """Refuse a file of which any part is not what was written; torch's own reader compares no checksum."""
    try:
        if not zipfile.is_zipfile(path):
            return  # no file of torch.save, which the reader refuses, or one of torch before 1.6 without checksums
        with zipfile.ZipFile(path) as archive:
            damaged = first_unlike(archive, path.stat().st_size)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{path} is damaged ({error}); take an older checkpoint") from error
    if damaged is not None:
        raise FileError(f"{path} is damaged: {damaged} does not match its checksum; take an older checkpoint")


def first_unlike(archive: zipfile.ZipFile, archive_bytes: int) -> str | None:
    """The first member whose checksum is wrong; refuses an archive that unpacks to more than its own size.

    `torch.save` compresses nothing, and no two of its members share bytes.
    """
    members = archive.infolist()
    if any(each.compress_type != zipfile.ZIP_STORED for each in members):
        raise ValueError("it is compressed, as torch.save never does")
    if sum(each.file_size for each in members) > archive_bytes:
        raise ValueError("its parts are longer than the file")
    return archive.testzip()


def _holds_shards(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_shards, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_shards, value))
    return isinstance(value, Tensor) and is_sharded(value)
