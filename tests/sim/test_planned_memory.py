"""On-chip memory that is planned for a whole step."""

import numpy as np
import pytest

import acf
from acf.errors import ArchitectureError
from acf.sim.memory import OnChipMemory
from acf.sim.planned_memory import PlannedMemory
from acf.trace import BitTensor, TracedOp, VectorOp, kept_by

NETWORK = "abcdcba"
"""Tensors of a forward pass, used again in reverse in the backward pass."""


def moved_bytes(memory: OnChipMemory) -> int:
    """Write four tensors of 40 bytes one after the other, then read three of them in reverse."""
    moved = sum(memory.write(name, 40) for name in NETWORK[:4])
    return moved + sum(memory.touch(name, 40, external=False) for name in NETWORK[4:])


def test_a_planned_memory_moves_only_what_does_not_fit() -> None:
    planned, recent = PlannedMemory(100, NETWORK), OnChipMemory(100)
    # d is never used again; of a, b and c 20 bytes do not fit beside it and leave once, to come back once
    assert moved_bytes(planned) == 2 * 20
    assert moved_bytes(recent) > moved_bytes(PlannedMemory(100, NETWORK))


def test_a_tensor_that_nothing_reads_again_is_not_written_to_dram() -> None:
    memory = PlannedMemory(100, ["a", "b"])
    assert memory.write("a", 80) == 0
    assert memory.write("b", 80) == 0


def test_another_step_than_the_planned_one_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="'c' is not what the plan"):
        PlannedMemory(100, ["a", "b"]).write("c", 10)


def normalised_step() -> acf.Trace:
    """Two products with a batch normalisation between them whose tensors are larger than the memory."""
    bits = BitTensor.from_array(np.ones((256, 256), dtype=bool))
    ops = [
        TracedOp("one", "forward", "x", "w", external=("x", "w")),
        TracedOp("two", "forward", "y", "v", external=("v",)),
        TracedOp("two", "weight_grad", "g", "y", transpose_a=True),
        TracedOp("one", "weight_grad", "h", "x", transpose_a=True, external=("x",)),
    ]
    vector = [
        VectorOp("one", "batch_norm", "forward", 65536, 1),
        VectorOp("one", "batch_norm", "backward", 65536, 3),
    ]
    return acf.Trace(ops, dict.fromkeys("xwyvgh", bits), vector_ops=vector)


@pytest.mark.parametrize("machine", ["tensorcore-512", "acf-512-wide"])
def test_a_plan_saves_dram_traffic_and_changes_no_work(machine: str) -> None:
    recent, planned = (
        acf.simulate(normalised_step(), acf.spec(machine, on_chip_bytes=100_000, memory_plan=plan))
        for plan in ("lru", "planned")
    )
    assert planned.dram_bytes < 0.8 * recent.dram_bytes
    assert [op.effectual_macs for op in planned.ops] == [op.effectual_macs for op in recent.ops]
    assert planned.vector_cycles == recent.vector_cycles


def test_an_addition_reads_its_second_operand_where_it_lies() -> None:
    bits = BitTensor.from_array(np.ones((256, 256), dtype=bool))
    op = TracedOp("one", "forward", "x", "w", external=("x", "w"))
    traces = [
        acf.Trace([op], {"x": bits, "w": bits}, vector_ops=[VectorOp("one", "add", "forward", 65536, 1, other)])
        for other in ("", "x")
    ]
    machine = acf.spec("tensorcore-512", memory_plan="planned")
    unknown, linked = (acf.simulate(trace, machine).dram_bytes for trace in traces)
    assert unknown - linked == 65536 * 2


def backward_step(other: str) -> acf.Trace:
    """A gradient of 65,536 values waits, while two products run, for the addition that reads ``other``."""
    dense, half = np.ones((256, 256), dtype=bool), np.arange(65536).reshape(256, 256) % 2 == 0
    ops = [
        TracedOp("late", "weight_grad", "g", "y", transpose_a=True),
        TracedOp("late", "input_grad", "g", "w", external=("w",)),
    ]
    vector = [
        VectorOp("late", "keep", "backward", 65536, 1, "y"),
        VectorOp("early", "add", "backward", 65536, 2, other),
    ]
    tensors = {"g": dense, "y": half, "w": dense}
    return acf.Trace(ops, {name: BitTensor.from_array(bits) for name, bits in tensors.items()}, vector_ops=vector)


@pytest.mark.parametrize("machine", ["tensorcore-512", "tensordash-512", "acf-512", "acf-512-wide"])
@pytest.mark.parametrize("plan", ["planned", "lru"])
@pytest.mark.parametrize(("on_chip_bytes", "crosses"), [(10**6, False), (1, True)])
def test_a_gradient_kept_for_an_addition_is_written_once_and_read_once_only_where_it_does_not_fit(
    machine: str, plan: str, on_chip_bytes: int, crosses: bool
) -> None:
    spec = acf.spec(machine, memory_plan=plan, on_chip_bytes=on_chip_bytes)
    step = backward_step(kept_by("late"))
    packed_bytes = spec.stored_bytes(step.tensors["y"], "activation")  # its zeros are those behind the same ReLU
    assert packed_bytes < 65536 * 2
    expected = packed_bytes if crosses else 0
    assert {op.kind: op.dram_bytes for op in acf.simulate(step, spec).vector_ops} == {"keep": expected, "add": expected}


def test_a_kept_gradient_that_leaves_for_the_tensors_of_a_product_is_written_back_and_read_again() -> None:
    spec = acf.spec("tensorcore-512", on_chip_bytes=200_000)  # room for it, but not beside those of the product
    step = backward_step(kept_by("late"))
    packed_bytes = spec.stored_bytes(step.tensors["y"], "activation")
    played = acf.simulate(step, spec)
    assert [op.dram_bytes for op in played.vector_ops] == [0, packed_bytes]
    assert played.ops[1].written_bytes == packed_bytes


def test_a_second_operand_that_a_trace_does_not_name_is_read_once() -> None:
    machine = acf.spec("tensorcore-512", memory_plan="lru", on_chip_bytes=10**6)
    unknown = acf.simulate(backward_step(""), machine)
    assert {op.kind: op.dram_bytes for op in unknown.vector_ops} == {"keep": 0, "add": 65536 * 2}


def test_an_unknown_plan_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="memory_plan 'best' is not one of lru, planned"):
        acf.spec("tensorcore-512", memory_plan="best")
