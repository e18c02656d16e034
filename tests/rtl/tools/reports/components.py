"""Components that reports are made about."""

from pathlib import Path

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

LIBERTY = Path(__file__).parents[1] / "cells" / "small.lib"


class Register(Component):
    """Eight flip-flops."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.held.eq(self.value)
        return m


class Pair(Component):
    """Two registers in a row."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.first, m.submodules.second = first, second = Register(), Register()
        m.d.comb += [first.value.eq(self.value), second.value.eq(first.held), self.held.eq(second.held)]
        return m


class Adder(Component):
    """The sum of two numbers of eight bits."""

    def __init__(self) -> None:
        super().__init__({"x": In(8), "y": In(8), "total": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.total.eq(self.x + self.y)
        return m


class Accumulator(Component):
    """Adds ``value`` to a register and flips the bits of the sum where those of ``value`` are 1, in every cycle."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.adder = adder = Adder()
        m.d.comb += [adder.x.eq(self.value), adder.y.eq(self.held)]
        m.d.sync += self.held.eq(adder.total ^ self.value)
        return m


class OneAccumulator(Component):
    """An accumulator in a module of its own."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.one = one = Accumulator()
        m.d.comb += [one.value.eq(self.value), self.held.eq(one.held)]
        return m


class EnabledRegister(Component):
    """Eight flip-flops that load ``value`` while ``enable`` is 1."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "enable": In(1), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.held.eq(self.value)
        return m
