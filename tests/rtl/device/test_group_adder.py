"""A stage of the chain that adds groups of mesh columns."""

import numpy as np

from acf.rtl.design.arithmetic.model import add_flushed
from acf.rtl.device.group_adder import GroupAdder
from acf.rtl.tools.simulation import Simulation
from tests.rtl.device.programs import SIZES

VALUES = SIZES.shape.link_bytes // 4


def words(flits: list[list[float]]) -> np.ndarray:
    """Flits of float32 values as words of a port."""
    return np.array(flits, dtype="<f4").view("<u8")


def flit_of(value: float) -> list[float]:
    return [value + place for place in range(VALUES)]


def totals(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """The flits that left, float32 ``[flits, values]``."""
    left = outputs["total"][outputs["total_valid"] != 0]
    return np.ascontiguousarray(left.astype("<u8")).view("<f4").reshape(-1, VALUES)


def test_own_sums_are_added_to_those_before_and_a_round_without_part_adds_zeros() -> None:
    stage = Simulation(GroupAdder(SIZES, in_flight=4, adds=True), "pysim")
    stage.run({"start": 1, "count": 1, "adds": 1}, 1)
    stage.run({"adds": 1, "round_valid": 1, "round_gap": 2, "round_flits": 1}, 1)
    stage.run({"adds": 1, "valid": 1, "flit": words([flit_of(100.0)])}, 1)
    before = [flit_of(float(number)) for number in range(4)]
    taken, found = 0, []
    for _ in range(12):  # two flits of another group's round, the stage's own, and one after its last
        offered = {"before_valid": 1, "before": words([before[taken]])} if taken < 4 else {"before_ended": 1}
        outputs = stage.run({"adds": 1, "total_ready": 1, **offered}, 1)
        taken += int(outputs["takes"][0])
        found.append(totals(outputs))
    zeros, own = np.zeros(VALUES, np.float32), np.array(flit_of(100.0), np.float32)
    expected = [
        add_flushed(np.array(flit, np.float32), own if number == 2 else zeros) for number, flit in enumerate(before)
    ]
    assert np.array_equal(np.concatenate(found), np.array(expected))
    assert stage.run({"adds": 1, "before_ended": 1}, 1)["ended"][0] == 1


def test_without_groups_flits_pass_and_back_pressure_comes_before_the_buffer_is_full() -> None:
    adder = GroupAdder(SIZES, in_flight=4, adds=False)
    stage = Simulation(adder, "pysim")
    flits = [flit_of(10.0 * number) for number in range(adder.room)]
    outputs = stage.run({"is_first": 1, "valid": 1, "flit": words(flits)})
    assert int(np.argmax(outputs["hold"])) <= adder.room - adder.in_flight + 1
    assert not outputs["overflows"].any()
    drained = totals(stage.run({"is_first": 1, "total_ready": 1}, adder.room + 1))
    assert np.array_equal(drained, np.array(flits, dtype=np.float32))
    assert stage.run({"is_first": 1}, 1)["is_empty"][0] == 1
