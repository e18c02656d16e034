"""Population count in LUTs of six inputs: compressor tables, and one carry-propagate adder at the end."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.primitives.shared_modules import place

INPUTS = 6  # of a look-up table


class FewBits(Component):
    """How many of up to six ``bits`` are set; with ``gated`` 0 unless ``keep`` is 1, for five bits at most."""

    def __init__(self, width: int, gated: bool) -> None:
        self.width, self.gated = width, gated
        keep = {"keep": In(1)} if gated else {}
        super().__init__({"bits": In(width), **keep, "count": Out(width.bit_length())})

    def elaborate(self, platform: object) -> Module:
        """Every bit of the number is a table of the bits: the numbers that have it, each a choice of which are set."""
        m = Module()
        for bit in range(len(self.count)):
            has_bit = self._any_count([ones for ones in range(self.width + 1) if ones >> bit & 1])
            m.d.comb += self.count[bit].eq(has_bit & self.keep if self.gated else has_bit)
        return m

    def _any_count(self, counts: list[int]) -> Value:
        """Whether as many bits are set as one of ``counts`` says."""
        patterns = (each for each in range(1 << self.width) if each.bit_count() in counts)
        return Cat(*(self.bits == pattern for pattern in patterns)).any()


class CountOnes:
    """Counts bits in ``m``: `add` some, all under one condition, then read `total`. ``name`` is a part of the names."""

    def __init__(self, m: Module, name: str) -> None:
        self._m, self._name, self._counters = m, name, 0
        self._columns: list[list[Value]] = [[]]  # bits by their weight

    def add(self, bits: Value, keep: Value | None = None) -> None:
        """Count ``bits``, unless ``keep`` is 0."""
        size = INPUTS if keep is None else INPUTS - 1
        for start in range(0, len(bits), size):
            self._count(0, self._columns, [*bits[start : start + size]], keep)

    def total(self) -> Value:
        """The number of all bits that were added."""
        while max(len(column) for column in self._columns) > 2:
            following: list[list[Value]] = [[]]
            for weight, column in enumerate(self._columns):
                for start in range(0, len(column), INPUTS):
                    self._count(weight, following, column[start : start + INPUTS], None)
            self._columns = following
        one, other = (self._number(index) for index in (0, 1))
        total = Signal(len(one) + 1, name=f"{self._name}_total")
        self._m.d.comb += total.eq(one + other)
        return total

    def _number(self, index: int) -> Value:
        return Cat(*(column[index] if index < len(column) else Const(0, 1) for column in self._columns))

    def _count(self, weight: int, columns: list[list[Value]], bits: Sequence[Value], keep: Value | None) -> None:
        """Put the number of some bits of one weight into columns."""
        if len(bits) <= 2 and keep is None:
            counted = [(weight, bit) for bit in bits]
        else:
            kind = f"few_bits_{len(bits)}" + ("" if keep is None else "_gated")
            few = FewBits(len(bits), keep is not None)
            place(self._m, f"{self._name}_{self._counters}", few, kind)
            self._counters += 1
            self._m.d.comb += few.bits.eq(Cat(*bits))
            if keep is not None:
                self._m.d.comb += few.keep.eq(keep)
            counted = [(weight + index, few.count[index]) for index in range(len(few.count))]
        for at, bit in counted:
            columns.extend([] for _ in range(at + 1 - len(columns)))
            columns[at].append(bit)
