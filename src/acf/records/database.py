"""Connections to SQLite files that do not outlive the store they belong to."""

import sqlite3
import weakref
from contextlib import suppress
from pathlib import Path

from acf.files import check_inside


def connect(path: str | Path, owner: object, wait_seconds: float = 5.0) -> sqlite3.Connection:
    """A connection to ``path``, closed when ``owner`` is collected if nobody closed it before.

    So a store whose tables cannot be made, or that a user's training loop never closes, leaves no open file behind.
    A statement waits up to ``wait_seconds`` for a file that another process holds.
    """
    check_inside(Path(path))
    connection = sqlite3.connect(path, timeout=wait_seconds)
    weakref.finalize(owner, _close, connection)
    return connection


def reason_of(error: Exception) -> str:
    r"""What SQLite says of a failure, in one line: it may quote what a damaged file holds, line by line.

    >>> print(reason_of(sqlite3.OperationalError("could not decode 'a\n\nb'")))
    could not decode 'a b'
    """
    return " ".join(str(error).split())[:200] or type(error).__name__


def _close(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # the collector may run in another thread, whose connection this is not
        connection.close()
