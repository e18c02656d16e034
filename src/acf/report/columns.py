"""The columns of results, operations and training runs, for terminal tables, the report and JSON alike.

A new column of these tables is one entry here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from acf.columns import BYTES, COUNT, CSV, PAGE, RATIO, SHARE, TERMINAL, Column, Format, si_format, typeset
from acf.metrics import TrainingRecord
from acf.report.compare import comparisons, machine, percent, phase_name
from acf.sim.comparison import Comparison
from acf.sim.result import OpResult, Result

DEMO = "demo"
"""The terminal table of `acf demo`, besides the report's page."""

ALL_PRODUCTS, VECTOR_WORK, WHOLE_STEP = "all products", "vector work", "whole step"
_NO_BREAK = "\N{NO-BREAK SPACE}"
_SECONDS, _JOULES, _SI = si_format("s"), si_format("J"), si_format("")


@dataclass(frozen=True)
class SummaryRow:
    """A result, beside its baseline where it has one, and the training runs of its workload."""

    result: Result
    compared: Comparison | None
    training: tuple[TrainingRecord, ...] = ()

    def mean(self, figure: Callable[[TrainingRecord], float]) -> "Mean | None":
        """The mean of a figure over the training runs."""
        return Mean(fmean(figure(record) for record in self.training), len(self.training)) if self.training else None


@dataclass(frozen=True)
class Mean:
    """A mean ``value`` over ``runs`` runs."""

    value: float
    runs: int

    def __float__(self) -> float:
        return self.value


def _mean_text(mean: Mean) -> str:
    return f"{mean.value:.1%}" + (f" (mean of {mean.runs})" if mean.runs > 1 else "")


_MEAN = typeset(_mean_text, "%", " %")

SUMMARY: tuple[Column[SummaryRow], ...] = (
    Column("workload", "workload", lambda row: row.result.workload, places=(DEMO, PAGE), names_row=True),
    Column("architecture", "architecture", lambda row: row.result.architecture, css="name"),
    Column("machine", "clock, node", lambda row: machine(row.result), places=(PAGE,), css="fixed quiet"),
    Column(
        "test_accuracy",
        "test accuracy",
        lambda row: row.mean(lambda record: record.test_accuracy),
        _MEAN,
        "share of test examples classified correctly at the end of training",
        places=(DEMO, PAGE),
    ),
    Column(
        "weight_sparsity",
        "weight sparsity",
        lambda row: row.mean(lambda record: record.weight_sparsity),
        _MEAN,
        "share of weights that are absent at the end of training",
        places=(DEMO, PAGE),
    ),
    Column(
        "cycles",
        "cycles",
        lambda row: row.result.cycles,
        COUNT,
        "cycles of the matrix products",
        places=(DEMO, PAGE),
    ),
    Column(
        "seconds",
        "products",
        lambda row: row.result.seconds,
        _SECONDS,
        "time of the matrix products",
        places=(PAGE,),
    ),
    Column(
        "step_seconds",
        "whole step",
        lambda row: row.result.step_seconds,
        _SECONDS,
        "time of the whole step, vector work overlapped with products",
        places=(DEMO, PAGE),
    ),
    Column(
        "speedup",
        "speedup",
        lambda row: row.compared and row.compared.speedup,
        RATIO,
        "ratio of times of whole steps, over the baseline",
    ),
    Column(
        "equal_peak_speedup",
        "at equal peak",
        lambda row: row.compared and row.compared.equal_peak_speedup,
        RATIO,
        "speedup divided by how much more peak the machine has than the baseline's",
        places=(PAGE,),
    ),
    Column(
        "total_area_mm2",
        "area",
        lambda row: row.result.total_area_mm2,
        Format("{:.3g} mm²".format),
        "area of the chip",
        places=(PAGE,),
    ),
    Column(
        "utilization",
        "utilisation",
        lambda row: row.result.utilization,
        SHARE,
        "non-zero MACs / MAC slots of the products (called U)",
    ),
    Column(
        "step_utilization",
        "of the step",
        lambda row: row.result.step_utilization,
        SHARE,
        "U of the whole step: non-zero MACs / MAC slots of all its cycles",
        places=(PAGE,),
    ),
    Column("energy_j", "energy", lambda row: row.result.energy_j, _JOULES, "energy of the whole step"),
    Column(
        "dram_bytes",
        "DRAM",
        lambda row: row.result.dram_bytes,
        BYTES,
        "bytes moved to and from DRAM",
        places=(PAGE,),
    ),
)
"""One row for each result. The two columns of training are left out where no run is given."""

