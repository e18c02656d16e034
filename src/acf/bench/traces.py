"""Figures of a trace: zeros by operand, ineffectual multiply-accumulates by pass, speedups of machines that skip."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from acf.bench import OnProgress
from acf.sim import OpResult, Result, simulate, spec
from acf.sim.accelerator import AcceleratorSpec
from acf.trace import PHASES, Trace

TENSORCORE_512 = spec("tensorcore-512")
"""Dense tensor cores with the peak of acf-512."""


@dataclass(frozen=True)
class TraceFigures:
    """Figures of one traced step; speedups are ratios of time of its matrix products.

    ``zeros``: fraction of zero elements by operand; ``idle_macs``: fraction of multiply-accumulates with a zero
    operand, by pass. ``tensordash``: speedup over `TensorCore`, by pass and for all of them ("compute") without DRAM
    stalls, and for all of them with DRAM stalls ("step"). ``spartann``: both backward passes over the same machine
    without skipping; ``fabric``: acf-512 over `TENSORCORE_512`; both with DRAM stalls.
    """

    label: str
    dense_macs: int
    zeros: dict[str, float]
    idle_macs: dict[str, float]
    tensordash: dict[str, float]
    spartann: float
    fabric: float


def figures_of(trace: Trace, on_progress: OnProgress = lambda what, share: None) -> TraceFigures:
    """Count zeros and simulate ``trace`` on six machines."""
    machines: list[str | AcceleratorSpec] = ["tensorcore", "tensordash", "spartann", "acf-512"]
    machines += [spec("spartann", skips_zeros=False), TENSORCORE_512]
    results = []
    for place, machine in enumerate(machines):

        def on_part(what: str, share: float, place: int = place) -> None:
            on_progress(what, (place + share) / len(machines))

        results.append(simulate(trace, machine, on_progress=on_part))
    tensorcore, tensordash, spartann, fabric, plain, rival = results
    backward = ("input_grad", "weight_grad")
    return TraceFigures(
        label=trace.label,
        dense_macs=sum(op.dense_macs for op in tensorcore.ops),
        zeros=_zeros(trace),
        idle_macs=_idle_macs(tensorcore),
        tensordash=_compute_speedups(tensordash, tensorcore) | {"step": tensordash.products_speedup_over(tensorcore)},
        spartann=_speedup(spartann, plain, backward),
        fabric=fabric.products_speedup_over(rival),
    )


def _zeros(trace: Trace) -> dict[str, float]:
    """Fraction of zero elements of all activations, weights and gradients; each tensor counts once."""
    role_of = {key: role for op in trace.ops for key, role in zip(op.operands, op.roles, strict=True)}
    elements: Counter[str] = Counter()
    nonzeros: Counter[str] = Counter()
    for key, role in role_of.items():
        elements[role] += trace.tensors[key].size
        nonzeros[role] += trace.tensors[key].nonzeros
    return {role: 1 - nonzeros[role] / size for role, size in elements.items() if size}


def _idle_macs(result: Result) -> dict[str, float]:
    dense: Counter[str] = Counter()
    effectual: Counter[str] = Counter()
    for op in result.ops:
        dense[op.phase] += op.dense_macs
        effectual[op.phase] += op.effectual_macs
    return {phase: 1 - effectual[phase] / macs for phase, macs in dense.items() if macs}


def _compute_speedups(fast: Result, slow: Result) -> dict[str, float]:
    """By pass, and "compute" for all passes, without cycles lost to memory."""
    computing = [
        replace(result, ops=tuple(_without_waiting(op, result) for op in result.ops)) for result in (fast, slow)
    ]
    by_pass = {phase: _speedup(computing[0], computing[1], [phase]) for phase in PHASES}
    return by_pass | {"compute": _speedup(computing[0], computing[1], PHASES)}


def _without_waiting(op: OpResult, result: Result) -> OpResult:
    waited = op.lost_slots.get("memory", 0) // result.macs_per_cycle
    return replace(op, cycles=op.cycles - waited)


def _speedup(fast: Result, slow: Result, phases: Iterable[str]) -> float:
    """Ratio of the seconds that both spend in ``phases``; 1 where the trace has none of them."""
    chosen = tuple(phases)
    spent = [sum(op.cycles for op in result.ops if op.phase in chosen) / result.clock_hz for result in (slow, fast)]
    return spent[0] / spent[1] if spent[1] else 1.0
