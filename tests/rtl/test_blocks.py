"""Modules that are compiled once for all their instances."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.errors import RtlError
from acf.rtl.flow.blocks import cut
from acf.rtl.flow.parts import place
from acf.rtl.simulation import Simulation


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
    text = "module leaf(a);\nendmodule\nmodule block(a);\n  leaf x (\n  );\nendmodule\n"
    text += "module top(a);\n  block one (\n  );\n  block two (\n  );\n  leaf y (\n  );\nendmodule\n"
    pieces = cut(text, "top", ["block"])
    assert {name: piece.count("endmodule") for name, piece in pieces.items()} == {"block": 2, "top": 2}
    assert "module block" not in pieces["top"]


def test_a_block_that_is_no_module_is_named() -> None:
    with pytest.raises(RtlError, match="there is no module 'clusters' in this design; name one of top"):
        cut("module top(a);\nendmodule\n", "top", ["clusters"])
