"""Clock gates of whole units: registers of a unit without work keep their values.

In Amaranth a stopped clock is an enable of every register; Yosys' `clockgate` turns enables that registers share into
gates of their clock (`acf.rtl.tools.gate_mapping`).
"""

from amaranth.hdl import Elaboratable, EnableInserter, Module, Signal, Value


def stopped_unless(awake: Value, m: Module) -> Elaboratable:
    """``m`` with all its clocks stopped in cycles in which ``awake`` is 0.

    ``awake`` must be 1 in every cycle in which a register or memory of ``m`` may change. Modules that were added by
    `place` are units of their own and are not stopped.
    """
    return EnableInserter(awake)(m)


def under_way(m: Module, enters: Value, cycles: int) -> Value:
    """1 when something ``enters``, and for so many ``cycles`` after: those in which it passes through ``m``."""
    left = Signal(range(cycles + 1), name="cycles_left")
    with m.If(enters):
        m.d.sync += left.eq(cycles)
    with m.Elif(left != 0):
        m.d.sync += left.eq(left - 1)
    return enters | (left != 0)
