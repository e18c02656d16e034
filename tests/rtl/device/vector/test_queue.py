"""The vector queue in a device: passes from memory to memory, their order, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.vector.model import VectorInputs, run_pass
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.registers import ERRORS
from acf.rtl.device.vector.connect import check_vector
from acf.rtl.device.vector.descriptor import VectorDescriptor
from tests.rtl.device.programs import ONE_SCU, SIZES

AXI = AxiSpec(data_bits=64, address_bits=20, burst_beats=8, outstanding_reads=4, outstanding_writes=2)
LANES, FLIT = 8, 16
LIST_PAGE = 15
NO_MASK = np.zeros((1, LANES), dtype=bool)
NO_CONSTANTS = np.zeros((5, LANES), dtype=np.float32)


@pytest.fixture(scope="module")
def device() -> DeviceSimulation:
    return DeviceSimulation.of(ONE_SCU, AXI, 1 << 13, 5, "pysim", vector=True)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def narrow(values: np.ndarray) -> bytes:
    return bf16_bits(values).astype("<u2").tobytes()


def run_list(device: DeviceSimulation, descriptors: list[VectorDescriptor], most_cycles: int = 2000) -> int:
    """Run a list; the bits of the register ``error``."""
    device.load(LIST_PAGE * 4096, b"".join(each.content() for each in descriptors))
    device.write_register("vector_page", LIST_PAGE)
    device.write_register("vector_count", len(descriptors))
    for _ in range(most_cycles // 50):
        device.run_for(50)
        if not device.read_register("status") & 8:
            return device.read_register("error")
    raise AssertionError(f"still busy after {most_cycles} cycles")


def test_runs_with_gaps_are_read_added_and_written(device: DeviceSimulation) -> None:
    device.simulation.restart()
    x, y = normal(0, 2, 9, LANES), normal(1, 2, 9, LANES)
    for run in range(2):  # x has 2 flits between runs, y none, results 5
        device.load(FLIT * (100 + 11 * run), narrow(x[run]))
    device.load(FLIT * 240, narrow(y))
    descriptor = VectorDescriptor(
        ("add", "forward", 0), vectors=9, runs=2, x=100, y=240, output_0=300, x_skip=2, output_skip=5
    )
    assert run_list(device, [descriptor]) == 0
    inputs = VectorInputs(*(bf16_values(bf16_bits(each)).reshape(-1, LANES) for each in (x, y)), NO_MASK, NO_CONSTANTS)
    expected = run_pass(descriptor.program, inputs, 18).out.view(np.float32).reshape(2, 9, LANES)
    for run in range(2):
        assert device.peek(FLIT * (300 + 14 * run), FLIT * 9) == narrow(expected[run])
    assert device.peek(FLIT * 309, FLIT * 5) == bytes(FLIT * 5)
    assert device.read_register("vectors_done") == 1
    assert device.read_register("vector_cycles") == 18


def test_the_mask_of_a_relu_is_where_its_output_was_positive(device: DeviceSimulation) -> None:
    device.simulation.restart()
    gradient, output = normal(8, 4, LANES), np.maximum(normal(9, 4, LANES), 0)
    output[0, :3] = np.nan, np.inf, -0.0
    device.load(0, narrow(gradient))
    device.load(FLIT * 100, narrow(output))
    assert run_list(device, [VectorDescriptor(("relu", "backward", 0), vectors=4, y=100, output_0=200)]) == 0
    assert device.peek(FLIT * 200, FLIT * 4) == narrow(np.where(output > 0, gradient, 0))


def test_a_descriptor_waits_for_the_products_that_it_names(device: DeviceSimulation) -> None:
    device.simulation.restart()
    with pytest.raises(AssertionError, match="still busy"):
        run_list(device, [VectorDescriptor(("relu", "forward", 0), vectors=1, after_products=1)], 150)
    assert device.read_register("vectors_done") == 0


def test_a_list_that_cannot_run_sets_its_bit(device: DeviceSimulation) -> None:
    device.simulation.restart()
    failed = 1 << list(ERRORS).index("vector_failed")
    device.load(LIST_PAGE * 4096, bytes([255]) + bytes(63))
    device.write_register("vector_page", LIST_PAGE)
    device.write_register("vector_count", 1)
    device.run_for(100)
    assert device.read_register("error") == failed
    assert device.read_register("status") & 8 == 0
    assert run_list(device, [VectorDescriptor(("relu", "forward", 0), vectors=1)]) == 0


def test_descriptors_and_devices_that_cannot_be_are_refused() -> None:
    relu = VectorDescriptor(("relu", "forward", 0), vectors=1)
    for change, message in (
        ({"vectors": 0}, "0 vectors does nothing"),
        ({"x": 1 << 32}, "x 4294967296 does not fit in 32 bits"),
        ({"vectors": 65535, "runs": 65535}, "more than the unit counts"),
        ({"stores_sums": True}, "relu forward 0 writes results, so its sums cannot be stored"),
        ({"program": ("gelu", "forward", 0)}, "pass gelu forward 0 is not one of"),
    ):
        with pytest.raises(RtlError, match=message):
            replace(relu, **change)
    with pytest.raises(RtlError, match="through one master, not 2"):
        check_vector(SIZES, replace(AXI, masters=2))
    with pytest.raises(RtlError, match="link_bytes 32 is not the 16 bytes of a row"):
        check_vector(replace(SIZES, shape=replace(SIZES.shape, link_bytes=32)), AXI)
    with pytest.raises(RtlError, match="interleave the values of their rows"):
        check_vector(replace(SIZES, shape=replace(SIZES.shape, scus_per_cluster=2)), AXI)
