"""Records are read with their envelope and, from earlier versions, without."""

from pathlib import Path

import pytest

from acf.errors import ReportError
from acf.records import parse_record, read_record, record_text, values_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_a_record_is_read_back_with_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(record_text("fabric", [{"a": 1}]))
    record = read_record(path)
    assert (record.kind, record.data, record.source) == ("fabric", [{"a": 1}], str(path))
    assert {"command", "acf", "date", "machine"} <= set(record.origin)


def test_a_device_that_gives_bytes_without_end_is_refused() -> None:
    with pytest.raises(ReportError, match="/dev/zero is a device, not a file; pass JSON"):
        read_record(Path("/dev/zero"))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_every_published_record_is_read(path: Path) -> None:
    assert read_record(path).data


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("kernels-cpu.json", "kernels"),
        ("training-gpt1024.json", "training"),
    ],
)
def test_the_kind_of_an_early_record_is_found_by_its_keys(name: str, kind: str) -> None:
    assert read_record(RESULTS / name).kind == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([{"network": "resnet50", "step_seconds": 0.5, "lost": {}}], "fabric"),
        ({"ablation": "block", "points": []}, "ablations"),
        ({"spec": {}, "summaries": [], "runs": []}, "accuracy"),
        ([{"label": "ncf", "dense_macs": 1, "zeros": {}}], "traces"),
        ({"date": "2026-11-16", "records": [{"ablation": "block", "points": []}]}, "ablations"),
        ({"date": "2026-11-16", "rows": [{"cycles": 1}]}, ""),
    ],
    ids=["fabric", "one ablation", "accuracy", "traces", "several ablations", "plain tables"],
)
def test_early_records_of_which_none_is_published_any_more_are_still_read(values: object, kind: str) -> None:
    assert parse_record(values, "x.json").kind == kind


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "fabric", "schema": 2, "acf": "9.0", "data": []}, r"schema 2, this version of acf reads 1; .* 9\.0"),
        ({"kind": "other", "schema": 1, "data": []}, "kind 'other', which is not one of results, comparison"),
        ({"name": "x"}, "holds the keys name, which is no record of acf; pass JSON that a command"),
        ([], r"holds \[\], which is no record"),
        ([1, 2], r"holds \[1, 2\], which is no record"),
        ("text", "holds 'text', which is no record"),
    ],
)
def test_what_is_no_record_is_refused_by_name(values: object, message: str) -> None:
    with pytest.raises(ReportError, match=f"x.json .*{message}|x.json {message}"):
        parse_record(values, "x.json")


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(ReportError, match="is not JSON"):
        read_record(path)
    with pytest.raises(ReportError, match="cannot be read"):
        read_record(tmp_path / "absent.json")


def test_a_device_is_refused_before_it_is_read_and_told_so_once() -> None:
    with pytest.raises(ReportError, match=r"^/dev/zero is a device, not a file; pass JSON [^;]*$"):
        read_record(Path("/dev/zero"))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_record_with_a_number_that_json_does_not_have_is_refused(tmp_path: Path, number: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(f'{{"kind": "results", "schema": 1, "data": [{number}]}}')
    with pytest.raises(ReportError, match="is no finite number"):
        read_record(path)


def test_values_that_no_command_writes_are_one_line_with_their_source() -> None:
    message = r"run\.json has values that no command of acf writes \(division by zero\)"
    with pytest.raises(ReportError, match=message), values_of("run.json"):
        1 / 0  # noqa: B018
