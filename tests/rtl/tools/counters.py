"""Small components that the flow is tested with."""

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out


class Counter(Component):
    """Counts up by ``by``."""

    def __init__(self) -> None:
        super().__init__({"by": In(8), "count": Out(8), "wide": Out(100)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.count.eq(self.count + self.by)
        m.d.comb += self.wide.eq(self.count << 70)
        return m


class Counters(Component):
    """Three counters, two of them in a row."""

    def __init__(self) -> None:
        super().__init__({"by": In(8), "count": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, second, third = Counter(), Counter(), Counter()
        m.submodules.first, m.submodules.second, m.submodules.third = first, second, third
        m.d.comb += [first.by.eq(self.by), second.by.eq(self.by), third.by.eq(first.count ^ second.count)]
        m.d.comb += self.count.eq(third.count ^ second.count)
        return m
