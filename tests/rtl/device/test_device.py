"""The device with memory at its master, in Amaranth's simulator: a program goes from memory to memory."""

import json

import pytest
from typer.testing import CliRunner

from acf.cli import app
from acf.errors import RtlError
from acf.rtl.axi.spec import AxiSpec
from acf.rtl.host.simulation import DeviceSimulation, memory_beats
from acf.rtl.lockstep.run import Product, random_product
from tests.rtl.device.programs import ONE_UNIT

AXI = AxiSpec(data_bits=64, address_bits=20)


@pytest.fixture(scope="module")
def product() -> Product:
    return random_product(16, tile=8, most=2)


@pytest.fixture(scope="module")
def device(product: Product) -> DeviceSimulation:
    return DeviceSimulation.of(ONE_UNIT, AXI, memory_beats(ONE_UNIT, AXI, product), 5, "pysim")


def test_a_program_longer_than_the_command_memory_gives_the_bits_of_the_reference(
    product: Product, device: DeviceSimulation
) -> None:
    run = device.run(product)
    assert run.is_equal
    assert run.commands > 2 * ONE_UNIT.command_depth
    assert run.read_bytes >= run.commands * AXI.beat_bytes
    assert run.written_bytes == 4 * 8 * 8 * 2


def test_a_device_that_is_not_done_in_time_is_told_of(product: Product, device: DeviceSimulation) -> None:
    with pytest.raises(RtlError, match="the device is not done after 100 cycles; give it more"):
        device.run(product, most_cycles=100)


def test_the_command_tells_what_moved_and_that_the_output_is_right() -> None:
    size = ["--tokens", "4", "--inputs", "8", "--outputs", "8", "--sparsity", "0"]
    result = CliRunner().invoke(app, ["rtl", "device", *size, "--latency", "3", "--backend", "pysim", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["is_equal"] is True
    assert facts["written_bytes"] == 4 * 8 * 8 * 2  # four serial pieces of a row each, and so four pieces of results
    assert facts["programs"] == 1
