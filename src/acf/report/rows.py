"""The tables of a report: every number as it is written on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from acf.metrics import TrainingRecord
from acf.report.compare import has_speedups, in_order, machine, percent, phase_name, speedups, times, written_si
from acf.sim.result import OpResult, Result
from acf.units import binary_bytes

ABSENT = "\N{EN DASH}"
NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Headline:
    """One large number at the top of the page, what it measures, on what and under which conditions."""

    name: str
    value: str
    subject: str
    condition: str


@dataclass(frozen=True)
class SummaryRow:
    """One result of the summary table."""

    workload: str
    architecture: str
    machine: str
    test_accuracy: str
    weight_sparsity: str
    cycles: str
    time: str
    speedup: str
    utilization: str
    energy: str
    dram: str


@dataclass(frozen=True)
class OperationRow:
    """One operation of one result."""

    name: str
    phase: str
    cycles: str
    time: str
    dense_macs: str
    effectual_macs: str
    utilization: str
    lost: str
    dram: str
    energy: str


@dataclass(frozen=True)
class ResultSection:
    """Everything about one result: heading, machine and operations."""

    architecture: str
    workload: str
    machine: str
    macs_per_cycle: str
    operations: tuple[OperationRow, ...]


@dataclass(frozen=True)
class NoteGroup:
    """Notes that hold for one architecture on the named workloads."""

    architecture: str
    machine: str
    workloads: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TrainingRow:
    """One training run."""

    label: str
    test_accuracy: str
    weight_sparsity: str
    steps: str
    last_loss: str
    moved_blocks: str
    time: str


def summary_rows(results: Sequence[Result], training: Sequence[TrainingRecord]) -> list[SummaryRow]:
    """One row for each result, with the training records of the workload's label beside it."""
    return [
        SummaryRow(
            workload=result.workload,
            architecture=result.architecture,
            machine=machine(result),
            test_accuracy=_mean_percent([r.test_accuracy for r in training if r.label == result.workload]),
            weight_sparsity=_mean_percent([r.weight_sparsity for r in training if r.label == result.workload]),
            cycles=f"{result.cycles:,}",
            time=written_si(result.seconds, "s"),
            speedup=ABSENT if speedup is None else times(speedup),
            utilization=percent(result.utilization),
            energy=written_si(result.energy_j, "J"),
            dram=binary_bytes(result.dram_bytes),
        )
        for result, speedup in zip(results, speedups(results), strict=True)
    ]


def result_sections(results: Sequence[Result]) -> list[ResultSection]:
    """The per-operation tables."""
    return [
        ResultSection(
            architecture=result.architecture,
            workload=result.workload,
            machine=machine(result),
            macs_per_cycle=f"{result.macs_per_cycle:,}",
            operations=tuple(_operation_row(op, result) for op in result.ops),
        )
        for result in results
    ]


def note_groups(results: Sequence[Result]) -> list[NoteGroup]:
    """The notes of every result; workloads with the same notes on one architecture stand together."""
    groups: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
    for result in results:
        groups.setdefault((result.architecture, result.notes), []).append(result)
    return [
        NoteGroup(architecture, machine(members[0]), ", ".join(in_order(r.workload for r in members)), notes)
        for (architecture, notes), members in groups.items()
    ]


def training_rows(training: Sequence[TrainingRecord]) -> list[TrainingRow]:
    """One row for each training run."""
    return [
        TrainingRow(
            label=record.label,
            test_accuracy=percent(record.test_accuracy),
            weight_sparsity=percent(record.weight_sparsity),
            steps=f"{len(record.losses):,}",
            last_loss=f"{record.losses[-1]:.4g}" if record.losses else ABSENT,
            moved_blocks=f"{sum(blocks for _, blocks in record.moved_blocks):,}",
            time=written_si(record.seconds, "s"),
        )
        for record in training
    ]


def headlines(results: Sequence[Result], training: Sequence[TrainingRecord]) -> list[Headline]:
    """The best of each measure, with the machine or run it belongs to."""
    tiles = []
    ratios = [(ratio, r) for ratio, r in zip(speedups(results), results, strict=True) if ratio is not None]
    if has_speedups(results):
        best_ratio, fastest = max(ratios, key=lambda pair: pair[0])
        tiles.append(Headline("Largest speedup", times(best_ratio), *_where(fastest)))
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


def _where(result: Result) -> tuple[str, str]:
    return f"{result.architecture} on {result.workload}", machine(result)


def _mean_percent(shares: Sequence[float]) -> str:
    if not shares:
        return ABSENT
    return percent(fmean(shares)) + (f" (mean of {len(shares)})" if len(shares) > 1 else "")


def _operation_row(op: OpResult, result: Result) -> OperationRow:
    slots = op.cycles * result.macs_per_cycle
    return OperationRow(
        name=op.name,
        phase=phase_name(op.phase),
        cycles=f"{op.cycles:,}",
        time=written_si(op.cycles / result.clock_hz, "s"),
        dense_macs=written_si(op.dense_macs, ""),
        effectual_macs=written_si(op.effectual_macs, ""),
        utilization=percent(op.effectual_macs / slots) if slots else ABSENT,
        lost=_lost_text(op, slots),
        dram=binary_bytes(op.dram_bytes),
        energy=written_si(sum(op.energy_j.values()), "J"),
    )


def _lost_text(op: OpResult, slots: int) -> str:
    largest_first = sorted(op.lost_slots.items(), key=lambda item: -item[1])
    shares = [f"{reason} {percent(lost / slots)}" for reason, lost in largest_first if lost]
    return ", ".join(share.replace(" ", NO_BREAK) for share in shares) or ABSENT
