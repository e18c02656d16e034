"""What the host lays out in memory, and what it refuses."""

from dataclasses import replace

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.device.fetcher import Slots
from acf.rtl.device.host.image import LineWords, lay_out, lay_out_lines
from acf.rtl.device.registers import REGISTERS
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.workloads import Layer
from tests.rtl.device.programs import AXI, SIZES, some_product


def test_commands_flits_and_results_begin_at_pages_and_do_not_overlap() -> None:
    product = some_product(reduces=False)
    image = lay_out(product.encoded, AXI, base=2 * PAGE_BYTES)
    written = [value for offset, value in image.registers if offset == REGISTERS["data_page"][0]]
    first = product.encoded.flits[1][0]
    (segment,) = image.segments
    at = written[1] * PAGE_BYTES - segment.base
    assert int.from_bytes(segment.content[at : at + SIZES.shape.link_bytes], "little") == first
    ends = [segment.results, *(address + flits * SIZES.shape.link_bytes for address, flits in image.streams)]
    assert all(end <= address for end, (address, _) in zip(ends, image.streams, strict=False))
    assert ends[-1] <= segment.end
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
        lay_out_lines(LineWords(commands, [[]] * 4, [[1]] * 4, {}), SIZES, AXI)


def test_every_master_has_the_lines_and_the_results_of_its_own_channel() -> None:
    product = some_product(reduces=False)
    channel = 1 << 16
    image = lay_out(product.encoded, replace(AXI, masters=2), channel_bytes=channel)
    pages = [value for offset, value in image.registers if offset == REGISTERS["data_page"][0]]
    lines = [value for offset, value in image.registers if offset == REGISTERS["line"][0]]
    assert lines == [0, 2, 1, 3]
    assert [page * PAGE_BYTES // channel for page in pages] == [0, 0, 1, 1]
    assert [address // channel for address, _ in image.streams] == [0, 0, 1, 1]


def test_a_program_larger_than_its_channel_is_refused() -> None:
    product = some_product(reduces=False)
    with pytest.raises(RtlError, match=r"master 0 has \d+ bytes of this program, more than its channel's 4096; give"):
        lay_out(product.encoded, replace(AXI, masters=2), channel_bytes=4096)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_bits": 96}, "an AXI4 bus of 96 bits does not exist; use 32, 64"),
        ({"address_bits": 64}, "address_bits 64 must be from 13 to 44"),
        ({"data_bits": 1024, "burst_beats": 64}, "burst_beats 64 must be a power of two up to 256 within 4096 bytes"),
        ({"outstanding_reads": 0}, "at least one burst must be allowed under way"),
        ({"masters": 0}, "masters 0 leave no way to memory; give 1 or more"),
    ],
)
def test_a_bus_that_cannot_be_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(RtlError, match=message):
        AxiSpec(**change)


def test_a_bus_wider_than_a_flit_is_refused() -> None:
    with pytest.raises(RtlError, match="a bus of 256 bits is wider than the 128 bits of a flit"):
        Slots(SIZES, AxiSpec(data_bits=256))


def test_masters_that_do_not_divide_the_mesh_are_refused() -> None:
    with pytest.raises(RtlError, match="masters 3 must divide the 2 mesh rows and the 2 mesh columns"):
        Slots(SIZES, replace(AXI, masters=3))
