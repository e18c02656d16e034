"""The route planner: assigns a layer's block rows to clusters and writes the multicast routing table they need."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.rtl.design.primitives.bits import balanced

POLICIES = ("round-robin", "longest-first")
"""Load-balancing policies by their number at ``policy``; they are the balancers of `acf.lowering`."""


@dataclass(frozen=True)
class PlannerSpec:
    """A mesh of ``columns`` x ``rows`` routers, layers of up to ``block_rows`` x ``depths`` blocks.

    ``source`` is the router at which packets of activations enter; ``memory_words`` hold block rows, a bit per depth.
    """

    columns: int = 2
    rows: int = 2
    block_rows: int = 16
    depths: int = 12
    source: int = 0
    memory_words: int = 64

    def __post_init__(self) -> None:
        for name, least in (("columns", 1), ("rows", 1), ("block_rows", 1), ("depths", 1), ("memory_words", 2)):
            if getattr(self, name) < least:
                raise RtlError(f"{name} {getattr(self, name)} is less than {least}; give a planner at least that")
        if self.routers < 2 or not 0 <= self.source < self.routers:
            raise RtlError(f"source {self.source} is none of {self.routers} routers; use one, and two routers or more")

    @property
    def routers(self) -> int:
        """Routers, and clusters that rows are given to."""
        return self.columns * self.rows

    @property
    def ids(self) -> int:
        """Entries of a router's table: every endpoint, then every depth."""
        return self.routers + self.depths


