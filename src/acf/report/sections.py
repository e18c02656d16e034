"""What stands on the page besides summary tables and plots: headline figures, operations by result, and notes."""

from collections.abc import Sequence
from dataclasses import dataclass

from acf.columns import PAGE, PageTable, page_table, shown_in
from acf.metrics import TrainingRecord
from acf.report.columns import OPERATION, operation_rows
from acf.report.compare import comparisons, in_order, machine, percent, times, written_si
from acf.sim.result import Result


@dataclass(frozen=True)
class Headline:
    """One large number at the top of the page: what it measures, on what and under which conditions."""

    name: str
    value: str
    subject: str
    condition: str


@dataclass(frozen=True)
class ResultSection:
    """The table of one result's operations, its heading and its machine."""

    architecture: str
    workload: str
    machine: str
    macs_per_cycle: str
    operations: PageTable


@dataclass(frozen=True)
class NoteGroup:
    """Notes that hold for one architecture on the named workloads."""

    architecture: str
    machine: str
    workloads: str
    notes: tuple[str, ...]


def headlines(results: Sequence[Result], training: Sequence[TrainingRecord]) -> list[Headline]:
    """The best of each measure, with the machine or run it belongs to."""
    tiles = []
    known = [compared for compared in comparisons(results) if compared is not None]
    if known:
        best_ratio = max(known, key=lambda compared: compared.speedup)
        tiles.append(
            Headline(
                "Largest speedup of a step",
                times(best_ratio.speedup),
                _where(best_ratio.result)[0],
                f"over {best_ratio.baseline.architecture} on {best_ratio.baseline.workload}; "
                f"{times(best_ratio.equal_peak_speedup)} at equal peak",
            )
        )
    if results:
        busiest = max(results, key=lambda result: result.utilization)
        thriftiest = min(results, key=lambda result: result.energy_j)
        tiles.append(Headline("Highest utilisation", percent(busiest.utilization), *_where(busiest)))
        tiles.append(Headline("Lowest energy per step", written_si(thriftiest.energy_j, "J"), *_where(thriftiest)))
    if training:
        best = max(training, key=lambda record: record.test_accuracy)
        sparsity = f"weight sparsity {percent(best.weight_sparsity)}"
        tiles.append(Headline("Highest test accuracy", percent(best.test_accuracy), best.label, sparsity))
    return tiles


def result_sections(results: Sequence[Result]) -> list[ResultSection]:
    """The tables of operations."""
    return [
        ResultSection(
            architecture=result.architecture,
            workload=result.workload,
            machine=machine(result),
            macs_per_cycle=f"{result.macs_per_cycle:,}",
            operations=page_table(shown_in(PAGE, OPERATION), operation_rows(result)),
        )
        for result in results
    ]


def note_groups(results: Sequence[Result]) -> list[NoteGroup]:
    """The notes of every result; workloads with the same notes on one architecture share a group."""
    groups: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
    for result in results:
        groups.setdefault((result.architecture, result.notes), []).append(result)
    return [
        NoteGroup(architecture, machine(members[0]), ", ".join(in_order(r.workload for r in members)), notes)
        for (architecture, notes), members in groups.items()
    ]


def _where(result: Result) -> tuple[str, str]:
    return f"{result.architecture} on {result.workload}", machine(result)