COMPARISON: tuple[Column[Comparison], ...] = (
    Column("workload", "workload", lambda row: row.result.workload, places=(CSV,)),
    Column("architecture", "machine", lambda row: row.result.architecture),
    Column("technology_nm", "nm", lambda row: row.result.technology_nm, COUNT, "technology node"),
    Column("peak_macs_per_s", "peak MAC/s", lambda row: row.result.peak_macs_per_s, _SI, "MACs per second at most"),
    Column("total_area_mm2", "mm2", lambda row: row.result.total_area_mm2, Format("{:.3g}".format), "area of the chip"),
    Column("seconds", "products", lambda row: row.result.seconds, _SECONDS, "the matrix products", places=(CSV,)),
    Column("step_seconds", "whole step", lambda row: row.result.step_seconds, _SECONDS),
    Column("speedup", "speedup", lambda row: row.speedup, RATIO, "whole steps, over the baseline"),
    Column(
        "equal_peak_speedup",
        "equal peak",
        lambda row: row.equal_peak_speedup,
        RATIO,
        "speedup divided by how much more peak the machine has",
    ),
    Column(
        "equal_area_speedup",
        "equal area",
        lambda row: row.equal_area_speedup,
        RATIO,
        "speedup divided by how much more area the machine has, at the same technology node",
    ),
    Column("utilization", "U of products", lambda row: row.result.utilization, SHARE, places=(CSV,)),
    Column("step_utilization", "U", lambda row: row.result.step_utilization, SHARE, "of the whole step"),
    Column("energy_j", "energy", lambda row: row.result.energy_j or None, _JOULES, "of the whole step"),
    Column("energy_ratio", "less energy", lambda row: row.energy_ratio, RATIO, "energy of the baseline over this"),
    Column(
        "energy_delay_js",
        "energy x delay",
        lambda row: row.result.energy_delay_js or None,
        si_format("Js"),
        places=(CSV,),
    ),
    Column("energy_delay_ratio", "less EDP", lambda row: row.energy_delay_ratio, RATIO, "energy-delay product"),
    Column("dram_bytes", "DRAM", lambda row: row.result.dram_bytes, BYTES, places=(CSV,)),
)
"""`acf compare`: one row for each trace on each machine."""

TRAINING_KEYS = ("test_accuracy", "weight_sparsity")


@dataclass(frozen=True)
class OperationRow:
    """An operation on a machine, or the sum of all its operations."""

    op: OpResult
    macs_per_cycle: int
    clock_hz: float

    @property
    def slots(self) -> int:
        """MAC slots of the operation: cycles times MACs per cycle."""
        return self.op.cycles * self.macs_per_cycle

    @property
    def lost(self) -> dict[str, float]:
        """Share of MAC slots lost by reason, largest first."""
        largest_first = sorted(self.op.lost_slots.items(), key=lambda item: -item[1])
        return {reason: lost / self.slots for reason, lost in largest_first if lost and self.slots}


def _all_lost(lost: dict[str, float]) -> str:
    texts = (f"{reason} {percent(share)}".replace("_", " ").replace(" ", _NO_BREAK) for reason, share in lost.items())
    return ", ".join(texts)


def _most_lost(lost: dict[str, float]) -> str:
    return next(f"{reason.replace('_', ' ')} {share:.0%}" for reason, share in lost.items())


OPERATION: tuple[Column[OperationRow], ...] = (
    Column("name", "operation", lambda row: row.op.name, names_row=True),
    Column("phase", "phase", lambda row: row.op.phase, Format(phase_name, is_number=False), css="fixed"),
    Column(
        "shape",
        "kind and shape",
        lambda row: row.op.shape or None,
        Format(str, is_number=False),
        "kind of the layer, and the shapes of both operands",
        places=(PAGE,),
        css="quiet",
    ),
    Column("cycles", "cycles", lambda row: row.op.cycles, COUNT),
    Column("seconds", "time", lambda row: row.op.cycles / row.clock_hz, _SECONDS, places=(PAGE,)),
    Column("dense_macs", "dense MACs", lambda row: row.op.dense_macs, _SI, places=(PAGE,)),
    Column(
        "effectual_macs",
        "effectual MACs",
        lambda row: row.op.effectual_macs,
        _SI,
        "MACs whose two operands are non-zero",
        places=(PAGE,),
    ),
    Column(
        "utilization",
        "utilisation",
        lambda row: row.op.effectual_macs / row.slots if row.slots else None,
        SHARE,
        "effectual MACs / MAC slots (called U)",
    ),
    Column(
        "lost",
        "lost slots",
        lambda row: row.lost or None,
        Format(_all_lost, is_number=False),
        "share of MAC slots without an effectual MAC, by reason",
        places=(PAGE,),
        css="lost",
    ),
    Column("dram_bytes", "DRAM", lambda row: row.op.dram_bytes, BYTES, "bytes moved to and from DRAM"),
    Column("energy_j", "energy", lambda row: sum(row.op.energy_j.values()), _JOULES),
    Column(
        "most_lost",
        "lost most to",
        lambda row: row.lost or None,
        Format(_most_lost),
        "the reason that cost most MAC slots, and its share",
        places=(TERMINAL,),
    ),
)
"""One row for each operation of a result."""

