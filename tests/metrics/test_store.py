"""The SQLite record of a moving topology."""

import sqlite3
import time
from pathlib import Path

import pytest

from acf.errors import FileError
from acf.metrics import TopologyStore
from acf.metrics.store import StoreWarning
from acf.train import GradientFigures, LayerFigures

AT_10 = [LayerFigures(10, "fc1", 0.1, 0.3, 0.13), LayerFigures(10, "fc2", 0.2, 0.25, 0.25)]
AT_20 = [LayerFigures(20, "fc1", 0.1, 0.2, 0.15), LayerFigures(20, "fc2", 0.2, 0.125, 0.275)]


def test_what_is_recorded_can_be_read_in_another_process_s_place(tmp_path):
    with TopologyStore(tmp_path / "run.db") as store:
        store(10, AT_10)
        store(20, AT_20)
        with TopologyStore(tmp_path / "run.db") as reader:
            assert reader.read() == [*AT_10, *AT_20]


def test_a_resumed_run_writes_over_the_steps_it_repeats(tmp_path):
    repeated = [LayerFigures(10, "fc1", 0.1, 0.0, 0.1), LayerFigures(10, "fc2", 0.2, 0.0, 0.2)]
    with TopologyStore(tmp_path / "run.db") as store:
        store(10, AT_10)
        store(20, AT_20)
        store(10, repeated)
        assert store.read() == [*repeated, *AT_20]


def test_runs_in_one_file_are_kept_apart(tmp_path):
    with TopologyStore(tmp_path / "run.db", run="a") as first, TopologyStore(tmp_path / "run.db", run="b") as second:
        first(10, AT_10)
        second(20, AT_20)
        assert (first.read(), second.read()) == (AT_10, AT_20)


def test_any_sqlite_reader_finds_the_figures_by_name(tmp_path):
    with TopologyStore(tmp_path / "run.db") as store:
        store(10, AT_10)
    with sqlite3.connect(tmp_path / "run.db") as connection:
        rows = connection.execute("SELECT layer, flip_rate FROM topology_figures WHERE step = 10").fetchall()
    connection.close()
    assert rows == [("fc1", 0.3), ("fc2", 0.25)]


def test_a_file_that_cannot_be_used_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"nowhere.run\.db cannot be used as a SQLite record .*; pass a path"):
        TopologyStore(tmp_path / "nowhere" / "run.db")
    (tmp_path / "text.db").write_text("this is no database, though it is long enough to be looked at as one" * 20)
    with pytest.raises(FileError, match=r"text\.db cannot be used as a SQLite record"):
        TopologyStore(tmp_path / "text.db")


def test_thresholds_and_achieved_sparsities_of_gradients_are_recorded_beside_the_topology(tmp_path):
    gradients = [GradientFigures(10, "fc1", 0.5, 0.48, 1.5e-6), GradientFigures(20, "fc1", 0.5, 0.51, 1.4e-6)]
    with TopologyStore(tmp_path / "run.db") as store:
        store(10, AT_10)
        store(10, gradients[:1])
        store(20, gradients[1:])
        assert store.read() == AT_10
        assert store.read_gradients() == gradients


def figures_of(step: int) -> list[LayerFigures]:
    return [LayerFigures(step, f"layer{number}", 0.1, 0.2, 0.3) for number in range(50)]


def record_steps(store: TopologyStore, steps: range) -> None:
    for step in steps:
        store(step, figures_of(step))


def test_a_locked_file_costs_one_warning_and_not_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with TopologyStore(path) as store:
        store._connection.execute("PRAGMA busy_timeout = 1")
        other = sqlite3.connect(path)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.warns(StoreWarning, match="step 3 is not recorded .*locked.*; training goes on"):
            store(3, figures_of(3))
        started = time.monotonic()
        record_steps(store, range(4, 14))  # a second warning would be an error here
        assert time.monotonic() - started < 5.0  # in ten steps: they do not wait for the lock
        other.close()
        store(14, figures_of(14))
        assert store.read() == figures_of(14)


def test_a_full_disk_costs_one_warning_and_not_the_run(tmp_path: Path) -> None:
    with TopologyStore(tmp_path / "run.sqlite") as store:
        store(1, figures_of(1))
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.warns(StoreWarning, match="step 2 is not recorded .*full.*; training goes on") as warned:
            record_steps(store, range(2, 40))
        assert len(warned) == 1
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store(40, figures_of(40))
        assert store.read() == [*figures_of(1), *figures_of(40)]


def test_values_of_another_kind_are_refused(tmp_path: Path) -> None:
    with TopologyStore(tmp_path / "run.sqlite") as store:
        store(1, [LayerFigures(1, "fc", 0.1, 0.2, 0.3)])
        store._connection.execute("UPDATE topology_figures SET density = 'dense'")
        with pytest.raises(FileError, match="is damaged"):
            store.read()


def test_a_file_that_is_damaged_while_it_is_open_is_named(tmp_path: Path) -> None:
    path = tmp_path / "figures.sqlite"
    with TopologyStore(path) as store:
        path.write_bytes(b"no database" * 1000)
        with pytest.raises(FileError, match=r"figures\.sqlite cannot be read .*; take a copy, or record the run again"):
            store.read()
