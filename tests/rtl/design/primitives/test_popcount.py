"""Bits that are counted by tables."""

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.primitives.popcount import CountOnes
from acf.rtl.tools.simulation import Simulation


class CountedRows(Component):
    """Two rows of ``width`` bits, the second counted if ``keep`` is 1."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__({"rows": In(2 * width), "keep": In(1), "count": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counter = CountOnes(m, "ones")
        counter.add(self.rows[: self.width])
        counter.add(self.rows[self.width :], self.keep)
        m.d.comb += self.count.eq(counter.total())
        return m


@pytest.mark.parametrize("width", [1, 2, 7, 16, 31])
def test_rows_are_counted_unless_they_are_left_out(width: int) -> None:
    rng = np.random.default_rng(width)
    rows, keep = rng.integers(0, 1 << 2 * width, 100), rng.integers(0, 2, 100)
    rows[:2], keep[:2] = (1 << 2 * width) - 1, (0, 1)
    count = Simulation(CountedRows(width), "pysim").run({"rows": rows, "keep": keep})["count"]
    kept = rows & (1 << width) - 1 | (rows >> width) * keep << width
    assert count.tolist() == [int(bits).bit_count() for bits in kept]
