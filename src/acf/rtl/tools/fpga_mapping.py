"""One module mapped to an FPGA by Yosys: its primitives and its longest combinational path."""

import base64
import re
import zlib
from collections.abc import Mapping
from typing import Any

from acf.errors import RtlError
from acf.rtl.tools.hierarchy import parse_cell_counts
from acf.rtl.tools.yosys import YosysRun, run_yosys

LUTS_OF_MEMORY: dict[str, int] = {
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM128X1S": 2,
    "RAM256X1S": 4,
    "RAM512X1S": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32X16DR8": 8,
    "RAM64X8SW": 8,
    "SRL16E": 1,
    "SRLC32E": 1,
}
"""LUTs that a primitive of distributed memory or a shift register takes: UG974, UltraScale libraries guide."""

FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE", "LDCE", "LDPE")
_LIBRARY = ("read_verilog -lib -specify +/xilinx/cells_sim.v", "read_verilog -lib +/xilinx/cells_xtra.v")

_WITHOUT_ABC9 = (
    "opt_expr -mux_undef -noclkinv",
    "abc -luts 2:2,3,6:5",  # what inputs of a LUT cost, as synth_xilinx has it
    "clean",
    "xilinx_srl -fixed -minlen 3",
    "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6",
    "xilinx_dffopt",
    "opt_lut_ins -tech xilinx",
    "clean",
    "check -noinit",
)
"""The steps of synth_xilinx after map_ffs, with abc in place of abc9."""


def synthesise_module(name: str, text: str, family: str) -> dict[str, Any]:
    """Primitives of one module by type, black boxes by their name, the netlist, and the mapper that made it.

    Yosys 0.70's abc9 fails where a wire is called as it calls a bit of a port: it stops, or leaves wires without a
    driver, and what drove them is gone from the count. Such modules are mapped by abc.
    """
    synth = f"synth_xilinx -family {family} -top {name} -noiopad -noclkbuf"
    try:
        run, mapper = _run(name, text, [synth]), "abc9"
    except RtlError:
        run, mapper = None, "abc"
    if run is None or "has no driver" in run.log:
        run, mapper = _run(name, text, [f"{synth} -run begin:map_luts", *_WITHOUT_ABC9]), "abc"
    packed = base64.b85encode(zlib.compress(run.files["mapped.il"].encode())).decode()
    cells = dict(parse_cell_counts(run.files["statistics.json"])[name])
    return {"cells": cells, "netlist": packed, "mapper": mapper}


def _run(name: str, text: str, mapping: list[str]) -> YosysRun:
    outputs = ["tee -q -o statistics.json stat -json", f"select {name}", "write_rtlil -selected mapped.il"]
    commands = ["read_rtlil top.il", *mapping, *outputs]
    return run_yosys(commands, {"top.il": text}, ["statistics.json", "mapped.il"])


def netlist_of(mapped: Mapping[str, Any]) -> str:
    """The RTLIL that `synthesise_module` packed."""
    return zlib.decompress(base64.b85decode(mapped["netlist"])).decode()


def measure_depth(name: str, netlists: str) -> int:
    """Primitives on the longest path between registers or memories of a module, given with its whole subtree."""
    ends = " ".join(f"t:{cell}" for cell in (*FLIP_FLOPS, *LUTS_OF_MEMORY, "RAMB18E2", "RAMB36E2", "URAM288"))
    commands = [*_LIBRARY, "read_rtlil netlists.il", f"hierarchy -top {name}", "flatten", f"delete {ends}"]
    files = run_yosys([*commands, "tee -q -o paths.txt ltp -noff"], {"netlists.il": netlists}, ["paths.txt"]).files
    found = re.search(r"\(length=(\d+)\)", files["paths.txt"])
    return int(found[1]) if found else 0
