"""The fabric in gates gives the bits of the simulated fabric, walking the index of the same program."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acf import runtime
from acf.lowering.split_k import SplitKMapping
from acf.runtime.numbers import to_bf16_bits
from tests.rtl.device.programs import ONE_SCU
from tests.runtime.products import mapped_program, random_operands, run

FABRIC: Any = replace(ONE_SCU.shape, dram_latency_s=8e-9)  # type: ignore[call-arg]  # short, as pysim is slow
SPEC = runtime.RtlSpec(
    fabric=FABRIC,
    memory_bytes=1 << 15,
    index_words=128,
    blocks=16,
    column_tiles=4,
    depths=4,
    simulator="pysim",
)
WEIGHT = runtime.WeightBlocks.from_mask([[True, False], [True, True]], (8, 8))


@pytest.fixture(scope="module")
def device() -> runtime.Device:
    return runtime.Device("rtl", SPEC)


@pytest.fixture(scope="module")
def simulated() -> runtime.Device:
    return runtime.Device("sim", FABRIC, walked=True)


def test_a_product_has_the_bits_and_about_the_cycles_of_the_simulated_one(
    device: runtime.Device, simulated: runtime.Device
) -> None:
    program = simulated.compile(runtime.Product(phase="input_grad", rows=2, weight=WEIGHT))
    assert program.fabric_products[0].descriptor.direct  # stored by k_tile, as weights are for this pass
    operands = random_operands(program)
    found, expected = run(device, program, operands), run(simulated, program, operands)
    np.testing.assert_array_equal(to_bf16_bits(found), to_bf16_bits(expected))
    np.testing.assert_array_equal(found, expected)
    gates, model = (
        next(span.cost for span in each.timeline.spans if span.engine == "compute") for each in (device, simulated)
    )
    assert gates.cycles > 0
    assert gates.seconds == gates.cycles / device.properties.clock_hz
    assert gates.dram_bytes > 0
    assert model.effectual_macs > 0


def test_an_operand_without_a_non_zero_gives_zeros(device: runtime.Device) -> None:
    program = device.compile(runtime.Product(phase="forward", rows=3, weight=WEIGHT))
    x, blocks = random_operands(program)
    assert not run(device, program, [np.zeros_like(x), blocks]).any()


def test_a_split_k_program_runs_in_gates(device: runtime.Device) -> None:
    product = runtime.Product(phase="weight_grad", rows=10, weight=WEIGHT)
    program = mapped_program(product, FABRIC, lambda tiled: SplitKMapping.balanced(tiled, FABRIC, 1))
    assert program.fabric_products[0].descriptor.split_k
    operands = random_operands(program)
    expected = runtime.Device("sim", FABRIC, walked=True)
    np.testing.assert_array_equal(run(device, program, operands), run(expected, program, operands))


def test_programs_beyond_the_limits_of_the_gates_are_refused_before_they_run(device: runtime.Device) -> None:
    large = device.compile(runtime.Product(phase="forward", rows=200, weight=WEIGHT))
    buffers = [device.malloc(argument.nbytes) for argument in large.arguments]
    with pytest.raises(runtime.NotSupportedError, match=r"has index_words \d+, and this device is built for 128"):
        runtime.launch(large, buffers)


def test_a_machine_that_is_no_fabric_has_no_gates() -> None:
    with pytest.raises(runtime.InvalidDeviceError, match="tensordash is no fabric"):
        runtime.Device("rtl", "tensordash")
    with pytest.raises(runtime.InvalidValueError, match="simulator 'icarus' is not one of auto, verilator, pysim"):
        runtime.RtlSpec(simulator="icarus")
