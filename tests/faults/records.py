"""What a run folder holds, as values that do not depend on the clock or on how often the run was interrupted."""

import hashlib
import json
import sqlite3
from math import isnan
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

TIMED = {
    "seconds", "joules", "idle_watts", "step_ms", "compile_seconds", "warm_up_seconds", "date", "speedup", "sooner",
    "whole_seconds", "seconds_to_baseline", "energy_ratio",
    "commit",
}  # fmt: skip
"""Names of values that a clock or a meter gives, and of the state of the checkout."""

OF_INTERRUPTIONS = {"resumed", "interruptions", "sessions", "session", "commands"}
"""Names of values that say how often a run was gone on with."""

NOT_COMPARED = TIMED | OF_INTERRUPTIONS
PAGES = {".md", ".svg", ".html"}
"""Suffixes of pages for people, which hold times; that they are there is compared."""


def records_of(folder: Path) -> dict[str, Any]:
    """Every file below ``folder`` by its path, as comparable values."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): _content(path) for path in files}


def difference(first: Any, second: Any, where: str = "") -> str:
    """The first place in which two values differ, in words; "" where there is none."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted({*first, *second}, key=str):
            if key not in first or key not in second:
                return f"{where}/{key} is {'missing' if key not in second else 'new'}"
            if found := difference(first[key], second[key], f"{where}/{key}"):
                return found
        return ""
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return next((found for at, pair in pairs if (found := difference(*pair, f"{where}[{at}]"))), "")
    return "" if first == second else f"{where}: {str(first)[:80]} is now {str(second)[:80]}"


def _content(path: Path) -> Any:
    try:
        return _readable_content(path)
    except Exception as error:  # whatever a reader makes of half a file
        return f"cannot be read: {type(error).__name__}: {error}"


def _readable_content(path: Path) -> Any:
    if path.suffix == ".json":
        return _plain(json.loads(path.read_text()))
    if path.suffix == ".sqlite":
        return _tables(path)
    if path.suffix == ".pt":
        return _plain(torch.load(path, weights_only=True))
    if path.suffix == ".jsonl":
        return _losses(path)
    if path.suffix == ".safetensors":
        return _tensors(path)
    return "" if path.suffix in PAGES else hashlib.sha256(path.read_bytes()).hexdigest()


def _tables(path: Path) -> dict[str, Any]:
    """All rows of all tables, in any order, and whether SQLite finds the file whole."""
    connection = sqlite3.connect(path)
    try:
        connection.row_factory = sqlite3.Row
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {name: _rows(connection, name) for name in names if name not in NOT_COMPARED}
        return tables | {"integrity": connection.execute("PRAGMA integrity_check").fetchone()[0]}
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, table: str) -> list[Any]:
    rows = [_plain(dict(row)) for row in connection.execute(f"SELECT * FROM {table}")]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _tensors(path: Path) -> dict[str, Any]:
    """Metadata, which have no order in the file, and tensors."""
    with safe_open(path, "np") as file:
        digests = {name: hashlib.sha256(file.get_tensor(name).tobytes()).hexdigest() for name in file.keys()}  # noqa: SIM118
        return {"metadata": file.metadata(), "tensors": digests}


def _losses(path: Path) -> dict[str, Any]:
    """The loss of every step of a log; what a resumed run repeats takes the place of what it had."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {str(line["step"]): line["loss"] for line in lines if line["kind"] == "step"}


def _plain(value: Any) -> Any:
    """Lists, dictionaries and plain values, without `NOT_COMPARED`; texts of JSON are read, tensors listed."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items() if name not in NOT_COMPARED}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), hashlib.sha256(value.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()]
    if isinstance(value, str) and value[:1] in "[{" and value:
        try:
            return _plain(json.loads(value))
        except ValueError:
            return value
    return None if isinstance(value, float) and isnan(value) else value
