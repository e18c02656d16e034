"""The page about the design shows it as it is."""

from pathlib import Path

import acf.sim
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.describe import describe
from acf.rtl.device.device import device_sizes
from tests.rtl.device.programs import TWO_SCUS


def test_the_page_shows_modules_fields_and_registers_as_they_are() -> None:
    text = describe(FabricSizes(TWO_SCUS, 16, 64))
    assert "fabric -->|2| cluster" in text
    assert "| last_of_round |" in text
    assert "| 0x004 | control | read, write |" in text


def test_the_documented_fields_are_those_of_the_design() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "rtl-fabric.md").read_text(encoding="utf-8")
    sizes = device_sizes(acf.sim.spec("acf-512"))
    for layout in (sizes.header, sizes.command(8, serial=True), sizes.command(8, serial=False)):
        for name, field in layout:
            top = field.offset + field.width - 1
            bits = str(field.offset) if field.width == 1 else f"{top}:{field.offset}"
            assert f"| {name} | {bits} |" in page
