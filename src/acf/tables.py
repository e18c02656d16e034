"""Tables of the command line, and the columns of the rows that no report shows. Benches have theirs in `acf.bench`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from acf.columns import COUNT, RATIO, TERMINAL, Column, Format, shown_in, si_format, terminal_table
from acf.units import si

if TYPE_CHECKING:
    from acf.demo import DemoOutcome
    from acf.doctor import Finding
    from acf.metrics import AblationRecord
    from acf.nn import LayerTiming
    from acf.reproduce.row import Check, Row
    from acf.sim import Comparison, Result
    from acf.sim.catalogue import Machine
    from acf.sweep import SweepRecord


def demo_table(outcome: "DemoOutcome") -> Table:
    """Accuracy, sparsity and hardware figures of every run on every architecture."""
    from acf.report.columns import DEMO, SUMMARY, summary_rows

    return terminal_table(
        shown_in(DEMO, SUMMARY),
        summary_rows(outcome.results, outcome.records),
        "One training step, dense and block-sparse",
        f"speedup: whole step over {outcome.results[0].architecture} on {outcome.results[0].workload}, all machines of "
        "equal peak; utilisation: non-zero MACs / MAC slots of the products",
    )


def training_table(outcome: "DemoOutcome") -> Table:
    """Accuracy, time and energy of the demo's training runs."""
    from acf.report.columns import TRAINING

    measured = any(record.test_joules for record in outcome.records)
    caption = f"energy: {outcome.energy_source}" + ("" if measured else "; simulated energy of a step is below")
    return terminal_table(TRAINING, outcome.records, "Training on this machine", caption)


def result_table(result: "Result") -> Table:
    """Every operation of one result, and their sum."""
    from acf.report.columns import OPERATION, operation_rows, total_rows

    totals = total_rows(result)
    return terminal_table(
        shown_in(TERMINAL, OPERATION),
        [*operation_rows(result), *totals],
        f"{result.workload} on {result.architecture} "
        f"({si(result.clock_hz, 'Hz')}, {result.technology_nm} nm, {result.macs_per_cycle:,} MACs per cycle)",
        "\n".join(result.notes),
        section=lambda row: row in totals,
    )


def comparison_table(comparisons: "Sequence[Comparison]") -> Table:
    """Every trace on every machine, over the baseline on the same trace, or on the first where it says so."""
    from acf.report.columns import COMPARISON

    first = comparisons[0]
    workloads = dict.fromkeys(comparison.result.workload for comparison in comparisons)
    columns = shown_in(TERMINAL, COMPARISON)
    if len(workloads) > 1:
        columns = (COMPARISON[0], *columns)
    return terminal_table(
        columns,
        comparisons,
        f"{', '.join(workloads)}: whole steps over {first.baseline.architecture}",
        "equal peak, equal area: the speedup divided by how much more of it the machine has; less energy, less EDP "
        "(energy-delay product): the baseline's over the machine's",
        section=lambda row: row.result.workload,
    )


def ablation_table(record: "AblationRecord") -> Table:
    """Mean and deviation of every measure at every place of an ablation."""
    from acf.report.ablations import ablation_columns

    return terminal_table(
        shown_in(TERMINAL, ablation_columns(record)),
        record.rows,
        record.title,
        f"{record.note}\n{record.conditions}",
        section=lambda row: row.sparsity,
    )


@dataclass(frozen=True)
class PublishedFigure:
    """One line of the table of published figures: a row's name and claim (on its first line), and one check."""

    name: str
    claim: str
    check: "Check | None"
    label: str

    @property
    def colour(self) -> str:
        """Green where reproduced, red where missed, yellow where a match says little or nothing can be checked."""
        return {"reproduced": "green", "missed": "red"}.get(self.label.partition(":")[0], "yellow")


_BLANK = Format(str, absent="", is_number=False)
_BLANK_NUMBER = Format(str, absent="")

PUBLISHED: tuple[Column[PublishedFigure], ...] = (
    Column("id", "row", lambda line: line.name),
    Column("claim", "claim", lambda line: line.claim),
    Column("what", "figure", lambda line: line.check and line.check.what, _BLANK),
    Column("paper", "paper", lambda line: line.check and line.check.paper, _BLANK_NUMBER),
    Column("ours", "ours", lambda line: line.check and line.check.ours, Format("{:.4g}".format, absent="")),
    Column("tolerance", "tolerance", lambda line: line.check and line.check.tolerance, _BLANK_NUMBER),
    Column("label", "label", lambda line: line.label, style=lambda line: line.colour),
)
"""`acf reproduce`: one row for each check."""


def reproduce_table(rows: "Mapping[str, Row]") -> Table:
    """Every published figure beside ours, its tolerance and its label."""
    lines = [line for name, row in rows.items() for line in _published_figures(name, row)]
    return terminal_table(PUBLISHED, lines, "published figures beside ours", "set-ups: acf reproduce --json")


