"""What the host lays out in memory, and what it refuses."""

from dataclasses import replace

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.device.fetcher import Slots
from acf.rtl.device.host.image import lay_out, lay_out_lines
from acf.rtl.device.registers import REGISTERS
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.workloads import Layer
from tests.rtl.device.programs import AXI, SIZES, some_product


def test_commands_flits_and_results_begin_at_pages_and_do_not_overlap() -> None:
    product = some_product(reduces=False)
    image = lay_out(product.encoded, AXI, base=2 * PAGE_BYTES)
    written = [value for offset, value in image.registers if offset == REGISTERS["data_page"][0]]
    first = product.encoded.flits[1][0]
    at = written[1] * PAGE_BYTES - image.base
    assert int.from_bytes(image.content[at : at + SIZES.shape.link_bytes], "little") == first
    assert image.base + len(image.content) == image.results
    assert image.result_stride >= max(image.streams) * SIZES.shape.link_bytes
    assert image.registers[-1][0] == REGISTERS["control"][0]


def test_a_base_within_a_page_is_refused() -> None:
    product = some_product(reduces=False)
    with pytest.raises(RtlError, match="base 0x1004 is not a multiple of 4096, where pages begin; give one that is"):
        lay_out(product.encoded, AXI, base=0x1004)


def test_a_program_beyond_the_addresses_of_the_bus_is_refused() -> None:
    product = some_product(reduces=False)
    with pytest.raises(RtlError, match=r"ends at byte 0x10\w+, beyond the 24 bits of the bus; give a lower base"):
        lay_out(product.encoded, AXI, base=(1 << 24) - PAGE_BYTES)


def test_more_flits_than_commands_can_address_are_refused() -> None:
    product = Product.of_layer(Layer(zeros=0.0, sparsity=0.0), SIZES.shape.tile)
    sizes = replace(SIZES, memory_flits=16)
    with pytest.raises(RtlError, match="more than the 16 flits that its commands can address; build with more"):
        product.encode(sizes)


def test_more_commands_than_the_device_counts_are_refused() -> None:
    commands = [range(1 << COUNT_BITS), [], [], []]
    with pytest.raises(RtlError, match="line 0 has 16777216 commands, and a device counts fewer than 16777216; cut"):
        lay_out_lines(commands, [[]] * 4, [1], {}, SIZES, AXI)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_bits": 96}, "an AXI4 bus of 96 bits does not exist; use 32, 64"),
        ({"address_bits": 64}, "address_bits 64 must be from 13 to 44"),
        ({"data_bits": 1024, "burst_beats": 64}, "burst_beats 64 must be a power of two up to 256 within 4096 bytes"),
        ({"outstanding_reads": 0}, "at least one burst must be allowed under way"),
    ],
)
def test_a_bus_that_cannot_be_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(RtlError, match=message):
        AxiSpec(**change)


def test_a_bus_wider_than_a_flit_is_refused() -> None:
    with pytest.raises(RtlError, match="a bus of 256 bits is wider than the 128 bits of a flit"):
        Slots(SIZES, AxiSpec(data_bits=256))
