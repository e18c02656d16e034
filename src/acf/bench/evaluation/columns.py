"""The columns of the evaluation's table."""

from math import isfinite

from rich.table import Table

from acf.bench.evaluation.rows import NOT_MEASURABLE, EvaluationRow, EvaluationTable, Spread
from acf.columns import RATIO, SHARE, Column, Format, markdown_table, si_format, terminal_table


def _spread_format(number: str, absent: str = "-") -> Format:
    def text(spread: Spread) -> str:
        if not isfinite(spread.mean):
            return "diverged"
        mean = format(spread.mean, number)
        return f"{mean} ± {format(spread.deviation, number)}" if spread.count > 1 else mean

    return Format(text, absent=absent)


def _metric(name: str) -> Column[EvaluationRow]:
    return Column(name, name, lambda row: row.metrics.get(name), _spread_format(".2f"), "mean and deviation over seeds")


def evaluation_columns(table: EvaluationTable) -> tuple[Column[EvaluationRow], ...]:
    """The columns for the metrics that the rows have."""
    metrics = list(dict.fromkeys(name for row in table.rows for name in row.metrics))
    si_joules = si_format("J")
    return (
        Column("machine", "machine", lambda row: row.machine),
        Column("system", "system", lambda row: row.system),
        Column("seeds", "seeds", lambda row: row.seeds, Format(str)),
        Column("examples_per_s", f"{table.unit}/s", lambda row: row.examples_per_s, _spread_format(",.0f")),
        Column("speedup", "speedup", lambda row: row.speedup, RATIO, "over the first system of the same machine"),
        Column("seconds_to_target", "s to target", lambda row: row.seconds_to_target, _spread_format(".1f")),
        Column("step_joules", "J/step", lambda row: row.step_joules, _spread_format(".3g", NOT_MEASURABLE)),
        Column(
            "joules_per_example", f"J/{table.unit.rstrip('s')}", lambda row: row.joules_per_example,
            Format(si_joules.plain, absent=NOT_MEASURABLE),
        ),
        Column("energy_ratio", "energy", lambda row: row.energy_ratio, RATIO, "joules of the first system over these"),
        *(_metric(name) for name in metrics),
        Column("utilization", "U", lambda row: row.utilization, Format(lambda spread: f"{spread.mean:.1%}")),
        Column("sparsity", "absent", lambda row: row.sparsity, SHARE),
    )  # fmt: skip


def evaluation_terminal(table: EvaluationTable) -> Table:
    """The table for a terminal."""
    return terminal_table(
        evaluation_columns(table), table.rows, _title(table), "; ".join(table.notes), section=lambda row: row.machine
    )


def evaluation_markdown(table: EvaluationTable) -> str:
    """The table as Markdown, with its notes."""
    notes = "".join(f"- {note}\n" for note in table.notes)
    return f"# {_title(table)}\n\n{markdown_table(evaluation_columns(table), table.rows)}\n{notes}"


def _title(table: EvaluationTable) -> str:
    target = "" if table.target is None else f", target {table.quality} {table.target:.4g}"
    return f"{table.title}{target}"