def _published_figures(name: str, row: "Row") -> list[PublishedFigure]:
    if not row.checks:
        return [PublishedFigure(name, row.claim, None, row.verdict)]
    claim = f"{row.claim}\nrests on {row.rests_on}" if row.rests_on else row.claim
    heads = [(name, claim), *[("", "")] * (len(row.checks) - 1)]
    return [PublishedFigure(*head, check, check.label) for head, check in zip(heads, row.checks, strict=True)]


_SHAPE = Format(lambda shape: "x".join(map(str, shape)), is_number=False)


def _verdict(timing: "LayerTiming") -> str:
    if timing.is_within_spread:
        return "about equal: within the spread"
    return "sparse pays" if timing.pays else f"stays dense: {timing.reason or 'slower sparse'}"


LAYER_TIMING: "tuple[Column[LayerTiming], ...]" = (
    Column("name", "name", lambda timing: timing.name),
    Column("layer", "layer", lambda timing: timing.layer),
    Column("input_shape", "input", lambda timing: timing.input_shape, _SHAPE),
    Column("dense_seconds", "dense", lambda timing: timing.dense_seconds, si_format("s")),
    Column("sparse_seconds", "sparse", lambda timing: timing.sparse_seconds, si_format("s")),
    Column(
        "spread",
        "spread",
        lambda timing: timing.spread,
        Format("{:.0%}".format),
        "median over best run, minus 1; the larger of dense and sparse",
    ),
    Column("ratio", "ratio", lambda timing: timing.ratio, RATIO),
    Column(
        "verdict",
        "verdict",
        _verdict,
    ),
)
"""`acf doctor --layers`: one row for each layer of a model."""


def layer_table(timings: "Sequence[LayerTiming]", sparsity: float, block: int) -> Table:
    """Which layers of a model are faster block-sparse on this machine."""
    return terminal_table(
        LAYER_TIMING,
        timings,
        f"forward and both gradients, {sparsity:.0%} sparse in blocks of {block}, this machine",
        "best of interleaved runs; spread: how much slower the median run was, a ratio within it says nothing; "
        "acf.faster_layers gives a filter_fn that takes the layers that pay",
    )


FINDING: "tuple[Column[Finding], ...]" = (
    Column("part", "part", lambda finding: finding.part),
    Column("found", "found", lambda finding: finding.found, style=lambda f: "green" if f.present else "yellow"),
    Column("consequence", "what follows", lambda finding: finding.consequence),
)
"""`acf doctor`: one row for each part of the machine."""


def doctor_table(findings: "Sequence[Finding]") -> Table:
    """What this machine has, and what works because of it."""
    return terminal_table(FINDING, findings, "acf doctor")


MACHINE: "tuple[Column[Machine], ...]" = (
    Column("name", "name", lambda machine: machine.name),
    Column("origin", "origin", lambda machine: machine.origin),
    Column("kind", "kind", lambda machine: machine.spec and getattr(machine.spec, "kind", type(machine.spec).__name__)),
    Column("macs_per_cycle", "MACs per cycle", lambda machine: machine.spec and machine.spec.macs_per_cycle, COUNT),
    Column("clock_hz", "clock", lambda machine: machine.spec and machine.spec.clock_hz, si_format("Hz")),
    Column("technology_nm", "nm", lambda machine: machine.spec and machine.spec.technology_nm, COUNT),
    Column("total_area_mm2", "mm2", lambda machine: machine.total_area_mm2, Format("{:.3g}".format)),
    Column("failure", "failed", lambda machine: machine.failure or None, _BLANK, style=lambda _: "red"),
)
"""`acf architectures`: one row for each machine that has a name."""


def machine_table(machines: "Sequence[Machine]") -> Table:
    """The machines by name; a column for failures only where a plug-in failed."""
    failed = any(machine.failure for machine in machines)
    return terminal_table(
        MACHINE if failed else MACHINE[:-1],
        machines,
        "architectures",
        "acf architectures --show NAME prints one as TOML; the others: a .toml file, or module:name",
        section=lambda machine: machine.origin,
    )


MOST_FRONT_ROWS = 40
"""Points of a sweep that a terminal shows; a CSV file and JSON have all of them."""


def front_table(record: "SweepRecord") -> Table:
    """The Pareto front of a sweep; the caption says what became of the other points."""
    from acf.sweep.columns import point_columns
    from acf.sweep.page import summary

    columns = [
        column for column in shown_in(TERMINAL, point_columns(record)) if column.key not in ("on_front", "failure")
    ]
    failures = [f"{count} failed: {reason}" for reason, count in record.failures.items()]
    return terminal_table(
        columns,
        record.front[:MOST_FRONT_ROWS],
        f"{record.title}: Pareto front",
        "\n".join([summary(record), *failures[:MOST_FRONT_ROWS]]),
    )


def importance_table(record: "SweepRecord") -> Table:
    """How much each parameter of a sweep matters."""
    from acf.sweep.columns import importance_columns, importance_rows

    return terminal_table(
        importance_columns(record),
        importance_rows(record),
        "share of variance that each parameter explains",
    )
