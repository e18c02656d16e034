"""Ablations on the page: every figure is there, with its deviation, and so is what failed."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acf.cli import app
from acf.errors import ReportError
from acf.metrics import AblationPoint, AblationRecord
from acf.records import record_text
from acf.report import report
from acf.report.ablations import ablation_figure


def point(series: str, value: str, seed: int, utilization: float) -> AblationPoint:
    return AblationPoint(series, value, 0.9, seed, "", {"cycles": 1000.0 + 10 * seed, "utilization": utilization})


@pytest.fixture
def record() -> AblationRecord:
    points = [
        point(series, value, seed, 0.8 + 0.05 * seed)
        for series in ("tile 8", "tile 16")
        for value in ("8", "16")
        for seed in range(2)
    ]
    failed = AblationPoint("tile 16", "64 & more", 0.9, 0, "", failure="block 64 does not divide <this>")
    names = ("cycles", "utilization")
    return AblationRecord("block", "Size of blocks", "block", "a note", "acf-512", names, names[1:], (*points, failed))


def test_a_page_of_ablations_alone_has_tables_plots_and_failures(record: AblationRecord, tmp_path: Path) -> None:
    page = report([], tmp_path / "page.html", ablations=[record]).read_text()
    assert '<section id="ablations"' in page
    assert '<section id="summary"' not in page
    assert page.count("82.5 % ± 3.5") >= 4
    assert page.count("1,005 ± 0.7 %") == 4
    assert "block 64 does not divide &lt;this&gt;" in page
    assert 'data-plot="' in page


def test_results_without_ablations_have_no_such_section(results, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert 'id="ablations"' not in report(results, tmp_path / "page.html").read_text()


def test_the_figure_shows_means_in_percent_and_deviations(record: AblationRecord) -> None:
    figure = ablation_figure(record, "utilization")
    assert [trace.name for trace in figure.data] == ["tile 8", "tile 16"]
    assert list(figure.data[0].y) == pytest.approx([82.5, 82.5])
    assert list(figure.data[0].error_y.array) == pytest.approx([3.5355, 3.5355], rel=1e-3)
    assert figure.layout.yaxis.title.text == "utilisation (%)"


def test_every_sparsity_has_its_panel(record: AblationRecord) -> None:
    both = replace(record, points=record.points + tuple(replace(one, sparsity=0.5) for one in record.points))
    assert len(ablation_figure(both, "cycles").data) == 4
    assert [note.text for note in ablation_figure(both, "cycles").layout.annotations] == [
        "90.0 % sparse",
        "50.0 % sparse",
    ]


def test_the_command_puts_records_into_the_report(record: AblationRecord, tmp_path: Path) -> None:
    one, several = tmp_path / "block.json", tmp_path / "all.json"
    one.write_text(json.dumps(record.to_dict()))
    several.write_text(record_text("ablations", [record.to_dict(), record.to_dict()]))
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(one), str(several), "--output", str(page)])
    assert done.exit_code == 0, done.output
    assert len(re.findall(r"<strong>Size of blocks</strong>", page.read_text())) == 3


def test_what_is_no_record_is_refused_in_one_line(record: AblationRecord) -> None:
    values = json.loads(json.dumps(record.to_dict()))
    assert AblationRecord.from_dict(values) == record
    with pytest.raises(ReportError, match=r"no record of an ablation .*; pass a file that `acf bench ablation` wrote"):
        AblationRecord.from_dict({"ablation": "block"})
    with pytest.raises(ReportError, match="measure 'speed' is not one of cycles"):
        AblationRecord.from_dict(values | {"measures": ["speed"]})
