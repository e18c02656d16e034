"""Designs cut into modules: read alone, and compiled once for all their instances."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

import acf.sim
from acf.errors import RtlError
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.top import Fabric
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.tools.hierarchy import cut_verilog, isolate, split_modules, submodules_of
from acf.rtl.tools.simulation import Simulation
from acf.rtl.tools.verilog import to_rtlil
from acf.rtl.tools.yosys import run_yosys


class Stage(Component):
    """Adds what it has seen so far to what it sees now, so that an output follows an input in the same cycle too."""

    def __init__(self) -> None:
        super().__init__({"value": In(100), "total": Out(100)})

    def elaborate(self, platform: object) -> Module:
        m, seen = Module(), Signal(100)
        m.d.sync += seen.eq(seen + self.value)
        m.d.comb += self.total.eq(self.value + (self.value << 60)[:100] + seen)
        return m


class Chain(Component):
    """Three stages in a row."""

    def __init__(self) -> None:
        super().__init__({"value": In(100), "total": Out(100)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        value = self.value
        for index in range(3):
            stage = place(m, f"stage_{index}", Stage(), "stage")
            m.d.comb += stage.value.eq(value)
            value = stage.total
        m.d.comb += self.total.eq(value)
        return m


def test_a_block_compiled_once_gives_what_the_whole_gives(verilator: None) -> None:
    rng = np.random.default_rng(0)
    values = np.stack([rng.integers(0, 1 << 63, 50), rng.integers(0, 1 << 36, 50)], axis=1).astype(np.uint64)
    whole = Simulation(Chain(), "pysim").run({"value": values})["total"]
    apart = Simulation(Chain(), "verilator", blocks=["stage"])
    assert (apart.run({"value": values})["total"] == whole).all()
    apart.restart()
    assert (apart.run({"value": values})["total"] == whole).all()


def test_cutting_leaves_a_block_out_of_the_rest_and_keeps_what_both_hold() -> None:
    verilog = "module leaf(a);\nendmodule\nmodule block(a);\n  leaf x (\n  );\nendmodule\n"
    verilog += "module top(a);\n  block one (\n  );\n  block two (\n  );\n  leaf y (\n  );\nendmodule\n"
    texts = cut_verilog(verilog, "top", ["block"])
    assert {name: text.count("endmodule") for name, text in texts.items()} == {"block": 2, "top": 2}
    assert "module block" not in texts["top"]


def test_a_block_that_is_no_module_is_named() -> None:
    with pytest.raises(RtlError, match="there is no module 'clusters' in this design; name one of top"):
        cut_verilog("module top(a);\nendmodule\n", "top", ["clusters"])


def test_every_module_of_a_fabric_can_be_read_alone() -> None:
    shape = acf.sim.spec(
        "acf-512",
        mesh_rows=2,
        mesh_columns=1,
        scus_per_cluster=1,
        tile=8,
        link_bytes=16,
        queue_packets=2,
        parallel_slots=4,
        accumulator_tiles=2,
        prefetch_packets=2,
    )
    modules = split_modules(to_rtlil(Fabric(FabricSizes(shape, command_depth=16, memory_flits=32)), "fabric"))
    assert {"cluster", "row_controller", "row_line"} <= set(submodules_of(modules, "fabric"))
    for name in ("fabric", "cluster"):
        run_yosys(["read_rtlil top.il", f"hierarchy -check -top {name}"], {"top.il": isolate(modules, name)})
    with pytest.raises(RtlError, match="yosys refused"):
        run_yosys(["read_rtlil top.il", "hierarchy -check -top fabric"], {"top.il": modules["fabric"]})
