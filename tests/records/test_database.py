"""A connection goes with the store that it belongs to."""

import sqlite3
from pathlib import Path

import pytest

from acf.errors import FileError
from acf.metrics import TopologyStore
from acf.records import database
from acf.records.database import connect


class Store:
    """Owns a connection."""


def test_a_store_that_nobody_closes_closes_its_file_when_it_goes(tmp_path: Path) -> None:
    store = Store()
    connection = connect(tmp_path / "figures.sqlite", store)
    connection.execute("SELECT 1")
    del store
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


def test_a_file_that_is_no_database_is_closed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    real = sqlite3.connect

    def remembered(path: Path, **options: float) -> sqlite3.Connection:
        opened.append(real(path, **options))
        return opened[-1]

    monkeypatch.setattr(database.sqlite3, "connect", remembered)
    (tmp_path / "figures.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(FileError, match="cannot be used as a SQLite record"):
        TopologyStore(tmp_path / "figures.sqlite")
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        opened[0].execute("SELECT 1")
