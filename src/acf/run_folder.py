"""One process at a time in a run folder: two that write the same records would each lose what the other wrote."""

import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from acf.errors import FileError
from acf.files import as_file_errors, kept_inside, sweep_temporaries
from acf.locks import NoLocksError, lock

LOCK_NAME = ".acf.lock"


class NoLocksWarning(UserWarning):
    """The file system has no locks, so a second process would not be noticed."""


@contextmanager
def only_process_in(folder: Path | None) -> Iterator[None]:
    """Make ``folder`` if need be, and refuse the ``with`` block where another process is in one for it.

    A lock file in the folder holds the process's id. Its lock ends with the process, so that nothing is in the way of
    the next one after a kill. Temporary files of killed processes are removed at the start, and at the end folders
    that were made here and are still empty. Links in the folder that lead out of it are not written through
    (`acf.files.kept_inside`). Nothing is locked for None, where nothing is written.
    """
    if folder is None:
        yield
        return
    with _made(folder), _held(folder / LOCK_NAME, folder), kept_inside(folder):
        _sweep(folder, *_folders_in(folder))
        yield


@contextmanager
def only_process_writing(path: Path | None) -> Iterator[None]:
    """As `only_process_in`, for a record that shares its folder with others: the lock file stands beside it.

    Nothing is locked for None, where no record is written, nor for a device or a pipe.
    """
    if path is None:
        yield
        return
    with as_file_errors(path):
        target = Path(os.path.realpath(path))
        is_stream = target.exists() and not target.is_file()
    if is_stream:
        yield
        return
    beginning = os.fsencode(target.name)[:200].decode(errors="ignore")
    with _made(target.parent), _held(target.with_name(f".{beginning}.lock"), path):
        _sweep(target.parent)
        yield


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make ``folder`` and those above it; on the way out, remove the new ones that hold nothing."""
    with as_file_errors(folder):
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for each in missing:
                each.rmdir()


@contextmanager
def _held(lock_path: Path, what: Path) -> Iterator[None]:
    """Hold the lock file for the time of the block, and remove it then."""
    with as_file_errors(what):
        file = _open_lock(lock_path, what)
    try:
        yield
    except KeyboardInterrupt as interruption:
        if _holds_work(what, lock_path):
            interruption.add_note(f"what is done stays in {what}")
        raise
    finally:
        with suppress(OSError):
            os.unlink(lock_path)  # while it is locked: who opened it before sees that it is gone
        os.close(file)


def _holds_work(what: Path, lock_path: Path) -> bool:
    """Whether the record exists, or the folder holds more than its lock."""
    with suppress(OSError):
        return any(each.name != lock_path.name for each in what.iterdir()) if what.is_dir() else what.exists()
    return False


def _open_lock(lock_path: Path, what: Path) -> int:
    while True:
        file = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            free = lock(file)
        except NoLocksError as error:
            warnings.warn(
                f"{what} is on a file system without locks ({error.strerror}): see to it that no other process writes "
                "there, since acf cannot",
                NoLocksWarning,
                stacklevel=6,
            )
            free = True
        if not free:
            holder = _holder(file)
            os.close(file)
            raise FileError(
                f"{what} is in use by {holder}, and one process at a time may write there; wait until it has ended, "
                "or name another place with --out or --name"
            )
        if os.fstat(file).st_nlink and _is_at(lock_path, file):
            with suppress(OSError):  # the id is for people, the lock holds without it
                os.truncate(file, 0)
                os.pwrite(file, f"{os.getpid()} {socket.gethostname()}".encode(), 0)
            return file
        os.close(file)  # its holder removed it meanwhile


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _holder(file: int) -> str:
    """The process that holds a lock file, in words."""
    process, _, host = os.pread(file, 200, 0).decode(errors="replace").partition(" ")
    if not process.isdigit():
        return "another process"
    return f"process {process}" + (f" of {host}" if host != socket.gethostname() else "")


def _sweep(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):
            sweep_temporaries(folder)


def _folders_in(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
