"""The cache folder, and atomic writes: a reader sees the old content or the new, never a part of it."""

import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from acf.errors import FileError
from acf.locks import NoLocksError, lock

LONGEST_NAME = 255
"""Bytes of a file name that every file system we know takes."""

LONGEST_PATH = 4096
"""Bytes of a path that Linux takes."""

DEEPEST_PATH = 200
"""Folders of a path that are made one inside the other."""

STALE_SECONDS = 3600.0
"""A temporary file of this age belongs to a process that was killed, where there are no locks to tell."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, a quota or a file that has no more room."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


def cache_directory() -> Path:
    """The folder of builds and measured choices: ``$ACF_CACHE_DIR``, ``$XDG_CACHE_HOME/acf`` or ``~/.cache/acf``.

    Where the user has no home, it is a folder of the user's own among the temporary files.
    """
    if named := os.environ.get("ACF_CACHE_DIR"):
        return Path(named)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "acf"
    try:
        return Path.home() / ".cache" / "acf"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"acf-{os.getuid()}"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, and make its folders; raises `FileError` where that is not possible."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def check_writable(path: Path) -> None:
    """Refuse a place for an output before the work that it is for, not after it; nothing is made."""
    with as_file_errors(path):
        target = _target(path)
        if is_stream(target):
            return
        nearest = next(folder for folder in target.parents if folder.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(None, "Not a directory")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(None, "Permission denied")


def is_stream(path: Path) -> bool:
    """Whether ``path`` is a device or a pipe: it is written to, and holds no earlier record to read."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_name(name: str, what: str) -> None:
    """Refuse a name of a folder or file that would lead out of the folder that it is for.

    >>> check_name("../other", "--name")
    Traceback (most recent call last):
    acf.errors.FileError: --name '../other' is no plain name, since a folder of that name is made; leave out / and ..
    """
    if Path(name).name != name or name in ("", ".", "..") or "\0" in name:
        raise FileError(
            f"{what} {name[:60]!r} is no plain name, since a folder of that name is made; leave out / and .."
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` atomically when the ``with`` block ends without an error.

    The new content is flushed to disk first, so that a crash of the machine leaves one of the two files complete. A
    file that is replaced keeps its permissions, and a link goes on pointing to the file that is replaced. What is no
    file (a device, a pipe) is written to and stays what it is.
    """
    with as_file_errors(path):
        target = _target(path)
        if is_stream(target):
            with _written_into(target) as temporary:
                yield temporary
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_temporaries(target.parent)
        temporary, held = _new_temporary(target)
        try:
            yield temporary
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            with suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(held)


def sweep_temporaries(folder: Path) -> None:
    """Remove the temporary files of writes to ``folder`` whose processes were killed."""
    with os.scandir(folder) as entries:
        found = [each.path for each in entries if _TEMPORARY.fullmatch(each.name)]
    for name in found:
        with suppress(OSError):
            _remove_unless_held(name)


@contextmanager
def as_file_errors(path: Path) -> Iterator[None]:
    """Raise errors of the system as a `FileError` that says what to do about ``path``."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        full = error.errno in FULL
        remedy = "free some space, then call it again" if full else "pass a path in a folder you may write to"
        raise FileError(f"{path} cannot be written ({error.strerror or error}); {remedy}") from error


_run_folders: list[Path] = []
"""Folders in which a command names files itself, by their absolute paths."""


@contextmanager
def kept_inside(folder: Path) -> Iterator[None]:
    """Refuse, within the ``with`` block, files below ``folder`` that a link in it leads out of it.

    The user names the folder, which may be a link itself; what lies in it may come from somebody else.
    """
    absolute = Path(os.path.abspath(folder))
    _run_folders.append(absolute)
    try:
        yield
    finally:
        _run_folders.remove(absolute)


def check_inside(path: Path) -> None:
    """Refuse a file of a run folder (`kept_inside`) that is, or lies below, a link that leads out of the folder."""
    absolute, target = Path(os.path.abspath(path)), Path(os.path.realpath(path))
    for folder in _run_folders:
        if absolute.is_relative_to(folder) and not target.is_relative_to(os.path.realpath(folder)):
            raise FileError(f"{path} leads to {target}, out of the run folder {folder}; remove the link")


def _target(path: Path) -> Path:
    """The file that ``path`` names, through links; refuses what cannot be one."""
    whole = len(os.fsencode(path))
    if whole > LONGEST_PATH or len(path.parts) > DEEPEST_PATH:
        raise FileError(
            f"{str(path)[:40]}... has {whole} bytes in {len(path.parts)} parts, a path at most {LONGEST_PATH} in "
            f"{DEEPEST_PATH}; pass a shorter one"
        )
    length = len(os.fsencode(path.name))
    if length > LONGEST_NAME:
        raise FileError(
            f"{path.name[:40]}... has {length} bytes, a file name at most {LONGEST_NAME}; pass a shorter one"
        )
    check_inside(path)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise FileError(f"{path} is a folder; pass the path of a file in it")
    return target


@contextmanager
def _written_into(stream: Path) -> Iterator[Path]:
    """A temporary file whose content goes into a device or a pipe when it is complete."""
    with tempfile.TemporaryDirectory(prefix="acf-") as folder:
        temporary = Path(folder, "output")
        yield temporary
        with temporary.open("rb") as content, stream.open("wb") as into:
            shutil.copyfileobj(content, into)


def _new_temporary(target: Path) -> tuple[Path, int]:
    """A new temporary file beside ``target``, and the open file that holds its lock while it is written."""
    beginning = os.fsencode(target.name)[:200].decode(errors="ignore")  # a name of the greatest length has no room
    while True:
        temporary = target.with_name(f".{beginning}.{uuid4().hex}.tmp")
        held = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(NoLocksError):
            lock(held, wait=True)
        if os.fstat(held).st_nlink:  # else another process took it for a dead one, before it was locked
            return temporary, held
        os.close(held)


def _remove_unless_held(name: str) -> None:
    file = os.open(name, os.O_RDWR)
    try:
        dead = lock(file)
    except NoLocksError:
        dead = time.time() - os.fstat(file).st_mtime > STALE_SECONDS
    try:
        if dead:
            os.unlink(name)
    finally:
        os.close(file)
