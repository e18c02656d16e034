"""The SQLite record of a run's topology, written while it trains."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from acf.errors import FileError

if TYPE_CHECKING:
    from acf.train import LayerFigures

_COLUMNS = ("step", "layer", "density", "flip_rate", "explored")
_CREATE = """
CREATE TABLE IF NOT EXISTS topology_figures (
    run TEXT NOT NULL, step INTEGER NOT NULL, layer TEXT NOT NULL,
    density REAL NOT NULL, flip_rate REAL NOT NULL, explored REAL NOT NULL,
    PRIMARY KEY (run, step, layer)
)
"""


class TopologyStore:
    """An ``on_move`` for `acf.attach` that records every layer's figures in the SQLite file ``path``.

    Several runs share a file under different names ``run``. A run that is resumed from an older checkpoint writes over
    the steps it repeats. Every move is committed, so a run that dies leaves what it did.

    >>> with TopologyStore(":memory:") as store:
    ...     store.read()
    []
    """

    def __init__(self, path: str | Path, run: str = "run") -> None:
        self.path = path
        self.run = run
        try:
            self._connection = sqlite3.connect(path)
            with self._connection:
                self._connection.execute(_CREATE)
        except sqlite3.Error as error:
            raise FileError(
                f"{path} cannot be used as a SQLite record ({error}); pass a path in a folder that exists and that you "
                "may write to"
            ) from error

    def __call__(self, step: int, figures: "Sequence[LayerFigures]") -> None:
        """Record the figures of all layers after ``step``."""
        rows = [(self.run, *(getattr(each, name) for name in _COLUMNS)) for each in figures]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO topology_figures VALUES (?, ?, ?, ?, ?, ?)", rows)

    def read(self) -> "list[LayerFigures]":
        """All figures of this run, by step and then in the order in which they were written."""
        from acf.train import LayerFigures  # a reader of records that holds none needs no torch

        query = f"SELECT {', '.join(_COLUMNS)} FROM topology_figures WHERE run = ? ORDER BY step, rowid"
        return [LayerFigures(*row) for row in self._connection.execute(query, (self.run,))]

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> "TopologyStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
