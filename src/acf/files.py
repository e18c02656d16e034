"""The cache folder, and atomic writes: a reader sees the old content or the new, never a part of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from acf.errors import FileError


def cache_directory() -> Path:
    """The folder of builds and measured choices: ``$ACF_CACHE_DIR``, ``$XDG_CACHE_HOME/acf`` or ``~/.cache/acf``."""
    if named := os.environ.get("ACF_CACHE_DIR"):
        return Path(named)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "acf"
    return Path.home() / ".cache" / "acf"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, and make its folders; raises `FileError` where that is not possible."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` atomically when the ``with`` block ends without an error.

    The new content is flushed to disk first, so that a crash of the machine leaves one of the two files complete.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written ({error.strerror or error}); pass a path in a folder you may write to"
        ) from error