class RoutePlanner(Component):
    """Reads the blocks of a layer and writes the table by which its packets reach the clusters that need them.

    ``start`` begins with the ``count`` block rows at ``base``; ``memory_data`` answers ``memory_address`` a cycle
    later, bit k is 1 where the row has a block at depth k. Every row goes to a cluster (``owner_valid``,
    ``owner_row``, ``owner``) by ``policy``. A packet of depth k has id ``routers + k`` and goes from the source along
    its mesh row and then along columns to every cluster with a row that has a block there; ids below ``routers`` are
    single destinations. Entries are written one a cycle (``table_write``, ``table_router``, ``table_id``,
    ``table_ports``) to the bank that is not in use. ``ready`` is 1 from then on, until ``swap``, which is 1 in the
    first cycle in which a step has ended (``boundary``) and the mesh is idle. ``needed`` tells of the table in use
    which depths somebody takes: packets of others have nowhere to go and are not to be sent.
    """

    def __init__(self, spec: PlannerSpec | None = None) -> None:
        self.spec = spec = spec or PlannerSpec()
        super().__init__(
            {
                "start": In(1),
                "policy": In(1),
                "base": In(range(spec.memory_words)),
                "count": In(bits_for(spec.block_rows)),
                "memory_address": Out(range(spec.memory_words)),
                "memory_data": In(spec.depths),
                "owner_valid": Out(1),
                "owner_row": Out(bits_for(spec.block_rows)),
                "owner": Out(range(spec.routers)),
                "table_write": Out(1),
                "table_router": Out(range(spec.routers)),
                "table_id": Out(range(spec.ids)),
                "table_ports": Out(5),
                "boundary": In(1),
                "mesh_idle": In(1),
                "ready": Out(1),
                "swap": Out(1),
                "needed": Out(spec.depths),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Clear, assign rows, then per router collect the depths needed behind each port, and write its entries."""
        m, spec = Module(), self.spec
        m.submodules.needs = needs = Memory(shape=spec.depths, depth=spec.routers, init=[])
        self._write, self._read = needs.write_port(), needs.read_port(domain="comb")
        self._row, self._router, self._place = (
            Signal(bits_for(spec.block_rows)),
            Signal(range(spec.routers)),
            Signal(range(spec.ids)),
        )
        self._level, self._room = Signal(bits_for(spec.depths)), Signal(bits_for(spec.block_rows))
        self._behind = [Signal(spec.depths, name=name) for name in ("local", "east", "west", "north", "south")]
        self._loads = [Signal(bits_for(spec.block_rows * spec.depths), name=f"load_{n}") for n in range(spec.routers)]
        self._rows_of = [Signal(bits_for(spec.block_rows), name=f"rows_{n}") for n in range(spec.routers)]
        self._taken = Signal(spec.depths)
        m.d.comb += self.memory_address.eq(self.base + self._row)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [self._row.eq(0), self._place.eq(0), self._router.eq(0), self._room.eq(0)]
                m.d.sync += [self._level.eq(spec.depths), *(each.eq(0) for each in (*self._loads, *self._rows_of))]
                with m.If(self.start):
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += [self._write.en.eq(1), self._write.addr.eq(self._place)]
                m.d.sync += self._taken.eq(0)
                with m.If(self._counts(m, self._place, spec.routers)):
                    m.next = "DIVIDE"
            with m.State("DIVIDE"):  # the equal share of rows of a cluster
                with m.If(self._room * spec.routers < self.count):
                    m.d.sync += self._room.eq(self._room + 1)
                with m.Elif(self.count == 0):
                    m.next = "GATHER"
                with m.Else():
                    m.next = "SHARE"
            with m.State("SHARE"):
                self._share(m)
            with m.State("GATHER"):
                self._gather(m)
            with m.State("WRITE"):
                self._write_entry(m)
            with m.State("READY"):
                m.d.comb += [self.ready.eq(1), self.swap.eq(self.boundary & self.mesh_idle)]
                with m.If(self.swap):
                    m.d.sync += self.needed.eq(self._taken)
                    m.next = "IDLE"
        return m

    def _counts(self, m: Module, number: Signal, limit: int) -> Value:
        """Let ``number`` go on to ``limit`` and back to 0; whether it was at the last."""
        last = number == limit - 1
        m.d.sync += number.eq(Mux(last, 0, number + 1))
        return last

    def _share(self, m: Module) -> None:
        """Assign a block row per cycle; longest-first (LPT) makes one pass per weight, the heaviest first."""
        spec = self.spec
        weight, longest = Signal(bits_for(spec.depths)), self.policy == POLICIES.index("longest-first")
        last, ends = self._row == self.count - 1, Signal()
        following = Signal.like(self._row)
        ahead = Signal(init=1)  # the first cycle only asks for the first row
        m.d.comb += [
            weight.eq(balanced(lambda one, other: one + other, list(self.memory_data))),
            following.eq(Mux(last, 0, self._row + 1)),
            self.owner.eq(Mux(longest, self._least_loaded(m), self._place)),
            self.owner_row.eq(self._row),
            self.owner_valid.eq(~ahead & (~longest | (weight == self._level))),
            ends.eq(~ahead & last & (~longest | (self._level == 0))),
            self._read.addr.eq(self.owner),
            self._write.en.eq(self.owner_valid),
            self._write.addr.eq(self.owner),
            self._write.data.eq(self._read.data | self.memory_data),
        ]
        m.d.sync += ahead.eq(ends)
        with m.If(~ahead):
            m.d.comb += self.memory_address.eq(self.base + following)
            m.d.sync += self._row.eq(following)
            with m.If(last):
                m.d.sync += self._level.eq(self._level - 1)
        with m.If(self.owner_valid):
            m.d.sync += self._place.eq(Mux(self._place == spec.routers - 1, 0, self._place + 1))
            m.d.sync += self._taken.eq(self._taken | self.memory_data)
        for number, (load, rows) in enumerate(zip(self._loads, self._rows_of, strict=True)):
            with m.If(self.owner_valid & (self.owner == number)):
                m.d.sync += [load.eq(load + weight), rows.eq(rows + 1)]
        with m.If(ends):
            m.d.sync += self._place.eq(0)
            m.next = "GATHER"

    def _least_loaded(self, m: Module) -> Value:
        """The least loaded cluster with room for a row; the lowest number among equals."""
        width = bits_for(self.spec.routers - 1)
        keys: list[Value] = []
        for number, (load, rows) in enumerate(zip(self._loads, self._rows_of, strict=True)):
            key = Signal(width + len(load) + 1, name=f"key_{number}")
            m.d.comb += key.eq(Cat(Const(number, width), load, rows == self._room))
            keys.append(key)
        return balanced(lambda one, other: Mux(other < one, other, one), keys)[:width]

    def _gather(self, m: Module) -> None:
        """Add one cluster's depths per cycle to those behind the same port of this router."""
        column, row = self._coordinates(self._router)
        other_column, other_row = self._coordinates(self._place)
        east, west, north, south = self._sides()
        same = other_column == column
        ways = (
            self._place == self._router,
            east & (other_column > column),
            west & (other_column < column),
            same & north & (other_row > row),
            same & south & (other_row < row),
        )
        m.d.comb += self._read.addr.eq(self._place)
        goes_on = Signal()
        m.d.comb += goes_on.eq(self._place != 0)
        for port, (behind, way) in enumerate(zip(self._behind, ways, strict=True)):
            lies = Signal(name=f"lies_{port}")
            m.d.comb += lies.eq(way)
            kept = behind & goes_on.replicate(self.spec.depths)
            m.d.sync += behind.eq(kept | (self._read.data & lies.replicate(self.spec.depths)))
        with m.If(self._counts(m, self._place, self.spec.routers)):
            m.next = "WRITE"

    def _sides(self) -> list[Value]:
        """Whether packets at this router may go on east or west (only in the source's row), north and south."""
        source_row, source_column = divmod(self.spec.source, self.spec.columns)
        places = [divmod(number, self.spec.columns) for number in range(self.spec.routers)]
        facts = (
            [row == source_row and column >= source_column for row, column in places],
            [row == source_row and column <= source_column for row, column in places],
            [row >= source_row for row, column in places],
            [row <= source_row for row, column in places],
        )
        return [
            Const(sum(fact << number for number, fact in enumerate(each)), len(places)).bit_select(self._router, 1)
            for each in facts
        ]

    def _write_entry(self, m: Module) -> None:
        """The next entry of this router: unicast by coordinates, multicast by the collected depths."""
        spec = self.spec
        m.d.comb += [
            self.table_write.eq(1),
            self.table_router.eq(self._router),
            self.table_id.eq(self._place),
            self.table_ports.eq(
                Mux(self._place < spec.routers, self._single(), Cat(*(behind[0] for behind in self._behind)))
            ),
        ]
        with m.If(self._place >= spec.routers):
            m.d.sync += [behind.eq(behind >> 1) for behind in self._behind]
        with m.If(self._counts(m, self._place, spec.ids)):
            with m.If(self._counts(m, self._router, spec.routers)):
                m.next = "READY"
            with m.Else():
                m.next = "GATHER"

    def _single(self) -> Value:
        """The port towards one endpoint, by dimension-ordered (XY) routing."""
        column, row = self._coordinates(self._router)
        to_column, to_row = self._coordinates(self._place)
        turn = to_column == column
        return Cat(
            self._place == self._router,
            to_column > column,
            to_column < column,
            turn & (to_row > row),
            turn & (to_row < row),
        )

    def _coordinates(self, router: Signal) -> tuple[Value, Value]:
        """Column and row of a router."""
        columns, numbers = self.spec.columns, range(self.spec.routers)
        number = router[: bits_for(self.spec.routers - 1)]
        return Array([each % columns for each in numbers])[number], Array([each // columns for each in numbers])[number]
