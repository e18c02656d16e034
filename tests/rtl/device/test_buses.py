"""The generated Verilog at its buses, driven by cocotb: see bus_bench.py for what is tested."""

import re
from pathlib import Path

import pytest

pytest.importorskip("cocotb", reason="install it with: pip install 'acf[rtl-test]'")
pytest.importorskip("cocotbext.axi", reason="install it with: pip install 'acf[rtl-test]'")

from acf.rtl.fabric.device import Device
from acf.rtl.flow.cocotb import CocotbUnavailableError, build, check_verilator, run
from acf.rtl.flow.verilog import emit_verilog
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


def test_a_verilator_that_is_too_old_for_cocotb_is_named() -> None:
    with pytest.raises(CocotbUnavailableError, match=r"cocotb needs Verilator 5\.036, and this is 5\.006; install"):
        check_verilator("Verilator 5.006 2023-01-22 rev (Debian 5.006-3)")
    check_verilator("Verilator 5.040 2025-08-30 rev v5.040")
