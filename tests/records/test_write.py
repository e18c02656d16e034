"""The envelope of every record, and its JSON text."""

import json
from pathlib import Path

import pytest

import acf
from acf.records import KINDS, SCHEMA, envelope, record_text, write_record
from acf.records.provenance import commit_of


def test_a_record_says_what_it_is_and_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["acf", "traces", "step.safetensors"])
    record = envelope("traces", [1])
    fields = ["kind", "schema", "command", "acf", "commit", "date", "machine", "data"]
    assert list(record) == fields
    assert (record["kind"], record["schema"], record["acf"], record["data"]) == ("traces", SCHEMA, acf.__version__, [1])
    assert record["command"] == "acf traces step.safetensors"
    assert "cores" in record["machine"]
    assert "torch" in record["machine"]


def test_a_kind_that_is_not_listed_cannot_be_written() -> None:
    with pytest.raises(KeyError, match="'nothing' is not in acf"):
        envelope("nothing", [])


def test_what_is_not_finite_is_null_and_short_parts_stand_on_one_line() -> None:
    text = record_text("fabric", {"a": [float("nan"), float("inf"), 1.0], "b": {"c": (1, 2)}})
    assert '"data": {"a": [null, null, 1.0], "b": {"c": [1, 2]}}' in text
    assert json.loads(text)["data"]["b"] == {"c": [1, 2]}


def test_a_long_list_of_objects_has_one_object_on_a_line(tmp_path: Path) -> None:
    rows = [{"name": f"layer {index}", "cycles": index} for index in range(20)]
    write_record(tmp_path / "rows.json", "fabric", rows)
    text = (tmp_path / "rows.json").read_text()
    assert '    {"name": "layer 7", "cycles": 7},\n' in text
    assert json.loads(text)["data"] == rows


def test_a_folder_that_a_repository_does_not_track_has_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    untracked = Path(acf.__file__).parents[2] / "build-of-this-test"
    assert commit_of(untracked) == ""  # it does not even exist


def test_the_page_on_records_lists_every_kind_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "records.md").read_text()
    for name, kind in KINDS.items():
        commands = ", ".join(f"`{command.strip()}`" for command in kind.command.split(","))
        assert f"| `{name}` | {commands} | {kind.data} |" in page


def test_every_kind_says_which_command_writes_it() -> None:
    assert all(kind.command.startswith("acf ") and kind.data for kind in KINDS.values())
