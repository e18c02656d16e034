"""What a folder of runs keeps, and what it refuses."""

import json
from math import isnan
from pathlib import Path

import pytest

from acf.bench.evaluation.run import MachineStep, SystemRun
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.training.run import CurvePoint
from acf.errors import FileError


def a_run(system: str = "dense", seed: int = 0, quality: float = 90.0) -> SystemRun:
    curve = (CurvePoint(5, 1.0, quality / 2), CurvePoint(10, 2.0, quality))
    values = {"compile_seconds": 1.0, "joules": None, "energy_source": "none", "peak_gib": 0.0, "sparsity": 0.0}
    return SystemRun(
        system, seed, 10, 8, 2.0, 16.0, parameters=1, moves=0, metrics={"top-1 %": quality}, curve=curve, **values
    )


def test_runs_and_simulated_steps_survive_in_sqlite_and_json(store: EvaluationStore) -> None:
    step = MachineStep("dense", "start", "acf-512", 2.0, 1e-3, 0.5, 0.8)
    store.add_run(a_run())
    store.add_machine_step(step)
    store.write_record()
    with EvaluationStore(store.folder, create=False) as again:
        assert again.runs() == [a_run()]
        assert again.machine_steps() == [step]
    record = json.loads((store.folder / "evaluation.json").read_text())["data"]
    assert record["runs"][0]["metrics"] == {"top-1 %": 90.0}


def test_a_run_that_diverged_is_kept_as_such(store: EvaluationStore) -> None:
    store.add_run(a_run(quality=float("nan")))
    assert isnan(store.runs()[0].quality)


def test_another_configuration_is_refused_by_name(store: EvaluationStore) -> None:
    store.configure({"batch": 8})
    store.configure({"batch": 16})  # nothing was trained yet
    store.add_run(a_run())
    store.configure({"batch": 16})
    with pytest.raises(FileError, match=r"has runs with batch 16, and 32 was asked for; .* another --name"):
        store.configure({"batch": 32})


def test_a_folder_of_one_process_is_not_continued_by_two(store: EvaluationStore) -> None:
    store.configure({"batch": 8})  # as earlier versions wrote it
    store.add_run(a_run())
    store.configure({"batch": 8, "processes": 1})
    with pytest.raises(FileError, match="has runs with processes 1, and 2 was asked for"):
        store.configure({"batch": 8, "processes": 2})


def test_runs_of_another_device_are_refused(store: EvaluationStore) -> None:
    facts = {"device": "H200", "torch": "2.11", "data": "digits"}
    assert store.begin_session(facts) == 0
    assert store.begin_session(facts) == 1
    with pytest.raises(FileError, match="has runs with device H200, here it is CPU"):
        store.begin_session(facts | {"device": "CPU"})


def test_a_folder_without_runs_cannot_be_rendered(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"holds no evaluation\.sqlite; pass --out and --name"):
        EvaluationStore(tmp_path, create=False)


def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "evaluation.sqlite").write_bytes(b"no database at all, " * 100)
    with pytest.raises(FileError, match="file is not a database"):
        EvaluationStore(tmp_path)


@pytest.mark.parametrize(
    ("table", "value", "message"),
    [
        ("runs", "{}", "run.system is missing"),
        ("runs", "nonsense", "is damaged"),
        ("sessions", "3", "session is 3 and no object with fields"),
        ("machines", "[]", "machine is .. and no object with fields"),
        ("facts", '"x"', "task is 'x' and no object with fields"),
    ],
)
def test_a_row_with_values_of_another_kind_is_refused(tmp_path: Path, table: str, value: str, message: str) -> None:
    with EvaluationStore(tmp_path) as store:
        store.put_fact("task", {})
        store.begin_session({"device": "cpu"})
        connection = store._connection
        connection.execute("INSERT INTO runs VALUES ('dense', 0, ?)", (value,))
        connection.execute("INSERT INTO machines VALUES ('dense', 'end', 'x', ?)", (value,))
        if table in ("sessions", "facts"):
            connection.execute(f"UPDATE {table} SET value = ?", (value,))
        reads = {"runs": store.runs, "sessions": store.sessions, "machines": store.machine_steps}
        with pytest.raises(FileError, match=message):
            reads.get(table, lambda: store.fact("task"))()


def test_a_damaged_text_of_several_lines_is_refused_in_one_line(tmp_path: Path) -> None:
    with EvaluationStore(tmp_path) as store:
        store._connection.execute("INSERT INTO runs VALUES ('dense', 0, CAST(? AS TEXT))", (b"a\n\nb\xff",))
        with pytest.raises(FileError, match="Could not decode to UTF-8 column 'value'") as refused:
            store.runs()
    assert len(str(refused.value).splitlines()) == 1
