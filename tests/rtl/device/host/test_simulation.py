"""The device with memory at its master, in Amaranth's simulator: a program goes from memory to memory."""

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.device.host.simulation import DeviceSimulation, memory_beats
from acf.rtl.verify.lockstep.products import Product, random_product
from tests.rtl.device.programs import ONE_SCU

AXI = AxiSpec(data_bits=64, address_bits=20)


@pytest.fixture(scope="module")
def product() -> Product:
    return random_product(16, tile=8, most=2)


@pytest.fixture(scope="module")
def device(product: Product) -> DeviceSimulation:
    return DeviceSimulation.of(ONE_SCU, AXI, memory_beats(ONE_SCU, AXI, product), 5, "pysim")


def test_a_program_longer_than_the_command_memory_gives_the_bits_of_the_reference(
    product: Product, device: DeviceSimulation
) -> None:
    run = device.run(product)
    assert run.is_equal
    assert run.commands > 2 * ONE_SCU.command_depth
    assert run.read_bytes >= run.commands * AXI.beat_bytes
    assert run.written_bytes == 4 * 8 * 8 * 2


def test_a_device_that_is_not_done_in_time_is_told_of(product: Product, device: DeviceSimulation) -> None:
    with pytest.raises(RtlError, match="the device is not done after 100 cycles; give it more"):
        device.run(product, most_cycles=100)
