"""A product from its descriptor to its result on a device that walks, in Amaranth's simulator."""

from dataclasses import replace

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.device.host.descriptor_image import lay_out_indexed
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.walking import WalkerOption
from tests.rtl.design.index.indexed_products import random_indexed
from tests.rtl.device.programs import ONE_SCU

AXI = AxiSpec(data_bits=64, address_bits=20)
WALKER = WalkerOption(index_words=128, blocks=16, column_tiles=4, depths=4)


@pytest.fixture(scope="module")
def device() -> DeviceSimulation:
    return DeviceSimulation.of(ONE_SCU, AXI, 1 << 12, 2, "pysim", WALKER)


def test_a_product_runs_from_its_descriptor_to_the_bits_of_the_reference(device: DeviceSimulation) -> None:
    run = device.run_indexed(random_indexed(2, ONE_SCU, 1), most_cycles=5_000)
    assert run.is_equal
    assert run.commands > 2 * ONE_SCU.command_depth
    assert run.written_bytes > 0


def test_a_descriptor_that_the_controller_cannot_run_stops_the_device(device: DeviceSimulation) -> None:
    indexed = random_indexed(2, ONE_SCU, 1)
    wrong = replace(indexed, index=replace(indexed.index, descriptor=replace(indexed.index.descriptor, split_k=True)))
    with pytest.raises(RtlError, match="a command could not be read"):
        device.run_indexed(wrong, most_cycles=1_000)


def test_the_host_writes_three_registers_whatever_the_product() -> None:
    images = [lay_out_indexed(random_indexed(seed, ONE_SCU, 1), AXI) for seed in range(3)]
    assert [len(image.registers) for image in images] == [3, 3, 3]
    with pytest.raises(RtlError, match="is not a multiple of 4096"):
        lay_out_indexed(random_indexed(0, ONE_SCU, 1), AXI, base=64)
