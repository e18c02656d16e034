"""The registries of results, operations and training runs, and that an entry of them reaches every table."""

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import acf.report.columns
from acf.cli import app
from acf.columns import COUNT, RATIO, Column, records
from acf.report import report
from acf.report.columns import COMPARISON, OPERATION, SUMMARY, TRAINING, summary_columns, summary_rows, total_rows
from acf.sim import Comparison, Result
from acf.tables import comparison_table


@pytest.mark.parametrize(
    "columns", [SUMMARY, OPERATION, TRAINING, COMPARISON], ids=["summary", "operation", "training", "comparison"]
)
def test_keys_of_a_registry_are_unique_names(columns) -> None:  # type: ignore[no-untyped-def]
    keys = [column.key for column in columns]
    assert len(set(keys)) == len(keys)
    assert all(key.isidentifier() for key in keys)


def test_one_entry_puts_a_new_column_on_the_page_and_in_json(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = results[0].cycles
    new: Column[acf.report.columns.SummaryRow] = Column(
        "cycles_ratio", "of first", lambda row: row.result.cycles / first, RATIO
    )
    monkeypatch.setattr(acf.report.columns, "SUMMARY", (*SUMMARY, new))
    page = report(results, tmp_path / "page.html").read_text()
    assert "Of first</button></th>" in page
    saved = records(acf.report.columns.summary_columns([]), summary_rows(results, []))
    assert saved[0]["cycles_ratio"] == 1.0


def test_columns_of_training_are_left_out_without_training_runs(results, training) -> None:  # type: ignore[no-untyped-def]
    assert {column.key for column in SUMMARY} - {column.key for column in summary_columns([])} == {
        "test_accuracy",
        "weight_sparsity",
    }
    assert summary_columns(training) == SUMMARY
    assert records(SUMMARY, summary_rows(results, training))[0]["test_accuracy"] == {"value": 0.95, "runs": 1}


def test_the_whole_step_is_the_sum_of_its_operations(results: list[Result]) -> None:
    total = total_rows(results[0])[-1]
    assert total.op.cycles == results[0].cycles
    assert total.op.effectual_macs / total.slots == pytest.approx(results[0].utilization)


def test_compare_prints_the_values_of_the_columns_as_json(tmp_path: Path) -> None:
    matmul = acf.Matmul("fc", "forward", [[True] * 16] * 16, [[True] * 16] * 16)
    path = tmp_path / "step.safetensors"
    acf.Trace.from_matmuls([matmul], label="full").save(path)
    values = json.loads(CliRunner().invoke(app, ["compare", str(path), "--on", "tensordash", "--json"]).output)["data"]
    keys = {column.key for column in COMPARISON}
    assert all(keys <= set(value) for value in values)


def test_one_entry_puts_a_new_column_into_the_comparison(
    results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    new: Column[Comparison] = Column("operations", "operations", lambda row: len(row.result.ops), COUNT)
    monkeypatch.setattr(acf.report.columns, "COMPARISON", (*COMPARISON, new))
    console = Console(width=200, record=True)
    console.print(comparison_table([Comparison(result, results[0]) for result in results]))
    assert "operations" in console.export_text()
