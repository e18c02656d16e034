"""The Verilog of a device."""

from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.device import Device
from acf.rtl.tools.lint import lint
from acf.rtl.tools.verilator import find_verilator
from acf.rtl.tools.verilog import emit_verilog
from tests.rtl.device.programs import TWO_SCUS


def test_the_verilog_is_the_same_every_time_and_without_warnings(verilator: None) -> None:
    texts = [emit_verilog(Device(FabricSizes(TWO_SCUS, 16, 64)), "acf_fabric") for _ in range(2)]
    assert texts[0] == texts[1]
    assert lint(texts[0], find_verilator()) == []
