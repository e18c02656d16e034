"""Results of Yosys runs: computed once, and never lost to a cache that cannot be written or read."""

from pathlib import Path

import pytest

from acf.rtl.tools.result_cache import cached

CALLS: list[str] = []


def count_cells(name: str, text: str) -> dict[str, int]:
    CALLS.append(name)
    return {name: len(text)}


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def test_a_result_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path))
    assert [cached("area", count_cells, "adder", "text") for _ in range(2)] == [{"adder": 4}] * 2
    assert CALLS == ["adder"]


def test_a_file_that_is_cut_is_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path))
    cached("area", count_cells, "adder", "text")
    (kept,) = (tmp_path / "rtl").iterdir()
    kept.write_bytes(kept.read_bytes()[:-3])
    assert cached("area", count_cells, "adder", "text") == {"adder": 4}


def test_a_cache_that_cannot_be_written_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert [cached("area", count_cells, "adder", "text") for _ in range(2)] == [{"adder": 4}] * 2
    assert CALLS == ["adder", "adder"]
