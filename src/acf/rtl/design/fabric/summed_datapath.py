"""The datapath of an SCU that adds up several products of a row before it adds them to a sum."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from acf.rtl.design.arithmetic.add import NumberAdder
from acf.rtl.design.arithmetic.multiply import NumberMultiplier
from acf.rtl.design.arithmetic.number import NUMBER, ZERO, packed
from acf.rtl.design.fabric.datapath import SumDatapath
from acf.rtl.design.fabric.held_sums import HeldSums
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import delayed, delayed_flit, masked, word_of
from acf.rtl.design.primitives.shared_modules import place


class Product(NamedTuple):
    """The register of a product, and whether neither factor was zero."""

    number: Any
    is_effectual: Signal


class SummedDatapath(SumDatapath):
    """``lanes`` multipliers and adders for one value and a row or, in a full tile, for several depths of fewer columns.

    A row has ``summed_products`` groups of columns, and there are as many depths; a lane is a depth and a column. In
    most tiles all lanes multiply one value, each with a column of the row (its depth is the group of its column), and
    add to the sums of a row as in `HeldSumDatapath`. In a full tile a lane multiplies the value of its depth with its
    column of group ``part``; the same adders add up the products of a column in a tree, and the last one of them adds
    the total to the sum. There a product with a zero factor is a positive zero.

    Rows of blocks go around as many registers. A row is needed so many cycles after it has come. Rows of a full tile
    need in their last cycles only the last group of columns; so of a row that comes this group waits, the others not.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        super().__init__(sizes)
        self.depths = sizes.shape.summed_products
        self.columns = sizes.shape.lanes // self.depths

    def elaborate(self, platform: object) -> Module:
        """Multiply (and read the sums of a block's first values), add, and write back those of its last values."""
        m, sizes = Module(), self.sizes
        loads = delayed(m, self.operation, sizes.datapath_delay - 1, "operation")
        meets, adds = Signal(sizes.operation), Signal(sizes.operation)
        m.d.sync += [meets.eq(loads), adds.eq(meets)]
        groups = [place(m, f"sums_{part}", HeldSums(sizes, self.columns), "held_sums") for part in range(self.depths)]
        for part, group in enumerate(groups):
            m.d.comb += [
                group.meets.eq(meets),
                group.adds.eq(adds),
                group.meets_used.eq(~meets.full | (meets.part == part)),
                group.adds_used.eq(~adds.full | (adds.part == part)),
                group.drain.eq(self.drain),
                group.drain_bank.eq(self.drain_bank),
                group.drain_address.eq(self.drain_address),
            ]
        values, factors = self._values(m, loads), self._factors(m, loads, meets)
        products = [
            [self._multiply(m, meets, value, each, self.columns * depth + column) for column, each in enumerate(row)]
            for depth, (value, row) in enumerate(zip(values, factors, strict=True))
        ]
        self._add(m, adds, products, groups)
        drained = [number for group in groups for number in group.drained]
        m.d.comb += self.drained.eq(Cat(*(packed(m, number, f"drained_{lane}") for lane, number in enumerate(drained))))
        return m

    def _values(self, m: Module, loads: Any) -> list[Value]:
        """The value of every depth: of a full tile its own, else one for all of them."""
        value, full = Signal(16 * self.depths), Signal()
        with m.If(self.fetched_valid):
            m.d.sync += [value[:16].eq(self.fetched.value[:16]), full.eq(loads.full)]
            with m.If(loads.full):
                m.d.sync += value[16:].eq(self.fetched.value[16:])
        own = [value[16 * depth : 16 * depth + 16] for depth in range(self.depths)]
        return [own[0], *(Mux(full, each, own[0]) for each in own[1:])]

    def _factors(self, m: Module, loads: Any, meets: Any) -> list[list[Value]]:
        """What is multiplied with the value of every depth, column by column."""
        bits, width = self.sizes.part_bits, 16 * self.columns
        rows = self._rows(m)
        current, upcoming = Signal(bits), Signal(bits)  # the register of the row, or of a full tile's first depth
        with m.If(loads.valid & loads.fresh):
            m.d.sync += [current.eq(upcoming), upcoming.eq(upcoming + ~loads.full)]
        row = word_of(Cat(*rows), current, len(rows[0]))
        columns = Cat(*(word_of(each, masked(meets.part, meets.full), width) for each in rows))
        first = masked(current, meets.full)
        factors = []
        for depth in range(self.depths):
            deep = word_of(columns, (first + depth)[:bits], width)
            group = Mux(meets.full, deep, row[depth * width : (depth + 1) * width])
            factors.append([group[16 * column : 16 * column + 16] for column in range(self.columns)])
        return factors

    def _rows(self, m: Module) -> list[Signal]:
        """Registers of rows, loaded in turn; their last group of columns ``summed_products`` - 1 cycles late."""
        row_bits, part_bits = 16 * self.sizes.shape.tile, 16 * self.columns
        early = row_bits - part_bits
        rows = [Signal(row_bits, name=f"row_{number}") for number in range(self.depths)]
        coming: Any = Signal(
            data.StructLayout({"valid": 1, "register": self.sizes.part_bits, "columns": part_bits}), name="coming"
        )
        register = Signal(self.sizes.part_bits)
        m.d.comb += [
            coming.valid.eq(self.fetched.fresh),
            coming.register.eq(register),
            coming.columns.eq(self.fetched.row[early:]),
        ]
        with m.If(self.fetched.fresh):
            m.d.sync += register.eq(register + 1)
        late = delayed_flit(m, coming, self.depths - 1, "late")
        for number, row in enumerate(rows):
            with m.If(self.fetched.fresh & (register == number)):
                m.d.sync += row[:early].eq(self.fetched.row[:early])
            with m.If(late.valid & (late.register == number)):
                m.d.sync += row[early:].eq(late.columns)
        return rows

    def _multiply(self, m: Module, meets: Any, value: Value, factor: Value, lane: int) -> Product:
        """The product of one lane; of a full tile also one with a zero factor."""
        m.submodules[f"multiplier_{lane}"] = multiplier = NumberMultiplier()
        number, was_effectual = Signal(NUMBER, name=f"product_{lane}"), Signal(name=f"effectual_{lane}")
        is_effectual = Signal(name=f"is_effectual_{lane}")
        m.d.comb += [
            multiplier.a.eq(value),
            multiplier.b.eq(factor),
            is_effectual.eq(meets.valid & multiplier.a[7:15].any() & multiplier.b[7:15].any()),
        ]
        m.d.sync += was_effectual.eq(is_effectual)
        with m.If(is_effectual | (meets.valid & meets.full)):
            m.d.sync += [
                number.eq(multiplier.product),
                number.kind.eq(Mux(is_effectual, multiplier.product.kind, ZERO)),
                number.sign.eq(multiplier.product.sign & is_effectual),
            ]
        return Product(number, was_effectual)

    def _add(self, m: Module, adds: Any, products: list[list[Product]], groups: list[HeldSums]) -> None:
        """Add every product to its sum, or the products of a column up and then to the sum of ``part``."""
        for column in range(self.columns):
            own = [row[column] for row in products]
            sums = [group.sums[column] for group in groups]
            chosen = word_of(Cat(*sums), adds.part, NUMBER.size)
            to_add: list[Any] = [product.number for product in own]
            totals: list[Any] = []
            for depth, product in enumerate(own):
                lane = depth * self.columns + column
                m.submodules[f"adder_{lane}"] = adder = NumberAdder(self.sizes.products)
                is_last = depth + 1 == self.depths
                one, other = (chosen, to_add[0]) if is_last else (to_add.pop(0), to_add.pop(0))
                m.d.comb += [
                    adder.x.eq(Mux(adds.full, one, sums[depth])),
                    adder.y.eq(Mux(adds.full, other, product.number)),
                ]
                to_add.append(adder.total)
                totals.append(adder.total)
            for part, (group, product) in enumerate(zip(groups, own, strict=True)):
                alone = Mux(product.is_effectual, totals[part], sums[part])
                is_here = adds.full & (adds.part == part)
                m.d.comb += group.results[column].eq(masked(Cat(alone), ~adds.full) | masked(Cat(totals[-1]), is_here))
