"""One module mapped to the primitives of an FPGA."""

import re

import acf.sim
from acf.rtl.design.fabric.line import CreditLine
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.tools.fpga_mapping import synthesise_module
from acf.rtl.tools.verilog import to_rtlil


def test_a_module_that_abc9_does_not_bear_loses_nothing() -> None:
    text = to_rtlil(CreditLine(FabricSizes(acf.sim.spec("acf-512")), places=8, width=1), "credits")
    clashing = re.sub(r"(\\\w+)__(\d+)(?=\s)", r"\1[\2]", text)  # wires that are called like bits of the ports
    mapped = synthesise_module("credits", clashing.replace("attribute \\top 1\n", ""), "xcup")
    assert mapped["cells"] == {"FDRE": 1, "SRL16E": 7}  # delays of 1, 3, 5 to 15 cycles
    assert mapped["mapper"] == "abc"
