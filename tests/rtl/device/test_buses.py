"""The generated Verilog at its buses, driven by cocotb: see bus_bench.py for what is tested."""

from pathlib import Path

import pytest

pytest.importorskip("cocotb", reason="install it with: pip install 'acf[rtl-test]'")
pytest.importorskip("cocotbext.axi", reason="install it with: pip install 'acf[rtl-test]'")

from tests.rtl.device.programs import AXI, SIZES

from acf.rtl.fabric.device import Device
from acf.rtl.flow.cocotb import build, run
from acf.rtl.flow.verilog import emit_verilog


def test_the_device_keeps_the_rules_of_its_buses_and_gives_the_bits_of_the_reference(
    verilator: None, tmp_path: Path
) -> None:
    program = build(emit_verilog(Device(SIZES, AXI), "acf_fabric"), "acf_fabric")
    run(program, "acf_fabric", "tests.rtl.device.bus_bench", tmp_path)
