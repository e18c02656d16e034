"""The rows of the table: every system on the present device, then its traced steps on every simulated machine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from statistics import mean, stdev
from typing import Any

from acf.bench.evaluation.bleu import score_bleu
from acf.bench.evaluation.density import DensityRow, density_rows
from acf.bench.evaluation.run import MachineStep, SystemRun
from acf.bench.evaluation.skipping import SkippedStep, skipped_steps
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.training.run import seconds_to

NOT_MEASURABLE = "not measurable here"
THIS_DEVICE = "this device"


@dataclass(frozen=True)
class Spread:
    """Mean and sample deviation of ``count`` values; a deviation of 0 for a single one."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """None where a value is missing or there is none; NaN where one is not finite."""
        found = list(values)
        present = [value for value in found if value is not None]
        if not present or len(present) < len(found):
            return None
        if not all(isfinite(value) for value in present):
            return cls(nan, nan, len(present))
        return cls(mean(present), stdev(present) if len(present) > 1 else 0.0, len(present))


@dataclass(frozen=True)
class EvaluationRow:
    """One system on one machine.

    ``machine`` is `THIS_DEVICE` for what was measured. Then ``seeds`` are runs, and spreads are over seeds; for a
    simulated machine they are over the stages of one run, at batch ``captured``. ``seconds_to_target`` is None where
    a run never reached the target. ``speedup`` and ``energy_ratio`` compare with the first row of the same machine,
    the dense one where it was run: examples per second, and joules per example.
    """

    system: str
    machine: str
    seeds: int
    examples_per_s: Spread
    speedup: float | None
    seconds_to_target: Spread | None
    step_joules: Spread | None
    joules_per_example: float | None
    energy_ratio: float | None
    metrics: dict[str, Spread | None]
    utilization: Spread | None
    sparsity: float | None
    energy_source: str = ""


@dataclass(frozen=True)
class AblationRow:
    """One value of what an ablation varies, and what was measured of it.

    ``quality`` and ``examples_per_s`` are of this device, over seeds. ``machine_examples_per_s`` and ``utilization``
    are of its traced steps on the machine; None where they were not played.
    """

    what: str
    value: str
    system: str
    machine: str
    quality: Spread | None
    examples_per_s: Spread
    machine_examples_per_s: Spread | None
    utilization: Spread | None


@dataclass(frozen=True)
class EvaluationTable:
    """All rows, the unit of throughput, the target quality and how it was chosen, and BLEU's signature.

    ``densities`` are of the traced gradients, by layer; ``skipping`` is the zero-skipping kernel on this GPU;
    ``ablations`` are those that the options name.
    """

    title: str
    unit: str
    quality: str
    target: float | None
    rows: tuple[EvaluationRow, ...]
    notes: tuple[str, ...] = ()
    densities: tuple[DensityRow, ...] = ()
    skipping: tuple[SkippedStep, ...] = ()
    ablations: tuple[AblationRow, ...] = ()


def evaluation_table(store: EvaluationStore, target: float | None) -> EvaluationTable:
    """The table of what ``store`` holds; without a ``target`` that of the first system, its mean final quality."""
    task: dict[str, Any] = store.fact("task") or {}
    runs, steps = store.runs(), store.machine_steps()
    names = list(dict.fromkeys(run.system for run in runs))
    higher = bool(task.get("higher_is_better", True))
    notes = [f"data: {store.sessions()[0]['data']}"] if store.sessions() else []
    if target is None and runs:
        spread = Spread.of(run.quality for run in runs if run.system == names[0])
        target = spread.mean if spread is not None and isfinite(spread.mean) else None
        notes.append(f"target: mean final quality of {names[0]}")
    bleu, signature = _bleu(runs, store.fact("references") or ())
    notes += [f"BLEU: {signature}"] if signature else []
    measured = [_measured([run for run in runs if run.system == name], target, higher, bleu) for name in names]
    simulated = _simulated(steps, {row.system: row for row in measured})
    if any(row.step_joules is None for row in measured):
        notes.append(f"energy of this device: {next(run.energy_source for run in runs)}")
    if any(run.processes > 1 for run in runs):
        notes.append(f"processes that trained together: {', '.join(sorted({str(run.processes) for run in runs}))}")
    if steps:
        notes.append(
            f"simulated machines: one step of {steps[0].examples:g} {task.get('unit', 'examples')}, mean and deviation "
            "over start, middle and end of seed 0"
        )
    rows = _with_ratios([*measured, *simulated])
    return EvaluationTable(
        str(task.get("name", "")),
        str(task.get("unit", "examples")),
        str(task.get("quality", "")),
        target,
        rows,
        tuple(notes),
        density_rows(store.fact("densities") or {}),
        skipped_steps(store),
    )


def _bleu(runs: Sequence[SystemRun], references: Sequence[str]) -> tuple[dict[tuple[str, int], float | None], str]:
    scored = {
        (run.system, run.seed): score_bleu(run.outputs, references)
        for run in runs
        if run.outputs and len(run.outputs) == len(references)
    }
    return {key: each.score for key, each in scored.items()}, next((each.signature for each in scored.values()), "")


def _measured(
    runs: Sequence[SystemRun], target: float | None, higher: bool, bleu: dict[tuple[str, int], float | None]
) -> EvaluationRow:
    joules = Spread.of(run.step_joules for run in runs)
    metrics = {name: Spread.of(run.metrics[name] for run in runs) for name in runs[0].metrics}
    if bleu:
        metrics["BLEU"] = Spread.of(bleu.get((run.system, run.seed)) for run in runs)
    reached = [None if target is None else seconds_to(run.curve, target, higher) for run in runs]
    return EvaluationRow(
        system=runs[0].system,
        machine=THIS_DEVICE,
        seeds=len(runs),
        examples_per_s=_spread(run.examples_per_s for run in runs),
        speedup=None,
        seconds_to_target=Spread.of(reached),
        step_joules=joules,
        joules_per_example=None if joules is None else joules.mean / runs[0].examples_per_step,
        energy_ratio=None,
        metrics=metrics,
        utilization=None,
        sparsity=mean(run.sparsity for run in runs),
        energy_source=runs[0].energy_source,
    )


def _simulated(steps: Sequence[MachineStep], measured: dict[str, EvaluationRow]) -> list[EvaluationRow]:
    groups: dict[tuple[str, str], list[MachineStep]] = {}
    for step in steps:
        groups.setdefault((step.machine, step.system), []).append(step)
    machines = list(dict.fromkeys(machine for machine, _ in groups))
    rows = []
    for machine in machines:
        for (found, system), stages in groups.items():
            if found == machine:
                rows.append(_simulated_row(machine, system, stages, measured.get(system)))
    return rows


def _simulated_row(
    machine: str, system: str, stages: Sequence[MachineStep], measured: EvaluationRow | None
) -> EvaluationRow:
    return EvaluationRow(
        system=system,
        machine=machine,
        seeds=1,
        examples_per_s=_spread(step.examples / step.step_seconds for step in stages),
        speedup=None,
        seconds_to_target=None,
        step_joules=Spread.of(step.energy_j for step in stages),
        joules_per_example=mean(step.energy_j / step.examples for step in stages),
        energy_ratio=None,
        metrics={},
        utilization=Spread.of(step.utilization for step in stages),
        sparsity=measured.sparsity if measured else None,
        energy_source="model",
    )


def _spread(values: Iterable[float]) -> Spread:
    spread = Spread.of(values)
    assert spread is not None, "throughput is always known"
    return spread


def _with_ratios(rows: Sequence[EvaluationRow]) -> tuple[EvaluationRow, ...]:
    """Ratios to the first row of the same machine."""
    first: dict[str, EvaluationRow] = {}
    result = []
    for row in rows:
        base = first.setdefault(row.machine, row)
        known = base.joules_per_example is not None and row.joules_per_example
        result.append(
            replace(
                row,
                speedup=row.examples_per_s.mean / base.examples_per_s.mean,
                energy_ratio=base.joules_per_example / row.joules_per_example if known else None,  # type: ignore[operator]
            )
        )
    return tuple(result)
