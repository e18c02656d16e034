"""Files: the cache folder, and writing so that a reader meets the old content or the new, never a part."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from acf.errors import FileError


def cache_directory() -> Path:
    """Where builds and measured choices are kept: ``$ACF_CACHE_DIR``, ``$XDG_CACHE_HOME/acf`` or ``~/.cache/acf``."""
    if named := os.environ.get("ACF_CACHE_DIR"):
        return Path(named)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "acf"
    return Path.home() / ".cache" / "acf"


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path`` in one step, making its folders; raises `FileError` where that is not possible."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to, which takes its place in one step if nothing goes wrong inside.

    It is on the disk before it does, so that a crash of the machine leaves one of the two whole as well.
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
