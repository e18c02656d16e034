"""The records of a comparison in one folder: SQLite while it runs, JSON for readers, checkpoints and traces."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Any, TypeVar

from acf.bench.pong.record import PongRun, PongSummary, ScorePoint, SystemFigures, summarize
from acf.bench.pong.settings import BEFORE
from acf.errors import AcfError, DataError, FileError
from acf.records import parse_json, read_as, write_record
from acf.records.database import connect, reason_of

Row = TypeVar("Row", ScorePoint, PongRun, SystemFigures)

KEYS: dict[type, tuple[str, ...]] = {
    ScorePoint: ("variant", "seed", "frames"),
    PongRun: ("variant", "seed"),
    SystemFigures: ("variant", "seed", "moment", "machine"),
}
"""Every kind of row with the columns that name one; a row that is written again replaces the old one."""

TABLES: dict[type, str] = {ScorePoint: "points", PongRun: "runs", SystemFigures: "systems"}


class PongStore:
    """The folder ``runs/<name>``: ``pong.sqlite``, ``pong.json``, and a checkpoint and three traces for every run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "pong.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} cannot be made ({error.strerror}); pass another folder with --out") from error
        with self._reporting():
            self._connection = connect(self.path, self)
            with self._connection as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT)")
                connection.execute("CREATE TABLE IF NOT EXISTS sessions (number INTEGER PRIMARY KEY, facts TEXT)")
                for kind, table in TABLES.items():
                    columns = ", ".join(each.name for each in fields(kind))
                    keys = ", ".join(KEYS[kind])
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({keys}))")

    def require_settings(self, settings: dict[str, Any]) -> None:
        """Keep the settings of the first call; refuse, by name, a later call with others."""
        with self._reporting(), self._connection as connection:
            found = {name: parse_json(value) for name, value in connection.execute("SELECT * FROM settings")}
            found = BEFORE | found if found else found
            for name, value in found.items():
                if settings.get(name, value) != value:
                    raise DataError(
                        f"{self.folder} has {name} {value}, and this comparison {settings[name]}; use the same, or "
                        "another folder for --out"
                    )
            missing = [(name, json.dumps(value)) for name, value in settings.items() if name not in found]
            connection.executemany("INSERT INTO settings VALUES (?, ?)", missing)

    def add_session(self, facts: dict[str, str]) -> int:
        """The number of the session with these ``facts``, which is added if it is new."""
        text = json.dumps(facts)
        with self._reporting(), self._connection as connection:
            known = connection.execute("SELECT number FROM sessions WHERE facts = ?", (text,)).fetchone()
            if known is not None:
                return int(known[0])
            return int(connection.execute("INSERT INTO sessions (facts) VALUES (?)", (text,)).lastrowid or 0)

    def add(self, row: ScorePoint | PongRun | SystemFigures) -> None:
        """Write a row; it is on the disk when this returns."""
        places = ", ".join("?" for _ in fields(row))
        with self._reporting(), self._connection as connection:
            connection.execute(f"INSERT OR REPLACE INTO {TABLES[type(row)]} VALUES ({places})", astuple(row))

    def rows(self, kind: type[Row]) -> list[Row]:
        """Every row of that kind, in the order of writing."""
        with self._reporting():
            found = self._connection.execute(f"SELECT * FROM {TABLES[kind]} ORDER BY rowid").fetchall()
        names = [each.name for each in fields(kind)]
        with self._reporting():
            rows = [read_as(kind, dict(zip(names, values, strict=True)), TABLES[kind]) for values in found]
            for run in rows:
                if isinstance(run, PongRun) and (not run.seconds > 0 or run.steps < 1):
                    raise ValueError(f"a run of {run.variant} has {run.steps} steps in {run.seconds} seconds")
        return rows

    def find(self, variant: str, seed: int) -> PongRun | None:
        """The finished run of that variant and seed."""
        return next((run for run in self.rows(PongRun) if (run.variant, run.seed) == (variant, seed)), None)

    def checkpoint(self, variant: str, seed: int) -> Path:
        """The file that a run is continued from."""
        return self.folder / f"{_file_name(variant, seed)}.pt"

    def trace(self, variant: str, seed: int, moment: str) -> Path:
        """The file of a captured step."""
        return self.folder / "traces" / f"{_file_name(variant, seed)}-{moment}.safetensors"

    def summaries(self) -> list[PongSummary]:
        """One row for each variant, in the order of their first runs."""
        runs, points = self.rows(PongRun), self.rows(ScorePoint)
        return [
            summarize(
                [run for run in runs if run.variant == name], [point for point in points if point.variant == name]
            )
            for name in dict.fromkeys(run.variant for run in runs)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        with self._reporting():
            settings = self._connection.execute("SELECT * FROM settings").fetchall()
            sessions = self._connection.execute("SELECT * FROM sessions").fetchall()
            kept = {str(name): parse_json(value) for name, value in settings}
            facts = {str(number): parse_json(text) for number, text in sessions}
        return {
            "settings": kept,
            "sessions": facts,
            "summaries": [asdict(summary) for summary in self.summaries()],
            "runs": [run.to_dict() for run in self.rows(PongRun)],
            "points": [asdict(point) for point in self.rows(ScorePoint)],
            "systems": [asdict(each) for each in self.rows(SystemFigures)],
        }

    def write_json(self) -> None:
        """Write ``pong.json`` anew."""
        write_record(self.folder / "pong.json", "pong", self.to_dict())

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except AcfError:
            raise
        except (sqlite3.Error, TypeError, ValueError, RecursionError) as error:
            reason = reason_of(error)
            raise FileError(
                f"{self.path} cannot be used as the record ({reason}); free space, or pass another folder with --out"
            ) from error


def existing_store(folder: Path) -> PongStore:
    """The store of a folder that has one."""
    if not (folder / "pong.sqlite").exists():
        raise FileError(f"{folder} has no pong.sqlite; pass a folder that acf bench pong has written")
    return PongStore(folder)


def _file_name(variant: str, seed: int) -> str:
    return f"{variant.replace('/', '_').replace('=', '')}-seed{seed}"
