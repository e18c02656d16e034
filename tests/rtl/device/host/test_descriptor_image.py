"""A product from its descriptor to its result on a device of two masters whose walker has two controllers for it."""

from dataclasses import replace

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.index.indexed_program import index_program
from acf.rtl.device.host.descriptor_image import lay_out_indexed
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.walking import WalkerOption
from tests.rtl.design.index.indexed_products import random_indexed, random_split
from tests.rtl.device.programs import ONE_SCU, SIZES

AXI = AxiSpec(data_bits=64, address_bits=20)
TWO_MASTERS = replace(AXI, masters=2)
WALKER = WalkerOption(index_words=128, blocks=16, column_tiles=4, depths=4, sharing=2)


@pytest.fixture(scope="module")
def device() -> DeviceSimulation:
    return DeviceSimulation.of(SIZES, TWO_MASTERS, 1 << 12, 2, "pysim", WALKER)


def test_a_product_runs_from_its_descriptor_to_the_bits_of_the_reference(device: DeviceSimulation) -> None:
    run = device.run_indexed(random_indexed(2, SIZES, 1), most_cycles=5_000)
    assert run.is_equal
    assert run.commands > SIZES.command_depth
    assert run.written_bytes > 0


def test_a_split_k_product_runs_from_its_descriptor_and_groups_of_columns_are_added(device: DeviceSimulation) -> None:
    product, mapping, operands = random_split(2, SIZES, 2, most=3)
    assert mapping.rounds > 1
    indexed = index_program(product, mapping, SIZES, operands)
    run = device.run_indexed(indexed, most_cycles=5_000)
    assert run.is_equal
    assert run.commands == sum(map(len, indexed.encoded.commands))


def test_a_product_with_tiles_in_csc_form_runs_from_its_descriptor() -> None:
    sizes = replace(ONE_SCU, shape=replace(ONE_SCU.shape, tile_format="csc"))
    device = DeviceSimulation.of(sizes, AXI, 1 << 12, 2, "pysim", replace(WALKER, sharing=1))
    indexed = random_indexed(6, sizes, 1)
    assert (indexed.index.words != random_indexed(6, ONE_SCU, 1).index.words).any()  # tiles have other sizes
    assert device.run_indexed(indexed, most_cycles=2_000).is_equal


def test_operands_beyond_the_reach_of_a_mesh_row_are_refused() -> None:
    sizes = replace(SIZES, memory_flits=256)
    product, mapping, operands = random_split(2, sizes, 1, most=3)
    with pytest.raises(RtlError, match="and a command reaches 256; build with more memory_flits"):
        lay_out_indexed(index_program(product, mapping, sizes, operands), AXI)


def test_a_descriptor_that_the_controller_cannot_run_stops_the_device(device: DeviceSimulation) -> None:
    indexed = random_indexed(2, SIZES, 1)
    wrong = replace(indexed, index=replace(indexed.index, descriptor=replace(indexed.index.descriptor, blocks=17)))
    with pytest.raises(RtlError, match="of a product that the device cannot walk"):
        device.run_indexed(wrong, most_cycles=1_000)


def test_every_channel_has_the_operands_and_the_results_of_its_own_rows() -> None:
    indexed, channel = random_indexed(2, SIZES, 1), 1 << 16
    image = lay_out_indexed(indexed, TWO_MASTERS, channel_bytes=channel)
    first, second = image.segments
    operands = sum(-(-16 * len(indexed.encoded.flits[line]) // 4096) for line in (0, -1)) * 4096
    assert second.base == channel
    assert first.content[-operands:] == second.content[-operands:]
    assert [address // channel for address, _ in image.streams] == [0, 0, 1, 1]
    for axi, more, message in (
        (TWO_MASTERS, {}, "channel_bytes None of 2 masters must be a multiple of 4096"),
        (TWO_MASTERS, {"channel_bytes": 8192}, "bytes in every channel of 8192"),
        (replace(AXI, address_bits=13), {}, "beyond the 13 bits of the bus"),
    ):
        with pytest.raises(RtlError, match=message):
            lay_out_indexed(indexed, axi, **more)


def test_the_host_writes_three_registers_whatever_the_product() -> None:
    images = [lay_out_indexed(random_indexed(seed, ONE_SCU, 1), AXI) for seed in range(3)]
    assert [len(image.registers) for image in images] == [3, 3, 3]
    with pytest.raises(RtlError, match="is not a multiple of 4096"):
        lay_out_indexed(random_indexed(0, ONE_SCU, 1), AXI, base=64)
