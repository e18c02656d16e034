"""Plans who owns each output column: bitmaps of its blocks, the route planner, and the banks filled in order."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.mesh.route_planner import PlannerSpec, RoutePlanner


class OwnerPlanner(Component):
    """Shares up to ``columns`` output columns of up to ``depths`` k_tiles among ``mesh_columns`` clusters.

    ``clear`` begins with ``column_tiles`` empty columns. Every cycle with ``block`` adds a block of output column
    ``block_column`` at ``block_depth``; then ``plan`` shares the columns that have one by ``policy`` (`RoutePlanner`).
    Owners follow one a cycle, in order of columns: with ``owner_valid`` the mesh column of ``owner_of``, its place in
    the bank and its round, ``columns_per_round`` to a round. ``is_done`` is 1 in the last cycle.
    """

    def __init__(self, mesh_columns: int, columns: int, depths: int, places: int) -> None:
        self.planner = PlannerSpec(mesh_columns, 1, columns, depths, memory_words=max(2, columns))
        self.columns, self.depths = columns, depths
        number = bits_for(columns)
        super().__init__(
            {
                "clear": In(1),
                "column_tiles": In(number),
                "columns_per_round": In(bits_for(places)),
                "policy": In(1),
                "block": In(1),
                "block_column": In(number),
                "block_depth": In(bits_for(depths)),
                "plan": In(1),
                "owner_valid": Out(1),
                "owner_of": Out(number),
                "owner_column": Out(bits_for(mesh_columns - 1)),
                "owner_place": Out(bits_for(places)),
                "owner_round": Out(number),
                "is_ready": Out(1),
                "is_done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Clear, collect, close up the columns that have blocks, share them, fill the banks."""
        m, columns = Module(), self.columns
        m.submodules.bitmaps = bitmaps = Memory(shape=self.depths, depth=max(2, columns), init=[])
        m.submodules.filled = filled = Memory(shape=self.depths, depth=max(2, columns), init=[])
        m.submodules.numbers = numbers = Memory(shape=bits_for(columns), depth=max(2, columns), init=[])
        m.submodules.shares = shares = Memory(shape=len(self.owner_column), depth=max(2, columns), init=[])
        m.submodules.planner = planner = RoutePlanner(self.planner)
        old, bitmap = bitmaps.read_port(domain="comb"), bitmaps.write_port()
        kept, row = filled.write_port(), filled.read_port()
        number_in, number_out = numbers.write_port(), numbers.read_port(domain="comb")
        share_in, share_out = shares.write_port(), shares.read_port(domain="comb")
        place, count = Signal(bits_for(columns)), Signal(bits_for(columns))
        m.d.comb += [
            bitmap.addr.eq(place),
            old.addr.eq(place),
            kept.addr.eq(count),
            kept.data.eq(old.data),
            number_in.addr.eq(count),
            number_in.data.eq(place),
            row.addr.eq(planner.memory_address),
            planner.memory_data.eq(row.data),
            planner.policy.eq(self.policy),
            planner.count.eq(count),
            share_in.en.eq(planner.owner_valid),
            share_in.addr.eq(planner.owner_row),
            share_in.data.eq(planner.owner),
            share_out.addr.eq(place),
            number_out.addr.eq(place),
            self.owner_of.eq(number_out.data),
            self.owner_column.eq(share_out.data),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += place.eq(0)
                with m.If(self.clear):
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += bitmap.en.eq(1)
                m.d.sync += [place.eq(place + 1), count.eq(0)]
                with m.If(place + 1 == self.column_tiles):
                    m.next = "COLLECT"
            with m.State("COLLECT"):
                m.d.comb += [
                    self.is_ready.eq(1),
                    bitmap.addr.eq(self.block_column),
                    old.addr.eq(self.block_column),
                    bitmap.en.eq(self.block),
                    bitmap.data.eq(old.data | (1 << self.block_depth)),
                ]
                with m.If(self.plan):
                    m.d.sync += place.eq(0)
                    m.next = "CLOSE UP"
            with m.State("CLOSE UP"):
                m.d.sync += place.eq(place + 1)
                with m.If(old.data != 0):
                    m.d.comb += [kept.en.eq(1), number_in.en.eq(1)]
                    m.d.sync += count.eq(count + 1)
                with m.If(place + 1 == self.column_tiles):
                    m.next = "START"
            with m.State("START"):
                m.d.comb += planner.start.eq(1)
                m.d.sync += place.eq(0)
                m.next = "SHARE"
            with m.State("SHARE"):
                m.d.comb += [planner.boundary.eq(1), planner.mesh_idle.eq(1)]
                with m.If(planner.swap):
                    m.next = "FILL"
            with m.State("FILL"):
                self._fill(m, place, count)
        return m

    def _fill(self, m: Module, place: Signal, count: Signal) -> None:
        """One column a cycle: the next place of its owner's bank; a full bank begins the next round."""
        mesh_columns = self.planner.columns
        taken = Array(Signal.like(self.owner_place, name=f"taken_{number}") for number in range(mesh_columns))
        rounds = Array(Signal.like(self.owner_round, name=f"round_{number}") for number in range(mesh_columns))
        owner, last = self.owner_column, Signal()
        m.d.comb += [
            last.eq((place + 1 == count) | (count == 0)),
            self.owner_valid.eq(count != 0),
            self.owner_place.eq(taken[owner]),
            self.owner_round.eq(rounds[owner]),
            self.is_done.eq(last),
        ]
        m.d.sync += [place.eq(place + 1), taken[owner].eq(taken[owner] + 1)]
        with m.If(taken[owner] + 1 == self.columns_per_round):
            m.d.sync += [taken[owner].eq(0), rounds[owner].eq(rounds[owner] + 1)]
        with m.If(last):
            m.d.sync += [*(each.eq(0) for each in taken), *(each.eq(0) for each in rounds)]
            m.next = "IDLE"
