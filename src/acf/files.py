"""Writing files so that a reader, or an interrupted program, meets the old content or the new, never a part."""

import os
from pathlib import Path
from uuid import uuid4

from acf.errors import FileError


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
