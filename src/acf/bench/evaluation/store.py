"""The folder of an evaluation: finished runs in SQLite and JSON, traces, and the checkpoint of the run in progress."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from acf.bench.evaluation.run import MachineStep, SystemRun
from acf.errors import FileError
from acf.files import check_writable
from acf.records import parse_json, read_value, write_record
from acf.records.database import connect, reason_of

Value = TypeVar("Value")

DATABASE, RECORD = "evaluation.sqlite", "evaluation.json"
MUST_AGREE = ("device", "torch", "data")
"""Facts of sessions that must be the same for their seconds, joules and quality to be set beside each other."""

IMPLIED = {"processes": 1}
"""Settings that folders of earlier versions do not name."""

FACTS: dict[str, Any] = {
    "captured_examples": float,
    "references": list[str],
    "task": dict[str, Any],
    "configuration": dict[str, Any],
    "densities": dict[str, Any],
    "skipping": list[dict[str, Any]],
}
"""What a kept value is; any other may be anything."""

_CREATE = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (number INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (system TEXT, seed INTEGER, value TEXT NOT NULL, PRIMARY KEY (system, seed));
CREATE TABLE IF NOT EXISTS points (
    system TEXT, seed INTEGER, step INTEGER, seconds REAL, quality REAL, joules REAL, PRIMARY KEY (system, seed, step)
);
CREATE TABLE IF NOT EXISTS machines (
    system TEXT, stage TEXT, machine TEXT, value TEXT NOT NULL, PRIMARY KEY (system, stage, machine)
);
"""


class EvaluationStore:
    """What ``folder`` holds; every change is one transaction, so that a process that is killed loses none before it."""

    def __init__(self, folder: Path, create: bool = True) -> None:
        self.folder = folder
        if not create and not (folder / DATABASE).is_file():
            raise FileError(f"{folder} holds no {DATABASE}; pass --out and --name of runs that were made")
        check_writable(folder / DATABASE)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = connect(folder / DATABASE, self)
        except (OSError, sqlite3.Error) as error:
            raise FileError(
                f"{folder} cannot hold the runs ({reason_of(error)}); pass --out with a folder you may write to"
            ) from error
        with self._changing() as connection:
            connection.executescript(_CREATE)

    def configure(self, configuration: dict[str, Any]) -> None:
        """Keep the configuration, or refuse by name one that differs from that of the runs that are here."""
        begun = bool(self.runs()) or any(self.folder.glob("checkpoint-*.pt"))
        found: dict[str, Any] = self.fact("configuration") if begun else configuration
        for name, value in configuration.items():
            known = found.get(name, IMPLIED.get(name))
            if known != value:
                raise FileError(
                    f"{self.folder} has runs with {name} {known}, and {value} was asked for; use the same, or another "
                    "--name"
                )
        self.put_fact("configuration", configuration)

    def begin_session(self, facts: dict[str, str]) -> int:
        """The number of this call; refuse another device, torch or data than the earlier ones had."""
        for earlier in self.sessions():
            for name in MUST_AGREE:
                if earlier.get(name) != facts.get(name):
                    raise FileError(
                        f"{self.folder} has runs with {name} {earlier.get(name)}, here it is {facts.get(name)}; run "
                        "where they were made, or use another --name"
                    )
        number = len(self.sessions())
        with self._changing() as connection:
            connection.execute("INSERT INTO sessions VALUES (?, ?)", (number, json.dumps(facts)))
        return number

    def sessions(self) -> list[dict[str, str]]:
        """The calls that made the runs: machine, software, commit, date and command of each."""
        rows = self._rows("SELECT value FROM sessions ORDER BY number")
        return [self._read(text, lambda values: read_value(dict[str, str], values, "session")) for (text,) in rows]

    def fact(self, name: str) -> Any:
        """A kept value, None where there is none."""
        rows = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return self._read(rows[0][0], lambda values: read_value(FACTS.get(name, Any), values, name)) if rows else None

    def put_fact(self, name: str, value: Any) -> None:
        """Keep a plain value."""
        with self._changing() as connection:
            connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def add_run(self, run: SystemRun) -> None:
        """Keep a finished run and drop its checkpoint."""
        with self._changing() as connection:
            text = json.dumps(run.to_dict(), allow_nan=False)
            connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", (run.system, run.seed, text))
            points = [(run.system, run.seed, each.step, each.seconds, each.quality, each.joules) for each in run.curve]
            connection.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?)", points)
        self.checkpoint(run.system, run.seed).unlink(missing_ok=True)

    def runs(self) -> list[SystemRun]:
        """Every finished run, in the order in which they finished."""
        rows = self._rows("SELECT value FROM runs ORDER BY rowid")
        return [self._read(text, SystemRun.from_dict) for (text,) in rows]

    def has_run(self, system: str, seed: int) -> bool:
        """Whether that run is finished."""
        return any(self._rows("SELECT 1 FROM runs WHERE system = ? AND seed = ?", system, seed))

    def add_machine_step(self, step: MachineStep) -> None:
        """Keep a simulated step."""
        with self._changing() as connection:
            row = (step.system, step.stage, step.machine, json.dumps(step.to_dict()))
            connection.execute("INSERT OR REPLACE INTO machines VALUES (?, ?, ?, ?)", row)

    def machine_steps(self) -> list[MachineStep]:
        """Every simulated step."""
        rows = self._rows("SELECT value FROM machines ORDER BY rowid")
        return [self._read(text, MachineStep.from_dict) for (text,) in rows]

    def checkpoint(self, system: str, seed: int) -> Path:
        """Where the run in progress is kept."""
        return self.folder / f"checkpoint-{file_name(system)}-{seed}.pt"

    def trace(self, system: str, stage: str, seed: int = 0) -> Path:
        """Where a traced step is kept."""
        of_seed = f"-seed{seed}" if seed else ""
        return self.folder / "traces" / f"{file_name(system)}-{stage}{of_seed}.safetensors"

    def write_record(self) -> Path:
        """Everything as JSON, for readers without SQLite."""
        names = [name for (name,) in self._rows("SELECT name FROM facts")]
        record = {name: self.fact(name) for name in names} | {
            "sessions": self.sessions(),
            "runs": [run.to_dict() for run in self.runs()],
            "machines": [step.to_dict() for step in self.machine_steps()],
        }
        path = self.folder / RECORD
        write_record(path, "evaluation-runs", record)
        return path

    def _read(self, text: Any, read: Callable[[Any], Value]) -> Value:
        """What the JSON of a row says; a damaged row is refused."""
        try:
            return read(parse_json(text))
        except (TypeError, ValueError, RecursionError) as error:
            reason = reason_of(error)
            raise FileError(
                f"{self.folder / DATABASE} is damaged ({reason}); take a copy, or delete the file and run again"
            ) from error

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                yield self._connection
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> FileError:
        reason = reason_of(error)
        return FileError(
            f"{self.folder / DATABASE}: {reason}; free some space, or delete the file if it is damaged, and run again: "
            "finished runs are kept"
        )

    def __enter__(self) -> "EvaluationStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


def file_name(system: str) -> str:
    """A system's name as a part of a file's name.

    >>> file_name("rigl-90/block=64"), file_name("2:4")
    ('rigl-90-block64', '2of4')
    """
    return system.replace("/", "-").replace("=", "").replace(":", "of")
