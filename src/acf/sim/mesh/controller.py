"""The controller that recomputes the routing table: its cycles, and the two banks it writes."""

from dataclasses import dataclass, field

from acf.errors import ArchitectureError
from acf.sim.mesh.routing import MulticastGroup, RoutingTable
from acf.sim.mesh.spec import ENDPOINT_CYCLES, ROUTER_CYCLES, MeshSpec

SETUP_CYCLES = 4
"""Assumed: to fetch a group's record, clear the column registers, and close it."""

DESTINATION_CYCLES = 1
"""Assumed: to widen the span of rows that a destination's column must reach."""

ENTRY_CYCLES = 1
"""Assumed: to send one table entry into the mesh, as a flit of its own from the controller's endpoint."""


@dataclass(frozen=True)
class TableUpdate:
    """The work of one recomputation, and its cycles."""

    groups: int
    destinations: int
    entries: int
    cycles: int


def table_update_cycles(spec: MeshSpec, groups: int, destinations: int, entries: int) -> int:
    """Controller cycles to compute and write ``entries`` entries of ``groups`` groups with ``destinations`` in all.

    A tree along a row and then along columns is known from the row, and for every column the span of rows its
    destinations need; so the controller spends a cycle per destination to widen a span and one per entry to write
    it. Entries travel through the mesh one behind another, so the last one adds its way to the farthest router, and
    the order to swap banks makes that way once more.
    """
    work = groups * SETUP_CYCLES + destinations * DESTINATION_CYCLES + entries * ENTRY_CYCLES
    return work + 2 * farthest_cycles(spec) if groups else 0


def most_table_update_cycles(spec: MeshSpec, groups: int) -> int:
    """`table_update_cycles` when every group reaches every router: linear in groups x routers.

    >>> most_table_update_cycles(MeshSpec(columns=8, rows=8), 100)
    13324
    """
    return table_update_cycles(spec, groups, groups * spec.routers, groups * spec.routers)


def farthest_cycles(spec: MeshSpec) -> int:
    """Cycles of a flit from the first router to the last in an empty mesh."""
    return ROUTER_CYCLES * (spec.columns + spec.rows - 1) + ENDPOINT_CYCLES


@dataclass
class TableBanks:
    """Two tables in every router: one is read while the other is written; `swap` exchanges them.

    Flits look up the table when they become first in a queue, so banks may be swapped only while no flit of a group
    that changes is on its way: between two steps of training.
    """

    active: RoutingTable
    shadow: RoutingTable | None = None
    in_shadow: RoutingTable | None = field(default=None, repr=False)  # what the idle bank held before it was written

    def prepare(self, groups: tuple[MulticastGroup, ...]) -> TableUpdate:
        """Compute and write the idle bank; entries that it already holds are not written again."""
        table = RoutingTable.build(self.active.spec, groups)
        entries = table.entries_written(self.in_shadow)
        destinations = sum(len(group.destinations) for group in groups)
        self.shadow = self.in_shadow = table
        cycles = table_update_cycles(table.spec, len(groups), destinations, entries)
        return TableUpdate(groups=len(groups), destinations=destinations, entries=entries, cycles=cycles)

    def swap(self) -> None:
        """Read from the bank that was written last."""
        if self.shadow is None:
            raise ArchitectureError("the idle bank holds no new table; call prepare before swap")
        self.active, self.in_shadow, self.shadow = self.shadow, self.active, None
