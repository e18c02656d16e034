"""The vector unit that stands beside the compute units of every machine, and what vector work costs on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from acf.sim.memory import OnChipMemory
from acf.sim.vector.passes import PASSES, TENSOR_BITS, Pass
from acf.trace import VectorOp

BETWEEN_PASSES = ("gradient",)
"""Tensors that only the passes of one operation exchange."""


@dataclass(frozen=True)
class VectorUnit:
    """``lanes`` operations per cycle, and what an operation and a byte of on-chip memory take.

    ``overlaps``: works beside the products (`acf.sim.vector.schedule`); otherwise each fused pass is a kernel of its
    own, launched in ``launch_cycles``.
    ``channel_groups``: sums over a whole tensor are taken for one of so many groups of its channels after another, so
    that a group waits on chip for its sum; and an addition of the forward pass reads its second operand where that
    lies, if it is known. 0: neither, sums are over whole tensors, and such operands are read from DRAM.
    """

    lanes: int
    value_bytes: int
    operation_pj: float
    sram_read_pj_per_byte: float
    sram_write_pj_per_byte: float
    overlaps: bool = True
    launch_cycles: int = 0
    channel_groups: int = 0


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
            cycles=ceil(op.elements * each.operations_per_value(op.windows) / unit.lanes),
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
    grouped = _waits_on_chip(op, unit, memory)
    if grouped and each.waits:
        moved += _reserve_group(op, each, unit, memory)
    for tensor in () if grouped and each.waits else each.reads:
        moved += _read(op, tensor, unit, memory)
    for tensor in each.writes:
        if not (grouped and tensor in BETWEEN_PASSES):
            moved += memory.write(f"{op.name}.{op.kind}.{tensor}", _written_bytes(op, tensor, unit, memory))
    if op.phase == "backward" and each is PASSES[op.kind, op.phase][-1]:
        for tensor in TENSOR_BITS:
            if tensor != "kept":  # the addition that reads it comes later
                memory.discard(f"{op.name}.{op.kind}.{tensor}")
        if op.kind == "add":
            memory.discard(op.other)  # nothing reads a kept gradient again
    if each.state_bytes:
        moved += op.elements * (2 * each.state_bytes + unit.value_bytes)
    return moved


def _written_bytes(op: VectorOp, tensor: str, unit: VectorUnit, memory: OnChipMemory) -> int:
    """Bytes of a tensor that a pass keeps; a gradient behind a ReLU is stored as the operand that has its zeros."""
    dense_bytes = _tensor_bytes(op, tensor, unit)
    return min(dense_bytes, memory.sizes.get(op.other, dense_bytes)) if tensor == "kept" else dense_bytes


def _read(op: VectorOp, tensor: str, unit: VectorUnit, memory: OnChipMemory) -> int:
    """Bytes across the DRAM pins; an addition finds a gradient that was kept for it where that lies."""
    lies_in_memory = op.phase == "backward" or unit.channel_groups > 0
    if tensor == "other" and lies_in_memory and op.other in memory.sizes:
        return memory.touch(op.other, memory.sizes[op.other], external=False)
    return memory.touch(f"{op.name}.{op.kind}.{tensor}", _tensor_bytes(op, tensor, unit), external=True)


def _waits_on_chip(op: VectorOp, unit: VectorUnit, memory: OnChipMemory) -> bool:
    """Whether a group of channels of all that a waiting pass reads stays on chip until its sum is there."""
    waiting = [each for each in PASSES[op.kind, op.phase] if each.waits]
    return (
        unit.channel_groups > 0
        and bool(waiting)
        and all(_group_bytes(op, each, unit) <= memory.capacity_bytes for each in waiting)
    )


def _group_bytes(op: VectorOp, each: Pass, unit: VectorUnit) -> int:
    return ceil(sum(_tensor_bytes(op, tensor, unit) for tensor in each.reads) / unit.channel_groups)


def _reserve_group(op: VectorOp, each: Pass, unit: VectorUnit, memory: OnChipMemory) -> int:
    """Make room for the group that waits; returns the bytes that leave for DRAM."""
    name = f"{op.name}.{op.kind}.{op.phase}.group"
    written = memory.write(name, _group_bytes(op, each, unit))
    memory.discard(name)
    return written


def _energy_j(op: VectorOp, each: Pass, unit: VectorUnit) -> dict[str, float]:
    """Operations in the lanes; on-chip memory: the pass's input and ``reads`` out, its result and ``writes`` in."""
    read = op.elements * unit.value_bytes + sum(_tensor_bytes(op, tensor, unit) for tensor in each.reads)
    written = sum(_tensor_bytes(op, tensor, unit) for tensor in each.writes)
    written += op.elements * unit.value_bytes if each.emits else 0
    read, written = read + op.elements * each.state_bytes, written + op.elements * each.state_bytes
    sram_pj = read * unit.sram_read_pj_per_byte + written * unit.sram_write_pj_per_byte
    operations = op.elements * each.operations_per_value(op.windows)
    return {"vector": operations * unit.operation_pj * 1e-12, "sram": sram_pj * 1e-12}
