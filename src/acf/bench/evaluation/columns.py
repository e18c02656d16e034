"""The columns of the evaluation's table."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from rich.table import Table

from acf.bench.evaluation.density import DensityRow, density_systems
from acf.bench.evaluation.rows import (
    NOT_MEASURABLE,
    THIS_DEVICE,
    AblationRow,
    EvaluationRow,
    EvaluationTable,
    Spread,
)
from acf.bench.evaluation.skipping import SkippedStep
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
_ENERGY = ("step_joules", "joules_per_example", "energy_ratio")
"""Left out of a terminal's table where no row has them: a note below it says why."""


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


def density_columns(table: EvaluationTable) -> tuple[Column[DensityRow], ...]:
    """The layer, and one column for each traced system."""
    systems = density_systems(table.densities)
    return (
        Column("layer", "layer", lambda row: row.layer),
        *(Column(name, name, lambda row, name=name: row.densities.get(name), SHARE) for name in systems),  # type: ignore[misc]
    )


def ablation_columns(table: EvaluationTable) -> tuple[Column[AblationRow], ...]:
    """What is varied, its value, and what that is worth on this device and on the fabric."""
    rate = f"{table.unit}/s"
    return (
        Column("what", "varied", lambda row: row.what),
        Column("value", "value", lambda row: row.value),
        Column("system", "system", lambda row: row.system),
        Column("quality", table.quality, lambda row: row.quality, _spread_format(".2f")),
        Column("examples_per_s", rate, lambda row: row.examples_per_s, _spread_format(",.0f")),
        Column("machine", "machine", lambda row: row.machine),
        Column("machine_rate", f"{rate} there", lambda row: row.machine_examples_per_s, _spread_format(",.0f")),
        Column("utilization", "U", lambda row: row.utilization, _spread_format(".1%")),
    )


_MILLISECONDS = Format(lambda seconds: f"{1e3 * seconds:.3f} ms")
SKIPPING: tuple[Column[SkippedStep], ...] = (
    Column("system", "system", lambda step: step.system),
    Column("products", "products", lambda step: step.products, Format(str)),
    Column("tiles", "tiles with a non-zero", lambda step: step.tiles, SHARE),
    Column("dense_s", "cuBLAS", lambda step: step.dense_s, _MILLISECONDS),
    Column("skipping_s", "skipping zero tiles", lambda step: step.skipping_s, _MILLISECONDS),
    Column("gain", "gain", lambda step: step.gain, RATIO),
    Column("gain_of_faster", "gain, faster of both", lambda step: step.gain_of_faster, RATIO),
)

SKIPPING_TITLE = "A TensorDash-like kernel, measured on this GPU: products of the last traced step"
DENSITY_TITLE = "Density of the gradient at each layer's output, end of seed 0"
ABLATION_TITLE = "Ablations"


def evaluation_terminals(table: EvaluationTable) -> list[Table]:
    """What was measured on this device, and the simulated machines where there are any."""
    columns = evaluation_columns(table)
    measured = [row for row in table.rows if row.machine == THIS_DEVICE]
    simulated = [row for row in table.rows if row.machine != THIS_DEVICE]
    own = [column for column in shown_in(_MEASURED, columns) if column.key not in _ENERGY or _any(column, measured)]
    tables = [terminal_table(own, measured, f"{_title(table)}, on this device")]
    if simulated:
        title = f"{table.title}, traced steps on simulated machines"
        tables.append(terminal_table(shown_in(_SIMULATED, columns), simulated, title, section=lambda row: row.machine))
    if table.skipping:
        tables.append(terminal_table(SKIPPING, table.skipping, SKIPPING_TITLE))
    if table.ablations:
        tables.append(terminal_table(ablation_columns(table), table.ablations, ABLATION_TITLE))
    if table.densities:
        tables.append(terminal_table(density_columns(table), table.densities, DENSITY_TITLE))
    return tables


def _any(column: Column[EvaluationRow], rows: Sequence[EvaluationRow]) -> bool:
    return any(column.value(row) is not None for row in rows)


def evaluation_markdown(table: EvaluationTable, figure: str = "") -> str:
    """The tables as Markdown, with notes; ``figure`` is the file of the loss curves, empty where there are none."""
    notes = "".join(f"- {note}\n" for note in table.notes)
    parts = [f"# {_title(table)}\n\n{markdown_table(evaluation_columns(table), table.rows)}\n{notes}"]
    if figure:
        parts.append(f"![training loss by step]({figure})\n")
    if table.skipping:
        parts.append(f"## {SKIPPING_TITLE}\n\n{markdown_table(SKIPPING, table.skipping)}")
    if table.ablations:
        parts.append(f"## {ABLATION_TITLE}\n\n{markdown_table(ablation_columns(table), table.ablations)}")
    if table.densities:
        parts.append(f"## {DENSITY_TITLE}\n\n{markdown_table(density_columns(table), table.densities)}")
    return "\n".join(parts)


def _title(table: EvaluationTable) -> str:
    target = "" if table.target is None else f", target {table.quality} {table.target:.4g}"
    return f"{table.title}{target}"
