"""The SQLite record of a run's topology and gradients, written while it trains."""

import sqlite3
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from acf.errors import FileError
from acf.records.database import connect, reason_of

if TYPE_CHECKING:
    from acf.train import GradientFigures, LayerFigures

_TABLES = {
    "topology_figures": ("step", "layer", "density", "flip_rate", "explored"),
    "gradient_figures": ("step", "layer", "target", "sparsity", "threshold"),
}
_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
    run TEXT NOT NULL, {} INTEGER NOT NULL, {} TEXT NOT NULL, {} REAL NOT NULL, {} REAL NOT NULL, {} REAL NOT NULL,
    PRIMARY KEY (run, step, layer)
)
"""


WAIT_SECONDS = 5.0
"""How long a step waits for a file that another process holds."""


class StoreWarning(UserWarning):
    """Figures of a step could not be recorded; training goes on."""


class TopologyStore:
    """An ``on_move`` for `acf.attach` that records every layer's figures in the SQLite file ``path``.

    Several runs share a file under different names ``run``. A run that is resumed from an older checkpoint writes over
    the steps it repeats. Every call commits, so a run that dies leaves the figures it had recorded.

    >>> with TopologyStore(":memory:") as store:
    ...     store.read()
    []
    """

    def __init__(self, path: str | Path, run: str = "run") -> None:
        self.path = path
        self.run = run
        self._fails = False
        try:
            self._connection = connect(path, self, WAIT_SECONDS)
            with self._connection:
                for table, columns in _TABLES.items():
                    self._connection.execute(_CREATE.format(table, *columns))
        except sqlite3.Error as error:
            reason = reason_of(error)
            raise FileError(
                f"{path} cannot be used as a SQLite record ({reason}); pass a path in a folder that exists and that "
                "you may write to"
            ) from error

    def __call__(self, step: int, figures: "Sequence[LayerFigures | GradientFigures]") -> None:
        """Record the figures of all layers after ``step``; where that fails, training goes on without them.

        The first step that fails costs a warning, and the wait for a file that another process holds; those that
        follow cost neither, until one succeeds.
        """
        try:
            with self._connection:
                for each in figures:
                    table = "topology_figures" if hasattr(each, "density") else "gradient_figures"
                    row = (self.run, *(getattr(each, name) for name in _TABLES[table]))
                    self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            if not self._fails:
                reason = reason_of(error)
                warnings.warn(
                    f"{self.path}: step {step} is not recorded ({reason}); training goes on, and so do attempts to "
                    "record later steps",
                    StoreWarning,
                    stacklevel=2,
                )
            self._wait_for_others(0.0)
            self._fails = True
        else:
            if self._fails:
                self._wait_for_others(WAIT_SECONDS)
            self._fails = False

    def _wait_for_others(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {round(1e3 * seconds)}")

    def read(self) -> "list[LayerFigures]":
        """All figures of this run's topology, by step and then in the order in which they were written."""
        from acf.train import LayerFigures  # a reader of records that holds none needs no torch

        return [LayerFigures(*row) for row in self._rows("topology_figures", (int, str, float, float, float))]

    def read_gradients(self) -> "list[GradientFigures]":
        """All figures of this run's gradients, in the same order."""
        from acf.train import GradientFigures

        return [GradientFigures(*row) for row in self._rows("gradient_figures", (int, str, float, float, float))]

    def _rows(self, table: str, kinds: tuple[type, ...]) -> list[tuple[Any, ...]]:
        query = f"SELECT {', '.join(_TABLES[table])} FROM {table} WHERE run = ? ORDER BY step, rowid"
        try:
            rows = self._connection.execute(query, (self.run,)).fetchall()
        except sqlite3.Error as error:
            raise FileError(
                f"{self.path} cannot be read ({reason_of(error)}); take a copy, or record the run again"
            ) from error
        for row in rows:
            if not all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)):
                raise FileError(f"{self.path} is damaged: {row!r} in {table}; take a copy, or record the run again")
        return rows

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> "TopologyStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
