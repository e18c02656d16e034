"""What the terminal shows of an evaluation."""

from dataclasses import replace

from acf.bench.evaluation.columns import evaluation_terminals
from acf.bench.evaluation.rows import THIS_DEVICE, EvaluationRow, EvaluationTable, Spread

ROW = EvaluationRow(
    system="dense",
    machine=THIS_DEVICE,
    seeds=1,
    examples_per_s=Spread(100.0, 0.0, 1),
    speedup=1.0,
    seconds_to_target=None,
    step_joules=None,
    joules_per_example=None,
    energy_ratio=None,
    metrics={},
    utilization=None,
    sparsity=0.0,
)


def headings(*rows: EvaluationRow) -> list[str]:
    """The headings of the table of this device."""
    [table] = evaluation_terminals(EvaluationTable("a network", "images", "top-1 %", None, rows))
    return [str(column.header) for column in table.columns]


def test_energy_has_columns_where_any_row_has_it() -> None:
    known = replace(ROW, step_joules=Spread(2.0, 0.0, 1), joules_per_example=0.5, energy_ratio=1.0)
    assert not {"J/step", "J/image", "energy"} & set(headings(ROW, ROW))
    assert {"J/step", "J/image", "energy"} <= set(headings(ROW, known))
