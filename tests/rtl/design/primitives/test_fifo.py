"""Bounded FIFOs against their model, and credits."""

import numpy as np
import pytest

from acf.rtl.design.primitives.fifo import BoundedFifo, CreditCounter, FifoModel


def test_the_queue_equals_its_model_in_every_cycle(simulate) -> None:
    check_queue(simulate, depth=4)


@pytest.mark.parametrize("depth", [1, 3])
def test_queues_of_any_depth_equal_the_model(interpret, depth: int) -> None:
    check_queue(interpret, depth)


def check_queue(simulate, depth: int) -> None:
    generator, cycles = np.random.default_rng(depth), 120
    write, read = generator.random((2, cycles)) < 0.6
    data = generator.integers(0, 1 << 32, cycles)
    outputs = simulate(BoundedFifo(32, depth)).run({"write_valid": write, "write_data": data, "read_ready": read})
    model = FifoModel(depth)
    for cycle in range(cycles):
        expected = model.step(int(write[cycle]), int(data[cycle]), int(read[cycle]))
        assert {name: int(outputs[name][cycle]) for name in expected} == expected, f"cycle {cycle}"


def test_a_sender_without_credits_waits_for_one(interpret) -> None:
    outputs = interpret(CreditCounter(2)).run({"send": 1, "credit": [0, 0, 0, 1, 0, 0]})
    assert outputs["available"].tolist() == [1, 1, 0, 0, 1, 0]
