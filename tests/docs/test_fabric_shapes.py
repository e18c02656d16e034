"""Shapes of 512 MACs: what is played, and how rows join the record."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "figures" / "fabric_shapes.py"))


def test_every_shape_has_512_macs() -> None:
    assert {shape: spec.macs_per_cycle for shape, spec in SCRIPT["SHAPES"].items()} == dict.fromkeys(
        SCRIPT["SHAPES"], 512
    )


def test_the_record_has_every_shape_on_both_networks() -> None:
    rows = json.loads(SCRIPT["RECORD"].read_text(encoding="utf-8"))["rows"]
    assert [(row["shape"], row["network"]) for row in rows] == [
        (shape, network) for shape in SCRIPT["SHAPES"] for network in SCRIPT["EXAMPLES"]
    ]


def test_a_shape_that_is_played_again_replaces_its_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = SCRIPT["SHAPES"]
    record = tmp_path / "shapes.json"

    def row(shape: str, network: str, commit: str) -> dict[str, Any]:
        return {"shape": shape, "network": network, "commit": commit, "date": "2026-11-17"}

    namespace = SCRIPT["main"].__globals__
    monkeypatch.setitem(namespace, "RECORD", record)
    monkeypatch.setitem(namespace, "played", lambda shape, network: row(shape, network, "old"))
    SCRIPT["main"]([first, second])
    monkeypatch.setitem(namespace, "played", lambda shape, network: row(shape, network, "new"))
    SCRIPT["main"]([second])
    written = json.loads(record.read_text())
    assert [each["commit"] for each in written["rows"]] == ["old", "old", "new", "new"]
    assert written["commit"] == "new, old"
