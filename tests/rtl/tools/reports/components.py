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


class EnabledRegister(Component):
    """Eight flip-flops that load ``value`` while ``enable`` is 1."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "enable": In(1), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.held.eq(self.value)
        return m