TRAINING: tuple[Column[TrainingRecord], ...] = (
    Column("label", "run", lambda record: record.label, names_row=True),
    Column("test_accuracy", "test accuracy", lambda record: record.test_accuracy, SHARE),
    Column("weight_sparsity", "weight sparsity", lambda record: record.weight_sparsity, SHARE),
    Column("steps", "steps", lambda record: len(record.losses), COUNT),
    Column(
        "last_loss",
        "last loss",
        lambda record: record.losses[-1] if record.losses else None,
        Format(lambda loss: f"{loss:.4g}"),
        "training loss of the last step",
    ),
    Column(
        "moved_blocks",
        "blocks moved",
        lambda record: sum(blocks for _, blocks in record.moved_blocks),
        COUNT,
        "blocks dropped and grown elsewhere, over the run",
    ),
    Column("seconds", "wall-clock time", lambda record: record.seconds, _SECONDS),
    Column(
        "joules",
        "energy",
        lambda record: record.test_joules[-1] if record.test_joules else None,
        _JOULES,
        "energy of the run up to its last test; - where no counter of this machine can be read",
    ),
)
"""One row for each training run."""


def summary_columns(training: Sequence[TrainingRecord]) -> tuple[Column[SummaryRow], ...]:
    """`SUMMARY`, without the columns of training where ``training`` is empty."""
    return tuple(column for column in SUMMARY if training or column.key not in TRAINING_KEYS)


def training_columns(training: Sequence[TrainingRecord]) -> tuple[Column[TrainingRecord], ...]:
    """`TRAINING`, without energy where no run measured it."""
    measured = any(record.test_joules for record in training)
    return tuple(column for column in TRAINING if measured or column.key != "joules")


def summary_rows(results: Sequence[Result], training: Sequence[TrainingRecord]) -> list[SummaryRow]:
    """One row for each result; baselines as `acf.report.compare.comparisons` chooses them."""
    return [
        SummaryRow(result, compared, tuple(record for record in training if record.label == result.workload))
        for result, compared in zip(results, comparisons(results), strict=True)
    ]


def operation_rows(result: Result) -> list[OperationRow]:
    """One row for each operation."""
    return [OperationRow(op, result.macs_per_cycle, result.clock_hz) for op in result.ops]


def total_rows(result: Result) -> list[OperationRow]:
    """All products, the vector work if the step has some, and the whole step, without the slots they lost."""
    effectual = sum(op.effectual_macs for op in result.ops)
    dense = sum(op.dense_macs for op in result.ops)
    vector_bytes = sum(op.dram_bytes for op in result.vector_ops)
    vector_j = sum(sum(op.energy_j.values()) for op in result.vector_ops)
    products = _total(ALL_PRODUCTS, result.cycles, (dense, effectual), result.dram_bytes - vector_bytes)
    vector = _total(VECTOR_WORK, result.vector_cycles, (0, 0), vector_bytes)
    whole = _total(WHOLE_STEP, result.step_cycles, (dense, effectual), result.dram_bytes)
    energies = (result.products_energy_j, vector_j, result.energy_j)
    rows = [
        OperationRow(replace(op, energy_j={"all": joules}), result.macs_per_cycle, result.clock_hz)
        for op, joules in zip((products, vector, whole), energies, strict=True)
    ]
    return rows if result.vector_ops else rows[2:]


def _total(name: str, cycles: int, macs: tuple[int, int], dram_bytes: int) -> OpResult:
    return OpResult(name, "", cycles, *macs, lost_slots={}, dram_bytes=dram_bytes, energy_j={})
