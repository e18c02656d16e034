"""Adds the partial sums of groups of mesh columns, where a reduction is split over groups (`Program.split`)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.arithmetic.add import Fp32Adder
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import masked
from acf.rtl.design.primitives.fifo import BoundedFifo
from acf.rtl.design.primitives.shared_modules import place


class GroupAdder(Component):
    """One stage behind a mesh column: adds the column's partial sums to those of the groups before it.

    The stages of columns at the same place in their groups form a chain, the first group first. Flits of the column
    come with ``valid`` and cannot be refused; ``hold`` is back-pressure while there is still room for ``in_flight``
    more. With ``adds`` a column may have no part in a round of its chain: its next command, seen as it is loaded
    (``round_valid``), tells the flits of such rounds before its own (``round_gap``), for which the stage adds zeros;
    so it does after the last of ``count`` commands, or, with ``walks``, once all commands have come (``is_loaded``).
    ``before`` comes from the stage of the group before (unless ``is_first``) and leaves with ``takes``;
    ``before_ended``: nothing more will come. ``total`` goes on to the next stage, or from the last one to memory, where
    ``total_valid`` meets ``total_ready``.
    """

    def __init__(self, sizes: FabricSizes, in_flight: int, adds: bool) -> None:
        self.sizes, self.in_flight, self.has_adders = sizes, in_flight, adds
        self.room = 1 << (2 * in_flight - 1).bit_length()
        command = sizes.command(sizes.shape.mesh_rows, serial=False)
        super().__init__(
            {
                "start": In(1),
                "count": In(COUNT_BITS),
                "walks": In(1),
                "is_loaded": In(1),
                "adds": In(1),
                "is_first": In(1),
                "valid": In(1),
                "flit": In(sizes.flit_bits),
                "hold": Out(1),
                "round_valid": In(1),
                "round_ready": Out(1),
                "round_gap": In(command["address"].width),
                "round_flits": In(bits_for(sizes.most_sum_flits)),
                "before_valid": In(1),
                "before": In(sizes.flit_bits),
                "before_ended": In(1),
                "takes": Out(1),
                "total_valid": Out(1),
                "total": Out(sizes.flit_bits),
                "total_ready": In(1),
                "ended": Out(1),
                "is_empty": Out(1),
                "overflows": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A FIFO of the column's flits, the place in the chain's rounds, the adders, and a register behind them."""
        m = Module()
        m.submodules.flits = flits = BoundedFifo(self.sizes.flit_bits, self.room)
        moves, takes_own, is_zero = Signal(), Signal(), Signal()
        own_valid, own_ended = self._follow_rounds(m, flits, takes_own, is_zero)
        alone, both, passes = Signal(), Signal(), Signal()
        m.d.comb += [
            flits.write_valid.eq(self.valid),
            flits.write_data.eq(self.flit),
            self.hold.eq(flits.level >= self.room - self.in_flight),
            self.overflows.eq(self.valid & ~flits.write_ready),
            alone.eq((self.is_first | ~self.adds) & own_valid),
            both.eq(own_valid & (self.before_valid | self.before_ended)),
            passes.eq(own_ended & self.before_valid),
            moves.eq((alone | (~self.is_first & self.adds & (both | passes))) & (~self.total_valid | self.total_ready)),
            takes_own.eq(moves & own_valid),
            flits.read_ready.eq(takes_own & ~is_zero),
            self.takes.eq(moves & self.before_valid & ~self.is_first & self.adds),
            self.ended.eq(own_ended & (self.is_first | self.before_ended) & ~self.total_valid),
            self.is_empty.eq((flits.level == 0) & ~self.total_valid),
        ]
        own = Signal(self.sizes.flit_bits)
        m.d.comb += own.eq(masked(flits.read_data, own_valid & ~is_zero))
        with m.If(moves):
            m.d.sync += [self.total_valid.eq(1), self.total.eq(Mux(alone, own, self._added(m, own)))]
        with m.Elif(self.total_ready):
            m.d.sync += self.total_valid.eq(0)
        return m

    def _added(self, m: Module, own: Value) -> Value:
        """``before`` plus the column's own sums, value by value."""
        if not self.has_adders:
            return own
        totals = []
        for index in range(len(own) // 32):
            adder = place(m, f"adder_{index}", Fp32Adder(canonical=True, products=self.sizes.products), "sum_adder")
            bits = slice(32 * index, 32 * index + 32)
            m.d.comb += [adder.x.eq(masked(self.before[bits], self.before_valid)), adder.y.eq(own[bits])]
            totals.append(adder.total)
        return Cat(*totals)

    def _follow_rounds(self, m: Module, flits: BoundedFifo, takes: Signal, is_zero: Signal) -> tuple[Signal, Signal]:
        """Whether the column has a flit, or a zero in place of one (``is_zero``); whether it has no more of either."""
        gap, left = Signal.like(self.round_gap), Signal.like(self.round_flits)
        to_load = Signal(COUNT_BITS)
        m.submodules.rounds = rounds = BoundedFifo(len(gap) + len(left), self.sizes.command_depth + self.room)
        between, own_valid, own_ended = Signal(), Signal(), Signal()
        m.d.comb += [
            between.eq((gap == 0) & (left == 0)),
            rounds.write_valid.eq(self.round_valid),
            rounds.write_data.eq(Cat(self.round_gap, self.round_flits)),
            rounds.read_ready.eq(between),
            is_zero.eq(self.adds & (gap != 0)),
            own_valid.eq(Mux(self.adds, is_zero | ((left != 0) & flits.read_valid), flits.read_valid)),
            own_ended.eq(Mux(self.walks, self.is_loaded, to_load == 0) & ~rounds.read_valid & between),
            self.round_ready.eq(rounds.write_ready),
        ]
        m.d.sync += to_load.eq(Mux(self.start, self.count, to_load - self.round_valid))
        with m.If(between & rounds.read_valid):
            m.d.sync += Cat(gap, left).eq(rounds.read_data)
        with m.Elif(takes & is_zero):
            m.d.sync += gap.eq(gap - 1)
        with m.Elif(takes & (left != 0)):
            m.d.sync += left.eq(left - 1)
        return own_valid, own_ended
