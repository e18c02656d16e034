"""Products that are started one behind another on a device with two index controllers."""

from dataclasses import replace
from math import ceil

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.index.indexed_program import IndexedProgram, index_program
from acf.rtl.device.host.descriptor_image import lay_out_indexed
from acf.rtl.device.host.layer_runs import REQUEST_CYCLES
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.registers import REGISTERS
from acf.rtl.device.walking import WalkerOption
from acf.sim.fabric.index_traffic import index_traffic
from tests.rtl.design.index.indexed_products import random_indexed, random_mapped
from tests.rtl.device.programs import ONE_SCU

AXI = AxiSpec(data_bits=64, address_bits=20)
WALKER = WalkerOption(index_words=128, blocks=16, column_tiles=4, depths=4, controllers=2)
LATENCY = 20
TOLERANCE = 2 * REQUEST_CYCLES + 4
"""The model leaves out the way of two requests to memory and back, and the 9 cycles in which the second pass of a round
comes to its first block; the gates hide them too. It also leaves out the 5 cycles of reset, counts and start that the
device takes between two products."""


@pytest.fixture(scope="module")
def device() -> DeviceSimulation:
    return DeviceSimulation.of(ONE_SCU, AXI, 1 << 14, LATENCY, "pysim", WALKER)


def lead_cycles(seed: int) -> tuple[IndexedProgram, int]:
    """A product, and the simulator's cycles before its first command, with the whole index read from memory."""
    product, mapping, operands = random_mapped(seed, ONE_SCU, 1, most=2)
    indexed = index_program(product, mapping, ONE_SCU, operands)
    traffic = index_traffic(mapping, product, ONE_SCU.shape)
    transfer = ceil((indexed.index.host_bytes + indexed.index.index_bytes) / AXI.beat_bytes)
    return indexed, 2 * LATENCY + transfer + traffic.set_up_cycles


def test_the_set_up_of_the_next_product_is_hidden_as_the_model_predicts(device: DeviceSimulation) -> None:
    first, _ = lead_cycles(2)
    second, lead = lead_cycles(3)
    alone = [device.run_queued([each]) for each in (first, second)]
    together = device.run_queued([first, second])
    assert [run.are_equal for run in (*alone, together)] == [[True], [True], [True, True]]
    hidden = sum(run.busy_cycles for run in alone) - together.busy_cycles
    assert abs(hidden - lead) <= TOLERANCE


def test_a_product_that_no_walker_can_take_is_told_and_changes_nothing(device: DeviceSimulation) -> None:
    indexed = random_indexed(2, ONE_SCU, 1)
    image = lay_out_indexed(indexed, AXI)
    start = image.registers[-1]
    too_many = replace(image, registers=[*image.registers, start, start])
    device.simulation.restart()
    with pytest.raises(RtlError, match="while no walker was free: it was not taken"):
        device.run_image(too_many, indexed.encoded, 2_000)


def test_a_refused_product_takes_the_one_behind_it_along_and_the_device_runs_on(device: DeviceSimulation) -> None:
    good = random_indexed(2, ONE_SCU, 1)
    descriptor = replace(good.index.descriptor, blocks=17)
    bad = replace(good, index=replace(good.index, descriptor=descriptor))
    with pytest.raises(RtlError, match="of a product that the device cannot walk"):
        device.run_queued([bad, good], 2_000)
    assert device._read(REGISTERS["status"][0]) & 0b1011 == 0
    run = device.run_image(lay_out_indexed(good, AXI), good.encoded, 2_000)
    assert run.is_equal


def test_a_product_that_waits_for_vector_work_is_refused_where_there_is_no_vector_unit(
    device: DeviceSimulation,
) -> None:
    good = random_indexed(2, ONE_SCU, 1)
    descriptor = replace(good.index.descriptor, after_vectors=1)
    with pytest.raises(RtlError, match="of a product that the device cannot walk"):
        device.run_indexed(replace(good, index=replace(good.index, descriptor=descriptor)), 2_000)


def test_an_option_holds_every_product_that_it_is_made_for() -> None:
    descriptors = [random_indexed(seed, ONE_SCU, 1).index.descriptor for seed in range(4)]
    option = WalkerOption.holding(descriptors)
    assert option.index_words >= max(each.index_words for each in descriptors) + 24
    for name, most in (("blocks", option.blocks), ("column_tiles", option.column_tiles), ("k_tiles", option.depths)):
        assert most // 2 < max(4, *(getattr(each, name) for each in descriptors)) <= most


def test_a_device_has_one_controller_or_two() -> None:
    with pytest.raises(RtlError, match="controllers 3 of a device must be 1, or 2"):
        WalkerOption(controllers=3)
