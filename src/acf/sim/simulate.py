"""Playing every operation of a trace on one architecture, on-chip memory, DRAM and vector work included."""

from collections import Counter
from collections.abc import Iterable
from functools import reduce
from math import ceil
from operator import add
from pathlib import Path

from acf.errors import ArchitectureError
from acf.lowering import matrix_products
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.memory import OnChipMemory
from acf.sim.observer import PlayedOp, StepObserver
from acf.sim.registry import find_architecture
from acf.sim.result import OpResult, Result
from acf.sim.whole_step import WholeStep
from acf.trace import Trace, TracedOp


def simulate(
    trace: Trace, architecture: str | Path | AcceleratorSpec, *, timeline: StepObserver | None = None
) -> Result:
    """Play ``trace`` on ``architecture``: a name such as those of `acf.architectures()`, a TOML file, or a Spec.

    Matrix products run one after another. Within one, DRAM traffic overlaps with compute and the slower of the two
    decides; the cycles in which compute waits are the stall "memory". Vector work of the trace overlaps with products
    as `acf.sim.vector.schedule` says. ``timeline``, an `acf.Timeline`, records when everything happened.
    """
    return simulate_parts([trace], architecture, timeline)


def simulate_parts(
    traces: Iterable[Trace], architecture: str | Path | AcceleratorSpec, timeline: StepObserver | None = None
) -> Result:
    """Play a step that comes as several traces, in order, with one on-chip memory; each may be freed once played."""
    name, spec = find_architecture(architecture)
    memory = OnChipMemory(spec.on_chip_bytes)
    step = WholeStep(spec, memory)
    ops: list[OpResult] = []
    label = ""
    for trace in traces:
        if timeline is not None:
            timeline.begin(spec, len(trace.ops))
        for place, op in enumerate(trace.ops):
            step.add_vector_ops(trace.vector_ops_after(place))
            played = _play(trace, op, spec, memory)
            ops.append(played.result)
            step.add_product(op, played.result)
            if timeline is not None:
                timeline.add_product(played)
            for key in _last_used(trace, place):
                memory.discard(key)
        step.add_vector_ops(trace.vector_ops_after(len(trace.ops)))
        label = trace.label
    result = Result(
        architecture=name,
        workload=label,
        clock_hz=spec.clock_hz,
        technology_nm=spec.technology_nm,
        macs_per_cycle=spec.macs_per_cycle,
        ops=tuple(ops),
        notes=spec.notes,
        area_mm2=spec.area_mm2 | spec.vector_area_mm2,
        vector_ops=tuple(step.results),
        step=step.time(sum(op.cycles for op in ops)),
    )
    if timeline is not None:
        timeline.end(result, step.placed)
    return result


def _play(trace: Trace, op: TracedOp, spec: AcceleratorSpec, memory: OnChipMemory) -> PlayedOp:
    dram_bytes = _touch_operands(trace, op, spec, memory) if spec.keeps_tensors else 0
    products = matrix_products(trace, op)
    share = ceil(dram_bytes / max(1, len(products)))
    gemms = (gemm for gemm in products if gemm.dense_macs)
    if op.batched:
        count = spec.count_batch(gemms, share)
    else:
        count = reduce(add, (spec.count_with_dram(gemm, share) for gemm in gemms), ComputeCount(0, 0, 0))
    _check_slots(op, spec, count)
    dram_bytes += count.streamed_bytes
    waited = max(0, spec.dram_cycles(dram_bytes) - count.cycles)
    dram_pj = dram_bytes * 8 * spec.dram_pj_per_bit
    launch = spec.launch_cycles if count.dense_macs else 0
    cycles = launch + count.cycles + waited
    lost = Counter(count.lost_slots)
    lost.update(_lost(spec, memory=waited, launch=launch))
    result = OpResult(
        name=op.name,
        phase=op.phase,
        cycles=cycles,
        dense_macs=count.dense_macs,
        effectual_macs=count.effectual_macs,
        lost_slots=dict(lost),
        dram_bytes=dram_bytes,
        energy_j=count.energy_j | {"dram": dram_pj * 1e-12} | spec.standing_j(cycles / spec.clock_hz),
        other_cycles=count.other_cycles,
    )
    return PlayedOp(products, op.batched, share, count.cycles, result)


def _touch_operands(trace: Trace, op: TracedOp, spec: AcceleratorSpec, memory: OnChipMemory) -> int:
    """Bytes that cross the DRAM pins because the operands are used."""
    roles = dict(zip(op.operands, op.roles, strict=True))
    return sum(
        memory.touch(key, spec.stored_bytes(trace.tensors[key], role), key in op.external)
        for key, role in roles.items()
    )


def _last_used(trace: Trace, place: int) -> list[str]:
    """Activations and gradients that no product after this one reads: those of gradient products, in their last use."""
    op = trace.ops[place]
    later = {key for each in trace.ops[place + 1 :] for key in each.operands}
    if op.phase == "forward":
        return []
    return [key for key, role in zip(op.operands, op.roles, strict=True) if role != "weight" and key not in later]


def _lost(spec: AcceleratorSpec, memory: int, launch: int) -> dict[str, int]:
    """Slots lost outside compute: stalls for memory, and the launch of the operation where that takes time."""
    cycles = {"memory": memory, "launch": launch} if launch else {"memory": memory}
    return {reason: waited * spec.macs_per_cycle for reason, waited in cycles.items()}


def _check_slots(op: TracedOp, spec: AcceleratorSpec, count: ComputeCount) -> None:
    """Every MAC slot is either effectual or lost for a named reason; anything else is a bug of the model."""
    slots = count.cycles * spec.macs_per_cycle
    accounted = count.effectual_macs + sum(count.lost_slots.values())
    if accounted != slots or min(count.lost_slots.values(), default=0) < 0:
        raise ArchitectureError(
            f"{op.name} {op.phase}: {accounted} of {slots} MAC slots accounted for ({count.lost_slots}); "
            "the accelerator model is wrong, report it with this trace"
        )
