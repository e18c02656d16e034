"""Files: the cache folder, and writing so that a reader meets the old content or the new, never a part."""

import os
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
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written ({error.strerror or error}); pass a path in a folder you may write to"
        ) from error
