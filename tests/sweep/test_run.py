"""Sweeps from their record: resumed, with points that fail, in processes that die."""

import os
import signal
import sqlite3
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from acf.errors import SweepError
from acf.sweep import Attempt, Axes, OwnFunction, PlayedTraces, Processes, Sweep, read_sweep, run_sweep
from acf.sweep.evaluation import Figures
from acf.sweep.store import SweepStore
from acf.sweep.sweep import Changes


class Counting:
    """Played traces that count their points."""

    def __init__(self, traces: PlayedTraces) -> None:
        self.traces, self.calls = traces, 0
        self.objectives, self.identity, self.slowest = traces.objectives, traces.identity, traces.slowest
        self.check = traces.check

    def __call__(self, changes: Changes) -> Figures:
        self.calls += 1
        return self.traces(changes)


AXES = Axes({"mesh_columns": (2, 4), "link_bytes": (16, 32), "tile": (16, 12)})


def test_a_bad_point_fails_alone_and_a_second_run_repeats_nothing(step: Path, tmp_path: Path) -> None:
    counting = Counting(PlayedTraces((step,)))
    sweep = Sweep("s", AXES, counting, tmp_path / "s" / "sweep.sqlite")
    record = run_sweep(sweep)
    assert counting.calls == len(record.rows) == 8
    assert len(record.failed) == 4
    assert record.failures == {"acf-512: tile 12 is not one of 8, 16, 32; use one of these": 4}
    assert record.parameters == ("mesh_columns", "link_bytes", "tile")
    assert 1 <= len(record.front) <= 4
    assert run_sweep(sweep) == record
    assert counting.calls == 8
    more = Axes({**AXES.values, "link_bytes": (16, 32, 64)})
    assert len(run_sweep(Sweep("s", more, counting, sweep.path)).rows) == counting.calls == 12


def test_a_record_of_another_sweep_is_refused(step: Path, tmp_path: Path) -> None:
    path = tmp_path / "sweep.sqlite"
    axes = Axes({"link_bytes": (16,)})
    run_sweep(Sweep("s", axes, PlayedTraces((step,)), path))
    with pytest.raises(SweepError, match="holds a sweep of another base; pass another --name, or delete that file"):
        run_sweep(Sweep("s", axes, PlayedTraces((step,), "acf-1"), path))
    with pytest.raises(SweepError, match="holds a sweep of another set of parameters"):
        run_sweep(Sweep("s", Axes({"tile": (8,)}), PlayedTraces((step,)), path))


def test_what_is_no_record_of_a_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("not a data base, but long enough to be mistaken for one" * 20)
    with pytest.raises(SweepError, match="cannot be used as the record of a sweep"):
        SweepStore(tmp_path / "text.sqlite")
    sqlite3.connect(tmp_path / "other.sqlite").close()
    with pytest.raises(SweepError, match="holds no sweep"):
        read_sweep(tmp_path / "other.sqlite")
    with pytest.raises(SweepError, match="is not a file"):
        read_sweep(tmp_path / "absent.sqlite")


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A function whose point 3 kills its process, and whose point 5 waits for ever in the first run."""
    (tmp_path / "deadly_points_of_a_test.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "def evaluate(number):\n"
        "    if number == 3 and Path('deadly').exists(): os._exit(9)\n"
        "    if number == 5 and not Path('go').exists(): time.sleep(60)\n"
        "    return {'figure': number}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    yield "deadly_points_of_a_test"
    sys.modules.pop("deadly_points_of_a_test", None)


def test_a_point_that_kills_its_process_fails_alone(own_module: str, tmp_path: Path) -> None:
    (tmp_path / "deadly").touch()
    (tmp_path / "go").touch()
    axes = Axes({"number": tuple(range(8))})
    sweep = Sweep("s", axes, OwnFunction(f"{own_module}:evaluate", ("figure",)), tmp_path / "sweep.sqlite")
    record = run_sweep(sweep, Processes(2))
    assert sorted(int(row.attempt.changes["number"]) for row in record.rows if row.attempt.figures) == [
        *range(3),
        *range(4, 8),
    ]
    assert list(record.failures) == ["the process that evaluated it died; it was killed, or ran out of memory"]


def test_a_sweep_that_was_killed_goes_on_where_it_was(own_module: str, tmp_path: Path) -> None:
    axes = Axes({"number": tuple(range(8))})
    sweep = Sweep("s", axes, OwnFunction(f"{own_module}:evaluate", ("figure",)), tmp_path / "sweep.sqlite")
    running = started(sweep)
    try:
        wait_for_points(sweep.path, 5)
    finally:
        os.kill(running, signal.SIGKILL)
        os.waitpid(running, 0)
    (tmp_path / "go").touch()
    with SweepStore(sweep.path) as store:
        assert store.missing(axes.grid()) == [{"number": number} for number in (5, 6, 7)]
    record = run_sweep(sweep)
    assert [row.attempt for row in record.rows] == [
        Attempt({"number": number}, {"figure": float(number)}) for number in range(8)
    ]


def started(sweep: Sweep) -> int:
    """The id of a process that runs ``sweep``: a fork, which need not import anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: this one uses none of theirs
        child = os.fork()
    if child == 0:
        try:
            run_sweep(sweep)
        finally:
            os._exit(0)
    return child


def wait_for_points(path: Path, count: int) -> None:
    """Until the record has that many points."""
    for _ in range(600):
        if path.exists():
            with SweepStore(path) as store:
                if len(store.read()) >= count:
                    return
        time.sleep(0.05)
    raise AssertionError(f"{path} has no {count} points after 30 s")
