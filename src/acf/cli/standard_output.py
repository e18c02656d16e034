"""Standard output that may be a file on a disk: one that is full is an error of one line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from acf.files import as_file_errors

NAME = Path("standard output")


class StandardOutput(TextIOWrapper):
    """A text stream whose errors of the system are `acf.errors.FileError`.

    A pipe that its reader has closed stays a BrokenPipeError: the reader, ``head`` for example, has what it wanted.
    """

    def write(self, text: str, /) -> int:
        """Write ``text``; returns its length."""
        with _as_file_errors():
            return super().write(text)

    def flush(self) -> None:
        """Hand over what is buffered."""
        with _as_file_errors():
            super().flush()


@contextmanager
def checked_output() -> Iterator[None]:
    """Let ``sys.stdout`` be a `StandardOutput`, whose last words are written when the ``with`` block ends.

    Nothing is changed where there is no output, or where a test listens.
    """
    output = sys.stdout
    if type(output) is not TextIOWrapper:
        yield
        return
    sys.stdout = StandardOutput(output.detach(), output.encoding, output.errors, line_buffering=output.line_buffering)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not tried again at the exit
        raise


@contextmanager
def _as_file_errors() -> Iterator[None]:
    try:
        with as_file_errors(NAME):
            yield
    except OSError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from None
        raise
