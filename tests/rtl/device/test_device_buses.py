"""The generated Verilog at its buses, driven by cocotb: see bus_bench.py for what is tested."""

import re
from pathlib import Path

import pytest

pytest.importorskip("cocotb", reason="install it with: pip install 'adaptive-compute-fabric[rtl-test]'")
pytest.importorskip("cocotbext.axi", reason="install it with: pip install 'adaptive-compute-fabric[rtl-test]'")

from acf.rtl.device.device import Device
from acf.rtl.tools.cocotb import CocotbUnavailableError, build, run
from acf.rtl.tools.verilog import emit_verilog
from tests.rtl.device.programs import AXI, SIZES


def test_the_device_keeps_the_rules_of_its_buses_and_gives_the_bits_of_the_reference(
    verilator: None, tmp_path: Path
) -> None:
    try:
        program = build(emit_verilog(Device(SIZES, AXI), "acf_fabric"), "acf_fabric")
    except CocotbUnavailableError as error:
        pytest.skip(str(error))
    names = run(program, "acf_fabric", "tests.rtl.device.bus_bench", tmp_path)
    written = Path(__file__).with_name("bus_bench.py").read_text(encoding="utf-8")
    assert names == re.findall(r"@cocotb\.test\(\)\nasync def (\w+)", written)
    assert names
