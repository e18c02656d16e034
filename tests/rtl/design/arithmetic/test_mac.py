"""The MAC unit: what it sums, when the sum is there, and what zeros do."""

import numpy as np

from acf.rtl.design.arithmetic.mac import MacModel, MacUnit, dot_bf16
from acf.rtl.design.arithmetic.model import bf16_bits

INFINITY = 0x7F80


def stream(pairs: list[tuple[int, int]]) -> dict[str, list[int]]:
    """Inputs of one sum, and two idle cycles in which it comes out."""
    idle, ends = [0, 0], range(len(pairs))
    return {
        "a": [a for a, _ in pairs] + idle,
        "b": [b for _, b in pairs] + idle,
        "valid": [1] * len(pairs) + idle,
        "first": [int(place == 0) for place in ends] + idle,
        "last": [int(place == len(pairs) - 1) for place in ends] + idle,
    }


def test_the_unit_equals_its_model_in_every_cycle(simulate) -> None:
    simulation, generator = simulate(MacUnit()), np.random.default_rng(1)
    cycles = 2_000 if simulation.backend == "verilator" else 150
    a, b = generator.integers(0, 1 << 16, (2, cycles)) * (generator.random((2, cycles)) < 0.7)
    valid, first, last = (generator.random((3, cycles)).T < (0.9, 0.1, 0.1)).T
    outputs = simulation.run({"a": a, "b": b, "valid": valid, "first": first, "last": last})
    model = MacModel()
    for cycle in range(cycles):
        now = slice(cycle, cycle + 1)
        for name, value in model.step(a[now], b[now], valid[now], first[now], last[now]).items():
            assert outputs[name][cycle] == value[0], f"{name} in cycle {cycle}"


def test_a_sum_is_complete_two_cycles_after_its_last_pair(simulate) -> None:
    numbers = np.random.default_rng(2).standard_normal((2, 12))
    a, b = bf16_bits(numbers[0]), bf16_bits(numbers[1])
    outputs = simulate(MacUnit()).run(stream(list(zip(a.tolist(), b.tolist(), strict=True))))
    assert outputs["sum_valid"].nonzero()[0].tolist() == [13]
    assert outputs["sum"][13] == dot_bf16(a, b)


def test_zero_times_infinity_adds_nothing(simulate) -> None:
    two = int(bf16_bits(2.0))
    outputs = simulate(MacUnit()).run(stream([(two, two), (0, INFINITY), (INFINITY, 0x0001), (two, two)]))
    assert outputs["effectual"].tolist() == [1, 0, 0, 1, 0, 0]
    assert np.uint32(outputs["sum"][-1]).view(np.float32) == 8.0


def test_a_sum_of_zeros_alone_begins_anew_at_zero(simulate) -> None:
    one = int(bf16_bits(1.0))
    simulation = simulate(MacUnit())
    simulation.run(stream([(one, one)]))
    outputs = simulation.run(stream([(0, one)]))
    assert outputs["sum"][-1] == 0
    assert outputs["sum_valid"][-1] == 1
