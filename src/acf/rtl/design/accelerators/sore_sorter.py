"""The sorter of a SORE lane: the largest N of every M values that stream in, one per cycle.

`acf.sim.accelerators.sore.reduce_groups` says what comes out: by magnitude, of equals the earlier ahead.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.errors import RtlError


@dataclass(frozen=True)
class SorterSpec:
    """``kept`` of every ``group_size`` values; sign and magnitude of ``value_bits``, ordered like their bits."""

    kept: int = 2
    group_size: int = 8
    value_bits: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.group_size or self.group_size < 2:
            raise RtlError(f"{self.kept} of {self.group_size} cannot be kept; keep 1 at least and the group at most")

    @property
    def index_bits(self) -> int:
        """Bits of a place within a group."""
        return (self.group_size - 1).bit_length()


class TopKSorter(Component):
    """Takes ``value`` in every cycle with ``valid``; a group ends with its ``group_size``-th value.

    In the cycle after that ``done`` is 1, and ``values`` and ``indices`` hold ``kept`` fields each, the largest first
    and lowest. The next group's first value may come in that very cycle.
    """

    def __init__(self, spec: SorterSpec | None = None) -> None:
        self.spec = spec = spec or SorterSpec()
        super().__init__(
            {
                "value": In(spec.value_bits),
                "valid": In(1),
                "done": Out(1),
                "values": Out(spec.value_bits * spec.kept),
                "indices": Out(spec.index_bits * spec.kept),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A row of registers; a value enters before the first smaller one and pushes the rest down."""
        m = Module()
        spec = self.spec
        place = Signal(range(spec.group_size))
        values = [Signal(spec.value_bits, name=f"value_{slot}") for slot in range(spec.kept)]
        indices = [Signal(spec.index_bits, name=f"index_{slot}") for slot in range(spec.kept)]
        used = [Signal(name=f"used_{slot}") for slot in range(spec.kept)]
        is_last, starts = place == spec.group_size - 1, place == 0
        m.d.comb += [self.values.eq(Cat(*values)), self.indices.eq(Cat(*indices))]
        m.d.sync += self.done.eq(self.valid & is_last)
        stays = Signal(spec.kept)  # monotonous: a register that stays has only such before it
        for slot in range(spec.kept):
            m.d.comb += stays[slot].eq(used[slot] & ~starts & (values[slot][:-1] >= self.value[:-1]))
        with m.If(self.valid):
            m.d.sync += place.eq(Mux(is_last, 0, place + 1))
            for slot in range(spec.kept):
                before = stays[slot - 1] if slot else Const(1, 1)
                with m.If(~stays[slot]):
                    with m.If(before):
                        m.d.sync += [values[slot].eq(self.value), indices[slot].eq(place), used[slot].eq(1)]
                    with m.Else():
                        m.d.sync += [
                            values[slot].eq(values[slot - 1]),
                            indices[slot].eq(indices[slot - 1]),
                            used[slot].eq(used[slot - 1] & ~starts),
                        ]
        return m
