"""The datapath of an SCU that holds a block, and the sums of the row that it walks."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from acf.rtl.design.arithmetic.add import NumberAdder
from acf.rtl.design.arithmetic.multiply import NumberMultiplier
from acf.rtl.design.arithmetic.number import NUMBER, ZERO, packed
from acf.rtl.design.fabric.block_rows import BlockRows
from acf.rtl.design.fabric.datapath import SumDatapath
from acf.rtl.design.fabric.row_sums import RowSums
from acf.rtl.design.primitives.bits import delayed, word_of
from acf.rtl.design.primitives.shared_modules import place


class BlockDatapath(SumDatapath):
    """`SumDatapath` with registers for a block, a word for each of its rows, and for the sums of one row.

    A row of the block is loaded in the cycle before its first use, so a block replaces another one row by row. Every
    lane has one sum: the first value of a row in a block reads the sums from the bank, the last one writes them back.
    A lane multiplies and adds in one cycle; a product with a zero factor is a negative zero, which leaves every sum as
    it is.
    """

    def elaborate(self, platform: object) -> Module:
        """Load the row of the block (and read the sums of a row's first value); multiply, add and keep the sums."""
        m, sizes = Module(), self.sizes
        loads = self._delayed(m, self.operation, sizes.datapath_delay, "operation")
        adds = self._delayed(m, loads, 1, "adds")
        sums = place(m, "sums", RowSums(sizes), "row_sums")
        value, factors = self._factors(m, loads, adds)
        for lane in range(sizes.shape.lanes):
            product = self._multiply(m, value, factors[16 * lane : 16 * lane + 16], lane)
            m.submodules[f"adder_{lane}"] = adder = NumberAdder(sizes.products)
            m.d.comb += [adder.x.eq(sums.sums[lane]), adder.y.eq(product), sums.results[lane].eq(adder.total)]
        drained = [packed(m, sums.drained[lane], f"drained_{lane}") for lane in range(sizes.shape.lanes)]
        m.d.comb += [
            sums.loads.eq(loads),
            sums.adds.eq(adds),
            sums.drain.eq(self.drain),
            sums.drain_bank.eq(self.drain_bank),
            sums.drain_address.eq(self.drain_address),
            self.drained.eq(Cat(*drained)),
        ]
        return m

    def _delayed(self, m: Module, operation: Any, cycles: int, name: str) -> Any:
        """``operation`` as it was ``cycles`` ago; where a row takes one cycle its place is loaded with its first value.

        So the clock of the place can be gated.
        """
        if self.sizes.chunks > 1:
            return delayed(m, operation, cycles, name)
        for number in range(cycles):
            stage: Any = Signal(self.sizes.operation, name=f"{name}_{number}", reset_less=True)
            for field, _ in self.sizes.operation:
                if field not in ("address", "bank"):
                    m.d.sync += stage[field].eq(operation[field])
            with m.If(operation.first):
                m.d.sync += [stage.address.eq(operation.address), stage.bank.eq(operation.bank)]
            operation = stage
        return operation

    def _factors(self, m: Module, loads: Any, adds: Any) -> tuple[Value, Value]:
        """The value, and what it is multiplied with: of the block's row ``k``, the columns of this cycle."""
        value, row, has_row = self._answer(m, loads, adds)
        block = place(m, "block", BlockRows(self.sizes), "block_rows")
        m.d.comb += [block.k.eq(loads.k), block.writes.eq(has_row), block.row.eq(row), block.reads.eq(loads.valid)]
        chunk = adds.address[: (self.sizes.chunks - 1).bit_length()]
        return value, word_of(block.chosen, chunk, 16 * self.sizes.shape.lanes)

    def _answer(self, m: Module, loads: Any, adds: Any) -> tuple[Value, Value, Value]:
        """The value of operation ``adds``, the row of operation ``loads``, and whether that is another one.

        A port of an SCU's own answers in these cycles; one that several share answers early, so that buffers keep both.
        """
        fetched = self.fetched
        if self.sizes.shape.scus_per_port == 1:
            return fetched.value, fetched.row, self.fetched_fresh
        row = Signal.like(fetched.row, reset_less=True)
        came, kept = Signal(16, name="value_came", reset_less=True), Signal(16, name="value_kept", reset_less=True)
        with m.If(self.fetched_fresh):
            m.d.sync += row.eq(fetched.row)
        with m.If(self.fetched_valid):
            m.d.sync += came.eq(fetched.value)
        with m.If(adds.start):
            m.d.sync += kept.eq(came)
        return Mux(adds.start, came, kept), row, loads.valid & loads.start & loads.fresh

    def _multiply(self, m: Module, value: Value, factor: Value, lane: int) -> Any:
        """The product of one lane."""
        m.submodules[f"multiplier_{lane}"] = multiplier = NumberMultiplier()
        product, is_effectual = Signal(NUMBER, name=f"product_{lane}"), Signal(name=f"is_effectual_{lane}")
        m.d.comb += [
            multiplier.a.eq(value),
            multiplier.b.eq(factor),
            is_effectual.eq(multiplier.a[7:15].any() & multiplier.b[7:15].any()),
            product.eq(multiplier.product),
            product.kind.eq(Mux(is_effectual, multiplier.product.kind, ZERO)),
            product.sign.eq(multiplier.product.sign | ~is_effectual),
        ]
        return product
