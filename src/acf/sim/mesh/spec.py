"""A mesh: its size, its queues, and the latencies of flits and credits."""

from dataclasses import dataclass, fields

from acf.errors import ArchitectureError

LOCAL, EAST, WEST, NORTH, SOUTH, PORTS = range(6)
"""Ports of a router; the last is their number. East is one column on, north one row on."""

MOST = 1 << 16
"""Of the routers of a mesh, and of anything that one of them has: the simulator holds all of it."""


@dataclass(frozen=True, kw_only=True)
class MeshSpec:
    """``columns`` x ``rows`` routers with one endpoint each, numbered row by row.

    A router has five inputs of ``virtual_channels`` queues of ``queue_flits`` flits. A flit spends one cycle each in
    virtual-channel allocation, switch allocation, the crossbar and the link: four per router without contention, and
    two at the endpoints. A credit is usable ``credit_delay_cycles`` + 2 cycles after its flit has won the crossbar: one
    to be made, one on the wire, the rest to be counted.
    """

    columns: int = 8
    rows: int = 8
    virtual_channels: int = 2
    queue_flits: int = 4
    credit_delay_cycles: int = 1
    flit_bytes: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or not 1 <= value <= MOST:
                raise ArchitectureError(
                    f"{field.name} {str(value)[:40]} is no whole number from 1 to {MOST}; give a mesh one of these"
                )
        if self.routers > MOST:
            raise ArchitectureError(
                f"a mesh of {self.columns} x {self.rows} has more than {MOST} routers; use fewer columns or rows"
            )
        if self.virtual_channels > MAXIMUM_VIRTUAL_CHANNELS:
            raise ArchitectureError(
                f"virtual_channels {self.virtual_channels} exceeds {MAXIMUM_VIRTUAL_CHANNELS}; use fewer"
            )

    @property
    def routers(self) -> int:
        """Routers, and endpoints."""
        return self.columns * self.rows

    @property
    def links(self) -> int:
        """One-way links between routers."""
        return 2 * (self.rows * (self.columns - 1) + self.columns * (self.rows - 1))

    def neighbour(self, router: int, port: int) -> int:
        """The router behind an output port; -1 at the edge of the mesh and behind the local port.

        >>> MeshSpec(columns=3, rows=2).neighbour(1, NORTH)
        4
        """
        column, row = router % self.columns, router // self.columns
        if port == EAST and column + 1 < self.columns:
            return router + 1
        if port == WEST and column > 0:
            return router - 1
        if port == NORTH and row + 1 < self.rows:
            return router + self.columns
        if port == SOUTH and row > 0:
            return router - self.columns
        return -1

    def hops(self, source: int, destination: int) -> int:
        """Links between two routers."""
        across = abs(source % self.columns - destination % self.columns)
        return across + abs(source // self.columns - destination // self.columns)


MAXIMUM_VIRTUAL_CHANNELS = 6
"""The requests of all input queues of a router are the bits of one word."""

OPPOSITE = (LOCAL, WEST, EAST, SOUTH, NORTH)
"""The input port that an output port leads to."""

ROUTER_CYCLES = 4
"""Cycles of a flit per router: two allocations, crossbar, link."""

ENDPOINT_CYCLES = 2
"""Cycles of a flit at the endpoints: from its creation to the first queue, and after the last link."""
