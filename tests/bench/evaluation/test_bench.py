"""Both benchmarks at a size for CPUs, from options to the table, and rendering without training."""

import json
from pathlib import Path

import pytest

from acf.bench.evaluation import bench
from acf.bench.evaluation.bench import (
    EvaluationOptions,
    ResNet50Options,
    TransformerOptions,
    run_evaluation,
    with_remaining_time,
)
from acf.errors import AcfError, DataError, SparsityError

COMMON = {
    "systems": "dense,rigl",
    "sparsities": (0.5,),
    "block": 16,
    "size": "small",
    "steps": 3,
    "measurements": 1,
    "machines": "gpu-h200",
    "captured": 2,
    "device": "cpu",
}
OPTIONS = {
    "resnet50": lambda out: ResNet50Options(**COMMON, seeds=1, batch=16, examples=64, out=out),
    "transformer": lambda out: TransformerOptions(**COMMON, seeds=1, batch=16, test_sentences=4, beams=1, out=out),
}


def quiet(what: str, share: float) -> None:
    """Progress that nobody sees."""


@pytest.mark.parametrize("benchmark_name", OPTIONS)
def test_a_benchmark_trains_traces_simulates_and_renders_again(
    benchmark_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    options: EvaluationOptions = OPTIONS[benchmark_name](tmp_path)
    table = run_evaluation(options, quiet)
    assert [(row.machine, row.system) for row in table.rows] == [
        ("this device", "dense"),
        ("this device", "rigl-50/block=16"),
        ("gpu-h200", "dense"),
        ("gpu-h200", "rigl-50/block=16"),
    ]
    assert all(row.examples_per_s.mean > 0 for row in table.rows)
    assert (table.rows[1].sparsity or 0.0) > 0.2
    assert table.rows[2].utilization is not None
    folder = tmp_path / benchmark_name
    record = json.loads((folder / "evaluation.json").read_text())["data"]
    session = record["sessions"][0]
    assert {"torch", "device", "revision", "data"} <= set(session)
    assert session["command"].startswith(f"acf bench {benchmark_name} --systems dense,rigl --sparsity 0.5 --block 16")
    assert str(tmp_path) not in json.dumps(record), "a record holds no paths of the machine"
    assert not list(folder.glob("checkpoint-*"))
    assert "| this device | dense |" in (folder / "evaluation.md").read_text()

    def no_training(*arguments: object) -> None:
        raise AssertionError("it trained again")

    monkeypatch.setattr(bench, "train_system", no_training)
    values = {**COMMON, "out": tmp_path, "render": True}
    again = run_evaluation(type(options)(**values), quiet)
    assert again.rows == table.rows
    assert run_evaluation(options, quiet).rows == table.rows, "finished runs are not made again"


def test_traced_systems_are_named_by_kind_or_one_by_one() -> None:
    names = {"systems": "dense,rigl", "sparsities": (0.5, 0.9)}
    assert ResNet50Options(**names).traced_systems == ["dense", "rigl-50/block=64", "rigl-90/block=64"]
    one = ResNet50Options(**names, traced="dense,rigl-90/block=64")
    assert one.traced_systems == ["dense", "rigl-90/block=64"]


def test_bad_options_are_refused_before_anything_is_read() -> None:
    with pytest.raises(SparsityError, match="size 'huge' is neither base nor small"):
        ResNet50Options(size="huge")
    with pytest.raises(AcfError, match="architecture 'acf-513' is not known; did you mean 'acf-512'"):
        ResNet50Options(machines="acf-513")
    with pytest.raises(SparsityError, match="--epochs 0 without --steps trains nothing"):
        TransformerOptions(epochs=0.0)


def test_a_block_that_divides_no_layer_is_refused_before_the_first_system_trains(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    values = {**COMMON, "systems": "dense,rigl", "block": 8, "out": tmp_path}
    with pytest.raises(SparsityError, match=r"rigl-.*/block=8: block 8 does not divide out_features 10 of layer 'fc'"):
        run_evaluation(ResNet50Options(**values), quiet)
    assert not list(tmp_path.rglob("*.sqlite"))


def test_a_folder_without_the_data_is_refused_in_one_line(tmp_path: Path) -> None:
    options = TransformerOptions(data=tmp_path, data_set="multi30k", out=tmp_path, device="cpu")
    with pytest.raises(DataError, match=r"data set multi30k cannot be read in .*train\.en and \.de, plain or \.gz"):
        run_evaluation(options, quiet)


def test_remaining_time_is_told_once_something_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 30.0])
    monkeypatch.setattr(bench.time, "monotonic", lambda: next(times))
    told: list[str] = []
    on_progress = with_remaining_time(lambda what, share: told.append(what))
    on_progress("dense", 0.2)
    on_progress("dense", 0.4)
    assert told == ["dense", "dense, about 2 min left"]
