"""The SQLite file of a sweep: every point that was evaluated, so that a sweep that dies goes on where it was."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from acf.errors import SweepError
from acf.files import check_writable
from acf.records.database import connect, reason_of
from acf.sweep.evaluation import Attempt
from acf.sweep.sweep import Changes

FORMAT = "acf.sweep.v1"
_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS points (changes TEXT PRIMARY KEY, figures TEXT, failure TEXT NOT NULL);
"""


class SweepStore:
    """Points by what they change, in the file ``path``; every `add` commits, so a killed process loses nothing added.

    >>> with SweepStore(":memory:") as store:
    ...     store.add([Attempt({"tile": 8}, {"step_seconds": 0.5})])
    ...     store.read()
    [Attempt(changes={'tile': 8}, figures={'step_seconds': 0.5}, failure='')]
    """

    def __init__(self, path: str | Path, must_exist: bool = False) -> None:
        self.path = path
        if str(path) != ":memory:":
            check_writable(Path(path))
        if must_exist and not Path(path).is_file():
            raise SweepError(f"{path} is not a file; pass a sweep.sqlite that `acf sweep` wrote")
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = connect(path, self)
            with self._connection:
                self._connection.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            reason = reason_of(error)
            raise SweepError(
                f"{path} cannot be used as the record of a sweep ({reason}); pass another --name, or mend that file"
            ) from error

    def describe(self, about: dict[str, Any], identity: dict[str, Any]) -> None:
        """Say what the sweep is; a file of another one, whose points mean something else, is refused.

        ``about`` may change from run to run (more values, another search), ``identity`` may not.
        """
        entries = {"format": FORMAT, "identity": json.dumps(identity, sort_keys=True, default=str)}
        kept = {key: value for key, value in self._entries().items() if key in entries}
        for key, value in kept.items():
            if value != entries[key]:
                with self._undamaged():
                    difference = _difference(key, value, identity)
                raise SweepError(
                    f"{self.path} holds a sweep of another {difference}; pass another --name, or delete that file"
                )
        everything = entries | {"about": json.dumps(about)}
        with self._writing():
            self._connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", everything.items())

    @property
    def about(self) -> dict[str, Any]:
        """What the sweep is, as `describe` was told."""
        entries = self._entries()
        if entries.get("format") != FORMAT:
            raise SweepError(f"{self.path} holds no sweep; pass a sweep.sqlite that `acf sweep` wrote")
        with self._undamaged():
            loaded: dict[str, Any] = json.loads(entries["about"])
        return loaded

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Record points, and commit."""
        rows = [
            (_key(each.changes), None if each.figures is None else json.dumps(each.figures), each.failure)
            for each in attempts
        ]
        with self._writing():
            self._connection.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", rows)

    def read(self) -> list[Attempt]:
        """All points in the order in which they were recorded."""
        with self._undamaged():
            rows = self._connection.execute("SELECT changes, figures, failure FROM points ORDER BY rowid").fetchall()
            return [
                Attempt(dict(json.loads(changes)), None if figures is None else dict(json.loads(figures)), str(failure))
                for changes, figures, failure in rows
            ]

    def missing(self, points: Iterable[Changes]) -> list[Changes]:
        """Those of ``points`` that are not recorded yet, in order."""
        with self._undamaged():
            recorded = {row[0] for row in self._connection.execute("SELECT changes FROM points")}
        return [changes for changes in points if _key(changes) not in recorded]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> "SweepStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _entries(self) -> dict[str, str]:
        with self._undamaged():
            return dict(self._connection.execute("SELECT key, value FROM about").fetchall())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Commit what the block writes."""
        try:
            with self._connection:
                yield
        except sqlite3.Error as error:
            reason = reason_of(error)
            raise SweepError(
                f"{self.path} cannot be written ({reason}); the points so far are kept: make room, then call it again"
            ) from error

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, LookupError, TypeError, ValueError) as error:
            raise SweepError(
                f"{self.path} is damaged ({reason_of(error)}); take a copy, or delete it and sweep again"
            ) from error


def _key(changes: Changes) -> str:
    return json.dumps(dict(changes), sort_keys=True)


def _difference(key: str, kept: str, identity: dict[str, Any]) -> str:
    """What differs between the sweep in the file and this one."""
    if key != "identity":
        return "format"
    before = dict(json.loads(kept))
    identity = json.loads(json.dumps(identity, default=str))
    return " and ".join(sorted(name for name in before | identity if before.get(name) != identity.get(name)))
