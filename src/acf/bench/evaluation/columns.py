"""The columns of the evaluation's table."""

from dataclasses import replace
from math import isfinite

from rich.table import Table

from acf.bench.evaluation.rows import NOT_MEASURABLE, THIS_DEVICE, EvaluationRow, EvaluationTable, Spread
from acf.columns import RATIO, SHARE, Column, Format, markdown_table, shown_in, si_format, terminal_table


def _spread_format(number: str, absent: str = "-") -> Format:
    def text(spread: Spread) -> str:
        if not isfinite(spread.mean):
            return "diverged"
        mean = format(spread.mean, number)
        return f"{mean} ± {format(spread.deviation, number)}" if spread.count > 1 else mean

    return Format(text, absent=absent)


def _metric(name: str) -> Column[EvaluationRow]:
    return Column(name, name, lambda row: row.metrics.get(name), _spread_format(".2f"), "mean and deviation over seeds")


_MEASURED, _SIMULATED = "measured", "simulated"


def evaluation_columns(table: EvaluationTable) -> tuple[Column[EvaluationRow], ...]:
    """The columns, with one for each metric of the rows; a terminal shows two tables, each with some of them."""
    metrics = list(dict.fromkeys(name for row in table.rows for name in row.metrics))
    joules = Format(si_format("J").plain, absent=NOT_MEASURABLE)
    first = "over the first system of the same machine"
    measured = (_MEASURED,)
    return (
        Column("machine", "machine", lambda row: row.machine, places=(_SIMULATED,)),
        Column("system", "system", lambda row: row.system),
        Column("seeds", "seeds", lambda row: row.seeds, Format(str), places=measured),
        Column("examples_per_s", f"{table.unit}/s", lambda row: row.examples_per_s, _spread_format(",.0f")),
        Column("speedup", "speedup", lambda row: row.speedup, RATIO, first),
        Column("to_target", "s to target", lambda row: row.seconds_to_target, _spread_format(".1f"), places=measured),
        Column("step_joules", "J/step", lambda row: row.step_joules, _spread_format(".3g", NOT_MEASURABLE)),
        Column("joules_per_example", f"J/{table.unit[:-1]}", lambda row: row.joules_per_example, joules),
        Column("energy_ratio", "energy", lambda row: row.energy_ratio, RATIO, "joules of the first system over these"),
        *(replace(_metric(name), places=measured) for name in metrics),
        Column("utilization", "U", lambda row: row.utilization, _spread_format(".1%"), places=(_SIMULATED,)),
        Column("sparsity", "absent", lambda row: row.sparsity, SHARE, "weights that do not exist; 2:4 trains all"),
    )


def evaluation_terminals(table: EvaluationTable) -> list[Table]:
    """What was measured on this device, and the simulated machines where there are any."""
    columns = evaluation_columns(table)
    measured = [row for row in table.rows if row.machine == THIS_DEVICE]
    simulated = [row for row in table.rows if row.machine != THIS_DEVICE]
    tables = [terminal_table(shown_in(_MEASURED, columns), measured, f"{_title(table)}, on this device")]
    if simulated:
        title = f"{table.title}, traced steps on simulated machines"
        tables.append(terminal_table(shown_in(_SIMULATED, columns), simulated, title, section=lambda row: row.machine))
    return tables


def evaluation_markdown(table: EvaluationTable) -> str:
    """One table as Markdown, with its notes."""
    notes = "".join(f"- {note}\n" for note in table.notes)
    return f"# {_title(table)}\n\n{markdown_table(evaluation_columns(table), table.rows)}\n{notes}"


def _title(table: EvaluationTable) -> str:
    target = "" if table.target is None else f", target {table.quality} {table.target:.4g}"
    return f"{table.title}{target}"
