"""The fabric as a design: what can be built, what its Verilog is like, what the page shows."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import acf.sim
from acf.cli import app
from acf.errors import RtlError
from acf.rtl.fabric.describe import describe
from acf.rtl.fabric.device import DEVICE_FLITS, Device
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.flow.lint import lint
from acf.rtl.flow.verilator import VerilatorUnavailableError, find_verilator
from acf.rtl.flow.verilog import emit_verilog

SMALL = acf.sim.spec(
    "acf-512",
    mesh_rows=2,
    mesh_columns=2,
    scus_per_cluster=2,
    tile=8,
    link_bytes=16,
    queue_packets=2,
    parallel_slots=4,
    accumulator_tiles=2,
    prefetch_packets=2,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"skip": "gate"}, "skip 'gate' is the simulator's alone"),
        ({"lanes": 2}, "with skip 'both' the 2 lanes"),
        ({"interconnect": "crossbar"}, "a crossbar has ideal links"),
        ({"scus_per_cluster": 3}, "scus_per_cluster 3 must divide the tile 8"),
        ({"link_bytes": 8}, "link_bytes 8 must be a power of two from a row of values, 16, to a piece, 128"),
        ({"sum_adders": 3}, "sum_adders 3 must be a power of two"),
        ({"sram_cycles": 2}, "sram_cycles 2 must be at least 3"),
        ({"hop_cycles": 3}, "with hop_cycles 3 results of two clusters meet"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(RtlError, match=message):
        FabricSizes(replace(SMALL, **change))


def test_the_shape_of_acf_512_can_be_built() -> None:
    assert FabricSizes(acf.sim.spec("acf-512")).ports == 1


def test_the_verilog_is_the_same_every_time_and_without_warnings() -> None:
    texts = [emit_verilog(Device(FabricSizes(SMALL, 16, 64)), "acf_fabric") for _ in range(2)]
    assert texts[0] == texts[1]
    try:
        verilator = find_verilator()
    except VerilatorUnavailableError as error:
        pytest.skip(str(error))
    assert lint(texts[0], verilator) == []


def test_the_page_shows_modules_fields_and_registers_as_they_are() -> None:
    text = describe(FabricSizes(SMALL, 16, 64))
    assert "fabric -->|2| cluster" in text
    assert "| last_of_round |" in text
    assert "| 0x004 | control | read, write |" in text


def test_the_documented_fields_are_those_of_the_design() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "rtl-fabric.md").read_text(encoding="utf-8")
    sizes = FabricSizes(acf.sim.spec("acf-512"), memory_flits=DEVICE_FLITS)
    for layout in (sizes.header, sizes.command(8, serial=True), sizes.command(8, serial=False)):
        for name, field in layout:
            top = field.offset + field.width - 1
            bits = str(field.offset) if field.width == 1 else f"{top}:{field.offset}"
            assert f"| {name} | {bits} |" in page


def test_emit_needs_a_unit_or_a_configuration() -> None:
    result = CliRunner().invoke(app, ["rtl", "emit"])
    assert result.exit_code != 0
    assert isinstance(result.exception, RtlError)
