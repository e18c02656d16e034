"""Compiled code that is kept between processes, and loaded only from where no other user can have planted it."""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from acf.files import cache_directory

CHECKSUM_BYTES = hashlib.sha256().digest_size

BUILD_SECONDS = 1800
"""A compiler that takes longer hangs, and is stopped."""


class SharedCacheWarning(UserWarning):
    """Other users may write to the cache folder, so compiled code is kept elsewhere."""


def code_directory(*parts: str) -> Path:
    """The folder of compiled code, made if need be: below `cache_directory`, if only this user may write there.

    Otherwise, after one warning, a private one among the temporary files.
    """
    return _code_directory(cache_directory()).joinpath(*parts)


def kept(path: Path, build: Callable[[Path], Path]) -> Path:
    """``path``, a file of `code_directory`, made by ``build`` unless it is there, whole and this user's own.

    ``build`` gets an empty folder and returns the file that it has made in there. Of several processes that need the
    file, one builds it and the others wait.
    """
    if is_whole(path) and is_private(path):
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        if not (is_whole(path) and is_private(path)):
            _sweep_builds(path.parent)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as scratch:
                made = build(Path(scratch))
                content = made.read_bytes()
                made.write_bytes(content + hashlib.sha256(content).digest())
                made.chmod(0o700)
                os.replace(made, path)
    return path


def build_remedy(error: Exception) -> str:
    """What to do about a build that failed: a disk that is full or closed is told from a compiler that is missing.

    >>> build_remedy(OSError(28, "No space left on device"))
    'free some space, or name a folder you may write to in $ACF_CACHE_DIR'
    """
    if isinstance(error, OSError) or os.strerror(errno.ENOSPC) in str(error):
        return "free some space, or name a folder you may write to in $ACF_CACHE_DIR"
    return "install a C++ compiler (for example g++) or name one in $CXX"


def _sweep_builds(folder: Path) -> None:
    """Remove the folders of builds that were killed: those that are older than any build may take."""
    for scratch in folder.glob("build-*"):
        with suppress(OSError):
            if time.time() - scratch.stat().st_mtime > 2 * BUILD_SECONDS:
                shutil.rmtree(scratch)


def is_whole(path: Path) -> bool:
    """Whether the file exists and ends with the checksum of what comes before."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-CHECKSUM_BYTES]).digest() == content[-CHECKSUM_BYTES:]


def is_private(path: Path) -> bool:
    """Whether no user but this one and root can change what lies at ``path``, by the modes of it and its folders."""
    path = Path(os.path.realpath(path))
    for place in (path, *path.parents):
        status = place.stat()
        others_write = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and _is_shared(status.st_gid))
        only_own_entries = status.st_mode & stat.S_ISVTX and place != path  # as in /tmp
        if status.st_uid not in (os.getuid(), 0) or (others_write and not only_own_entries):
            return False
    return True


def _is_shared(group: int) -> bool:
    """Whether a group may have members beside this user: any but root's, and the user's own as many systems make it."""
    import grp
    import pwd

    if group == 0:
        return False
    try:
        user = pwd.getpwuid(os.getuid())
        return group != user.pw_gid or bool(set(grp.getgrgid(group).gr_mem) - {user.pw_name})
    except KeyError:
        return True


@cache
def _code_directory(wanted: Path) -> Path:
    with suppress(OSError):
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(wanted, os.W_OK | os.X_OK):
            if is_private(wanted):
                return wanted
            warnings.warn(
                f"acf: other users may write to {wanted}, so compiled code is not kept there; chmod go-w it and the "
                "folders above, or name another folder in $ACF_CACHE_DIR",
                SharedCacheWarning,
                stacklevel=3,
            )
    own = Path(tempfile.gettempdir()) / f"acf-{os.getuid()}"
    with suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
        if is_private(own):
            return own
    return Path(tempfile.mkdtemp(prefix="acf-"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file for the time of the block; go on without where the system or the file system has no locks."""
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except (ImportError, OSError):
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
