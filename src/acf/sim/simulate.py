"""Playing every operation of a trace on one architecture, on-chip memory, DRAM and vector work included."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from itertools import count
from operator import add
from pathlib import Path

from acf.errors import ArchitectureError, TraceError
from acf.lowering import Gemm, matrix_products
from acf.lowering.products import MatrixProducts
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.memory import DramTraffic
from acf.sim.observer import PlayedOp, StepObserver
from acf.sim.planned_memory import last_used, on_chip_memory, touch_operands
from acf.sim.registry import find_architecture
from acf.sim.result import OpResult, Result
from acf.sim.whole_step import WholeStep
from acf.trace import Trace, TracedOp

FORWARD_ONLY = (
    "the trace has forward products only, so this is inference; for a training step, capture the backward pass too"
)


OnProgress = Callable[[str, float], None]
"""Called with the operation that is played and the share of all that is done."""


def simulate(
    trace: Trace | str | Path,
    architecture: str | Path | AcceleratorSpec,
    *,
    timeline: StepObserver | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Play ``trace``, or the trace file of that path, on ``architecture``.

    ``architecture`` is a name such as those of `acf.architectures()`, a TOML file, or a Spec.

    Matrix products run one after another. Within one, DRAM traffic overlaps with compute and the slower of the two
    decides; the cycles in which compute waits are the stall "memory". Vector work of the trace overlaps with products
    as `acf.sim.vector.schedule` says. ``timeline``, an `acf.Timeline`, records when everything happened;
    ``on_progress`` is called before every operation with its name and the share of operations done.
    """
    if isinstance(trace, str | Path):
        trace = Trace.load(trace)
    if not isinstance(trace, Trace):
        raise TraceError(
            f"simulate takes one Trace or the path of a trace file, not a {type(trace).__name__}; "
            "for several traces: [acf.simulate(trace, architecture) for trace in traces]"
        )
    if not trace.ops:
        raise TraceError(
            f"trace {trace.label!r} has no operations, so there is nothing to simulate; call the model and "
            "backward() inside `with acf.capture(model)`"
        )
    products_of = matrix_products if on_progress is None else _counting(len(trace.ops), on_progress)
    return simulate_parts([trace], architecture, products_of, timeline)


ProductsOf = Callable[[Trace, TracedOp], MatrixProducts | list[Gemm]]
"""The matrix products of an operation: `matrix_products`, or `KeptProducts` where a trace is played many times."""


def _counting(total: int, on_progress: OnProgress) -> ProductsOf:
    """`matrix_products` that tells how many operations were begun before."""
    begun = count()

    def products_of(trace: Trace, op: TracedOp) -> MatrixProducts | list[Gemm]:
        on_progress(f"{op.name} {op.phase}", next(begun) / total)
        return matrix_products(trace, op)

    return products_of


def simulate_parts(
    traces: Iterable[Trace],
    architecture: str | Path | AcceleratorSpec,
    products_of: ProductsOf = matrix_products,
    timeline: StepObserver | None = None,
) -> Result:
    """Play a step that comes as several traces, in order, with one on-chip memory; each may be freed once played.

    A machine with a planned memory needs all of them beforehand, and keeps them.
    """
    name, spec = find_architecture(architecture)
    traces = list(traces) if spec.memory_plan == "planned" else traces
    memory = on_chip_memory(traces, spec)
    step = WholeStep(spec, memory)
    ops: list[OpResult] = []
    previous = ComputeCount(0, 0, 0)
    label = ""
    for trace in traces:
        if timeline is not None:
            timeline.begin(spec, len(trace.ops))
        for place, op in enumerate(trace.ops):
            step.add_vector_ops(trace.vector_ops_after(place))
            traffic = touch_operands(trace, op, spec, memory) if spec.keeps_tensors else DramTraffic()
            previous = _count(op, products_of(trace, op), spec, traffic).after(previous)
            ops.append(replace(_result(op, spec, previous, traffic), shape=_shape(trace, op)))
            step.add_product(op, ops[-1])
            if timeline is not None:
                products = matrix_products(trace, op)
                share = traffic.divided(len(products))
                timeline.add_product(PlayedOp(products, op.batched, share, previous.cycles, ops[-1]))
            for key in last_used(trace, place):
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
        notes=spec.notes + ((FORWARD_ONLY,) if ops and all(op.phase == "forward" for op in ops) else ()),
        area_mm2=spec.area_mm2 | spec.vector_area_mm2,
        vector_ops=tuple(step.results),
        step=step.time(sum(op.cycles for op in ops)),
        dram_bytes_per_s=spec.dram_sustained_bytes_per_s,
    )
    if timeline is not None:
        timeline.end(result, step.placed)
    return result


def _count(
    op: TracedOp, products: MatrixProducts | list[Gemm], spec: AcceleratorSpec, traffic: DramTraffic
) -> ComputeCount:
    """Counts of an operation while ``traffic`` crosses the DRAM pins."""
    share = traffic.divided(len(products))
    gemms = (gemm for gemm in products if gemm.dense_macs)
    if op.batched:
        return spec.count_batch(gemms, share)
    return reduce(add, (spec.count_with_traffic(gemm, share) for gemm in gemms), ComputeCount(0, 0, 0))


def _result(op: TracedOp, spec: AcceleratorSpec, count: ComputeCount, traffic: DramTraffic) -> OpResult:
    _check_slots(op, spec, count)
    dram_bytes = traffic.total_bytes + count.streamed_bytes
    waited = max(0, spec.dram_cycles(dram_bytes) - count.cycles)
    dram_pj = dram_bytes * 8 * spec.dram_pj_per_bit
    launch = spec.launch_cycles if count.dense_macs else 0
    cycles = launch + count.cycles + waited
    lost = Counter(count.lost_slots)
    lost.update(_lost(spec, memory=waited, launch=launch))
    return OpResult(
        name=op.name,
        phase=op.phase,
        cycles=cycles,
        dense_macs=count.dense_macs,
        effectual_macs=count.effectual_macs,
        lost_slots=dict(lost),
        dram_bytes=dram_bytes,
        energy_j=count.energy_j | {"dram": dram_pj * 1e-12} | spec.standing_j(cycles / spec.clock_hz),
        other_cycles=count.other_cycles,
        left_bytes=traffic.left_bytes,
        right_bytes=traffic.right_bytes,
        written_bytes=traffic.written_bytes,
        counters=count.counters,
    )


def _shape(trace: Trace, op: TracedOp) -> str:
    """The kind of the product and the shapes of its operands as they lie in memory."""
    sizes = ("x".join(map(str, trace.tensors[key].shape)) for key in op.operands)
    kind = "batched product" if op.batched else "linear" if op.weighted else "product"
    if op.conv is not None:
        kind = "conv " + "x".join(map(str, op.conv.kernel_size))
        kind += f" in {op.conv.groups} groups" if op.conv.groups > 1 else ""
    return f"{kind}, {', '.join(sizes)}"


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
