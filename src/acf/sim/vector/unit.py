"""The vector unit that stands beside the compute units of every machine, and what vector work costs on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from acf.sim.memory import OnChipMemory
from acf.sim.vector.passes import PASSES, TENSOR_BITS, Pass
from acf.trace import VectorOp


@dataclass(frozen=True)
class VectorUnit:
    """``lanes`` operations per cycle, and what an operation and a byte of on-chip memory take.

    ``overlaps``: works beside the products (`acf.sim.vector.schedule`); otherwise each fused pass is a kernel of its
    own, launched in ``launch_cycles``.
    """

    lanes: int
    value_bytes: int
    operation_pj: float
    sram_read_pj_per_byte: float
    sram_write_pj_per_byte: float
    overlaps: bool = True
    launch_cycles: int = 0


@dataclass(frozen=True)
class PassCount:
    """One pass on one machine: cycles of the vector unit, bytes across the DRAM pins, energy but for DRAM's."""

    cycles: int
    dram_bytes: int
    energy_j: dict[str, float]
    waits: bool


def count_passes(op: VectorOp, unit: VectorUnit, memory: OnChipMemory) -> Iterator[PassCount]:
    """The passes of ``op`` in order; what they keep for later goes through on-chip ``memory``."""
    for each in PASSES[op.kind, op.phase]:
        yield PassCount(
            cycles=ceil(op.elements * each.operations / unit.lanes),
            dram_bytes=_dram_bytes(op, each, unit, memory),
            energy_j=_energy_j(op, each, unit),
            waits=each.waits,
        )


def _tensor_bytes(op: VectorOp, tensor: str, unit: VectorUnit) -> int:
    return ceil(op.elements * (TENSOR_BITS[tensor] or 8 * unit.value_bytes) / 8)


def _dram_bytes(op: VectorOp, each: Pass, unit: VectorUnit, memory: OnChipMemory) -> int:
    """Bytes across the DRAM pins: tensors that on-chip memory does not hold, and the optimizer's state both ways.

    The state is followed by the new weights as operands; it does not stay on chip until the next step.
    """
    moved = 0
    for tensor in each.reads:
        moved += memory.touch(f"{op.name}.{op.kind}.{tensor}", _tensor_bytes(op, tensor, unit), external=True)
    for tensor in each.writes:
        moved += memory.write(f"{op.name}.{op.kind}.{tensor}", _tensor_bytes(op, tensor, unit))
    if op.phase == "backward" and each is PASSES[op.kind, op.phase][-1]:
        for tensor in TENSOR_BITS:
            memory.discard(f"{op.name}.{op.kind}.{tensor}")
    if each.state_bytes:
        moved += op.elements * (2 * each.state_bytes + unit.value_bytes)
    return moved


def _energy_j(op: VectorOp, each: Pass, unit: VectorUnit) -> dict[str, float]:
    """Operations in the lanes; on-chip memory: the pass's input and ``reads`` out, its result and ``writes`` in."""
    read = op.elements * unit.value_bytes + sum(_tensor_bytes(op, tensor, unit) for tensor in each.reads)
    written = sum(_tensor_bytes(op, tensor, unit) for tensor in each.writes)
    written += op.elements * unit.value_bytes if each.emits else 0
    read, written = read + op.elements * each.state_bytes, written + op.elements * each.state_bytes
    sram_pj = read * unit.sram_read_pj_per_byte + written * unit.sram_write_pj_per_byte
    return {"vector": op.elements * each.operations * unit.operation_pj * 1e-12, "sram": sram_pj * 1e-12}
