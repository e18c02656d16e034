"""Vector work on a machine: operations over lanes, tensors through on-chip memory, state in DRAM."""

import pytest

import acf.sim
from acf.sim.memory import OnChipMemory
from acf.sim.vector import PASSES, VectorUnit, count_passes
from acf.trace import VECTOR_KINDS, VectorOp, windows_per_value

UNIT = VectorUnit(lanes=8, value_bytes=2, operation_pj=5.0, sram_read_pj_per_byte=1.0, sram_write_pj_per_byte=2.0)


def test_every_kind_of_vector_work_has_its_passes() -> None:
    assert set(PASSES) == {(kind, phase) for kind, phases in VECTOR_KINDS.items() for phase in phases}


def test_only_batch_normalisation_needs_a_sum_over_the_whole_tensor() -> None:
    assert {kind for (kind, _), passes in PASSES.items() if any(each.waits for each in passes)} == {"batch_norm"}


def test_lanes_share_the_operations_of_a_pass() -> None:
    (relu,) = count_passes(VectorOp("fc", "relu", "forward", 100, 1), UNIT, OnChipMemory(1000))
    assert relu.cycles == 13
    assert relu.energy_j["vector"] == pytest.approx(100 * 5e-12)
    assert relu.energy_j["sram"] == pytest.approx((200 + 2 * (200 + 13)) * 1e-12)  # values in and out, and the mask


def test_the_gradient_of_a_pooling_takes_an_operation_for_every_window_that_a_value_is_in() -> None:
    cycles, vector_j = {}, {}
    for windows in (1.0, windows_per_value((3, 3), (2, 2))):
        for phase in ("forward", "backward"):
            (count,) = count_passes(VectorOp("stem", "pool", phase, 64, 1, windows=windows), UNIT, OnChipMemory(1000))
            cycles[phase, windows], vector_j[phase, windows] = count.cycles, count.energy_j["vector"]
    assert cycles == {("forward", 1.0): 24, ("forward", 2.25): 24, ("backward", 1.0): 8, ("backward", 2.25): 18}
    assert vector_j["backward", 2.25] == pytest.approx(2.25 * vector_j["backward", 1.0])


def test_what_fits_on_chip_until_the_backward_pass_never_crosses_the_pins() -> None:
    forward = VectorOp("conv", "batch_norm", "forward", 100, 1)
    backward = VectorOp("conv", "batch_norm", "backward", 100, 1)

    def moved(capacity: int) -> list[int]:
        memory = OnChipMemory(capacity)
        return [count.dram_bytes for op in (forward, backward) for count in count_passes(op, UNIT, memory)]

    assert moved(1000) == [0, 0, 0, 0]
    assert moved(100) == [200, 200, 200 + 200, 200 + 200]  # written, read; read, gradient written; both read


def test_tensors_that_nobody_reads_any_more_are_not_written_back() -> None:
    memory = OnChipMemory(1000)
    for phase in ("forward", "backward"):
        list(count_passes(VectorOp("conv", "batch_norm", phase, 100, 1), UNIT, memory))
    assert not memory.resident
    assert memory.write("next", 1000) == 0


@pytest.mark.parametrize(("kind", "bytes_per_weight"), [("sgd", 18), ("adam", 26)])
def test_an_optimizer_reads_and_writes_its_state_and_writes_the_new_weights(kind: str, bytes_per_weight: int) -> None:
    (count,) = count_passes(VectorOp("fc", kind, "update", 10, 1), UNIT, OnChipMemory(10**6))
    assert count.dram_bytes == 10 * bytes_per_weight


@pytest.mark.parametrize(
    ("fabric", "rivals"),
    [("acf-512", ("tensorcore-512", "tensordash-512")), ("acf-16384", ("tensorcore", "tensordash"))],
)
def test_machines_of_equal_peak_have_the_same_vector_unit(fabric: str, rivals: tuple[str, ...]) -> None:
    units = [acf.sim.spec(name).vector_unit for name in (fabric, *rivals)]
    assert {unit.lanes for unit in units} == {units[0].lanes}
    assert {unit.operation_pj for unit in units} == {units[0].operation_pj}
    assert all(unit.overlaps for unit in units)
