"""SQLite records of runs and sweeps, and the log of a run."""

import json
import sqlite3
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import acf
from acf.bench.evaluation.run import MachineStep, SystemRun
from acf.bench.evaluation.store import DATABASE, EvaluationStore
from acf.bench.pong.record import PongRun, ScorePoint, SystemFigures
from acf.bench.pong.store import PongStore
from acf.bench.training.run import CurvePoint
from acf.metrics import RunLog, TopologyStore
from acf.metrics.run_log import LOG_FILE
from acf.sweep import Axes, PlayedTraces, Sweep, run_sweep
from tests.fuzz.doors.command import run_command
from tests.fuzz.doors.traces import tiny_trace
from tests.fuzz.values import damaged, mutated, strange


def spoilt(rng: Random, whole: Path, path: Path) -> Path:
    """A copy of a SQLite file with damaged bytes, or with a value of a row changed."""
    path.write_bytes(whole.read_bytes())
    if rng.random() < 0.3:
        path.write_bytes(damaged(rng, path.read_bytes()))
        return path
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice(tables)
        if rng.random() < 0.05:
            connection.execute(f"DROP TABLE {table}")
            return path
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
        if not rows:
            return path
        row, place = rng.choice(rows), rng.randrange(len(columns))
        value = _changed(rng, row[1 + place])
        with suppress(sqlite3.Error, OverflowError):  # what the table itself refuses
            connection.execute(f"UPDATE {table} SET {columns[place]} = ? WHERE rowid = ?", (value, row[0]))
    return path


def _changed(rng: Random, value: Any) -> Any:
    """Another value for a column; text that is JSON stays JSON more often than not."""
    if isinstance(value, str) and value[:1] in ("{", "[", '"') and rng.random() < 0.8:
        return json.dumps(mutated(rng, json.loads(value)))
    changed = strange(rng)
    return json.dumps(changed) if isinstance(changed, list | dict) else changed


def topology_store(rng: Random, folder: Path) -> None:
    """The record of a run's topology."""
    whole = folder / "whole.sqlite"
    if not whole.exists():
        with TopologyStore(whole) as made:
            made(1, [acf.LayerFigures(1, f"layer{number}", 0.1, 0.2, 0.3) for number in range(20)])
    with TopologyStore(spoilt(rng, whole, folder / "damaged.sqlite")) as read:
        read.read()
        read.read_gradients()


def sweep_store(rng: Random, folder: Path) -> None:
    """The record of a sweep, drawn by `acf report` or gone on with."""
    whole = folder / "whole.sqlite"
    planned = Sweep("fuzz", Axes({"clock_hz": (1e9, 2e9)}), PlayedTraces((tiny_trace(folder),), "tensordash"), whole)
    if not whole.exists():
        run_sweep(planned)
    path = spoilt(rng, whole, folder / "sweep.sqlite")
    if rng.random() < 0.7:
        run_command("report", str(path), "--out", str(folder / "report.html"))
    else:
        run_sweep(Sweep("fuzz", planned.axes, planned.evaluation, path))


@cache
def _system_run(system: str) -> SystemRun:
    curve = (CurvePoint(5, 1.0, 50.0, 10.0), CurvePoint(10, 2.0, 60.0, 20.0))
    return SystemRun(
        system, 0, 10, 9, 2.0, 8.0, 0.5, 20.0, "meter", 1.0, 0.5, 1000, 1, {"quality": 60.0, "top-1": 60.0}, curve
    )  # fmt: skip


def evaluation_store(rng: Random, folder: Path) -> None:
    """The runs of `acf bench resnet50`, shown again."""
    whole = folder / "whole" / DATABASE
    if not whole.exists():
        with EvaluationStore(whole.parent) as store:
            store.configure({"batch": 8})
            store.begin_session({"device": "cpu", "torch": "2", "data": "digits", "command": "acf bench resnet50"})
            store.put_fact("captured_examples", 4.0)
            store.put_fact("references", [])
            task = {"name": "resnet50", "unit": "images", "quality": "top-1 %", "higher_is_better": True, "recipe": {}}
            store.put_fact("task", task)
            for system in ("dense", "rigl-90"):
                store.add_run(_system_run(system))
                store.add_machine_step(MachineStep(system, "end", "tensorcore", 4.0, 1e-3, 1e-3, 0.5))
    place = folder / "runs" / "mine"
    place.mkdir(parents=True, exist_ok=True)
    spoilt(rng, whole, place / DATABASE)
    run_command("bench", "resnet50", "--render", "--out", str(place.parent), "--name", "mine")


def pong_store(rng: Random, folder: Path) -> None:
    """The runs of `acf bench pong`, as JSON and as tables."""
    from acf.bench.pong.store import existing_store
    from acf.bench.pong.tables import pong_tables

    whole = folder / "whole" / "pong.sqlite"
    if not whole.exists():
        store = PongStore(whole.parent)
        store.require_settings({"frames": 100})
        store.add_session({"device": "cpu"})
        for variant in ("dense", "rigl-90"):
            for row in _pong_rows(variant):
                store.add(row)
        store.close()
    place = folder / "pong"
    place.mkdir(exist_ok=True)
    spoilt(rng, whole, place / "pong.sqlite")
    store = existing_store(place)
    try:
        store.to_dict()
        pong_tables(store)
    finally:
        store.close()


def _pong_rows(variant: str) -> list[Any]:
    from dataclasses import fields

    made = {int: 1, float: 0.5, str: "x"}
    rows = []
    for kind in (ScorePoint, PongRun, SystemFigures):
        values = {
            each.name: made.get(each.type if isinstance(each.type, type) else float, 0.5) for each in fields(kind)
        }
        rows.append(kind(**{**values, "variant": variant, "seed": 0}))
    return rows


def run_log(rng: Random, folder: Path) -> None:
    """The log of a training run, shown by `acf watch`."""
    import torch
    from torch import nn

    place, whole = folder / "run", folder / "whole"
    if not whole.exists():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 32))
        acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
        with RunLog(whole, model, total_steps=3, every=1) as log:
            for step in (1, 2, 3):
                log.step(step, 1.0 / step, accuracy=0.5)
                log(step, [acf.LayerFigures(step, "0", 0.5, 0.1, 0.2)])
    place.mkdir(exist_ok=True)
    lines = (whole / LOG_FILE).read_bytes().splitlines()
    if rng.random() < 0.3:
        (place / LOG_FILE).write_bytes(damaged(rng, b"\n".join(lines) + b"\n"))
    else:
        number = rng.randrange(len(lines))
        lines[number] = json.dumps(mutated(rng, json.loads(lines[number]))).encode()
        (place / LOG_FILE).write_bytes(b"\n".join(lines) + b"\n")
    _show_run(rng, place)


def _show_run(rng: Random, place: Path) -> None:
    from acf.metrics.run_history import RunReader
    from acf.report.watch.page import page_values

    if rng.random() < 0.5:
        run_command("watch", str(place), *(["--json"] if rng.random() < 0.5 else []))
    else:
        json.dumps(page_values(RunReader(place).update()), allow_nan=False)
