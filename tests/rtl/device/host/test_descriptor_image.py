"""A product from its descriptor to its result on a device that walks, in Amaranth's simulator."""

from dataclasses import replace

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.device.host.descriptor_image import lay_out_indexed
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.walking import WalkerOption
from tests.rtl.design.index.indexed_products import random_indexed
from tests.rtl.device.programs import SIZES

AXI = AxiSpec(data_bits=64, address_bits=20)
WALKER = WalkerOption(index_words=256, blocks=32, column_tiles=8, depths=6)


@pytest.fixture(scope="module")
def device() -> DeviceSimulation:
    return DeviceSimulation.of(SIZES, AXI, 1 << 14, 5, "pysim", WALKER)


def test_a_product_runs_from_its_descriptor_to_the_bits_of_the_reference(device: DeviceSimulation) -> None:
    for seed, policy in ((1, "stored"), (3, "longest-first")):
        indexed = random_indexed(seed, SIZES, 2, policy)
        run = device.run_indexed(indexed, most_cycles=20_000)
        assert run.is_equal
        assert run.commands > 2 * SIZES.command_depth
        assert run.written_bytes > 0


def test_a_descriptor_that_the_controller_cannot_run_stops_the_device(device: DeviceSimulation) -> None:
    indexed = random_indexed(1, SIZES, 2)
    wrong = replace(indexed, index=replace(indexed.index, descriptor=replace(indexed.index.descriptor, split_k=True)))
    with pytest.raises(RtlError, match="a command could not be read"):
        device.run_indexed(wrong, most_cycles=2_000)


def test_the_host_writes_three_registers_whatever_the_product() -> None:
    images = [lay_out_indexed(random_indexed(seed, SIZES, 2), AXI) for seed in range(3)]
    assert [len(image.registers) for image in images] == [3, 3, 3]
    with pytest.raises(RtlError, match="is not a multiple of 4096"):
        lay_out_indexed(random_indexed(0, SIZES, 2), AXI, base=64)
