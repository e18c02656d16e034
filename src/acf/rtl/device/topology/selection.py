"""Selection of the best of a stream of scores: an insertion sorter as long as the selection."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for


class Selection(Component):
    """Keeps the ``count`` largest ``score`` with their ``tag``, or with ``least`` the smallest; the best comes first.

    A score enters in a cycle with ``valid``; of equal ones the earlier stays ahead. ``clear`` begins anew. Scores are
    float32 bits of numbers that are not negative, which are ordered like their bits; a NaN counts as larger than all.
    """

    def __init__(self, count: int, tag_bits: int) -> None:
        self.count = count
        super().__init__(
            {
                "clear": In(1),
                "least": In(1),
                "valid": In(1),
                "score": In(32),
                "tag": In(tag_bits),
                "tags": Out(data.ArrayLayout(tag_bits, count)),
                "held": Out(bits_for(count)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A row of registers; a score enters before the first that is worse and pushes the rest down."""
        m = Module()
        keys = [Signal(32, name=f"key_{place}") for place in range(self.count)]
        used = Signal(self.count)
        key, stays = Signal(32), Signal(self.count)  # monotonous: one that stays has only such before it
        m.d.comb += [
            key.eq(self.score ^ Cat(self.least.replicate(32))),
            stays.eq(Cat(*(used[place] & (each >= key) for place, each in enumerate(keys)))),
            self.held.eq(sum((used[place] for place in range(self.count)), Const(0, 1))),
        ]
        with m.If(self.valid):
            for place in range(self.count):
                before = stays[place - 1] if place else Const(1, 1)
                with m.If(~stays[place] & before):
                    m.d.sync += [keys[place].eq(key), self.tags[place].eq(self.tag), used[place].eq(1)]
                if place:
                    with m.Elif(~stays[place]):
                        m.d.sync += [
                            keys[place].eq(keys[place - 1]),
                            self.tags[place].eq(self.tags[place - 1]),
                            used[place].eq(used[place - 1]),
                        ]
        with m.If(self.clear):
            m.d.sync += used.eq(0)
        return m
