"""Routing tables: for every router, which output ports a destination or a multicast group leaves by."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.jit import compiled
from acf.sim.mesh.spec import EAST, LOCAL, NORTH, SOUTH, WEST, MeshSpec

STRIDES = (0, 1, -1, 1, -1)
"""Columns, or rows, that lie behind each port."""


@dataclass(frozen=True)
class MulticastGroup:
    """Endpoints that get a copy of what one endpoint sends."""

    source: int
    destinations: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """``ports [routers, ids]``, uint8: bit p is set where a flit of that id leaves by port p.

    Ids below ``routers`` are endpoints; id ``routers + g`` is group g. Routes go along a row first, then along a column
    (dimension order); a group's tree is the union of the routes to its destinations, so a flit is copied where they
    part. ``place [ids, routers]`` is the position of an endpoint among the destinations of an id, -1 where it is none.
    """

    spec: MeshSpec
    ports: NDArray[np.uint8]
    groups: tuple[MulticastGroup, ...]
    place: NDArray[np.int32] = field(repr=False)

    @classmethod
    def build(cls, spec: MeshSpec, groups: Sequence[MulticastGroup] = ()) -> "RoutingTable":
        """The table of all endpoints and of the given groups."""
        routers = spec.routers
        ports = np.zeros((routers, routers + len(groups)), dtype=np.uint8)
        place = np.full((routers + len(groups), routers), -1, dtype=np.int32)
        ports[:, :routers] = 1 << _next_ports(spec)
        np.fill_diagonal(place, 0)
        for group in groups:
            _check_group(spec, group)
        sources = np.array([group.source for group in groups], dtype=np.int64)
        sizes = [0, *(len(group.destinations) for group in groups)]
        members = np.array([member for group in groups for member in group.destinations], dtype=np.int64)
        add_groups(spec.columns, sources, np.cumsum(sizes), members, ports, place)
        return cls(spec=spec, ports=ports, groups=tuple(groups), place=place)

    def id_of_group(self, group: int) -> int:
        """What a packet for a group is addressed to."""
        return self.spec.routers + group

    def destinations(self, route_id: int) -> tuple[int, ...]:
        """Endpoints that a packet of this id reaches."""
        if not 0 <= route_id < self.ports.shape[1]:
            raise ArchitectureError(
                f"id {route_id} is not in the routing table of {self.ports.shape[1]}; use an endpoint or a group of it"
            )
        return (route_id,) if route_id < self.spec.routers else self.groups[route_id - self.spec.routers].destinations

    def entries_written(self, before: "RoutingTable | None" = None) -> int:
        """Group entries that differ from those of the table in use, which is what a controller has to write.

        Routes to single endpoints never change: they are computed from the coordinates, not stored.
        """
        mine = self.ports[:, self.spec.routers :]
        if before is None:
            return int(np.count_nonzero(mine))
        theirs = before.ports[:, self.spec.routers :]
        width = max(mine.shape[1], theirs.shape[1])
        padded = [np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in (mine, theirs)]
        return int(np.count_nonzero(padded[0] != padded[1]))


def route(spec: MeshSpec, source: int, destination: int) -> list[tuple[int, int]]:
    """(router, output port) along the way, the last of them local.

    >>> route(MeshSpec(columns=2, rows=2), 0, 3)
    [(0, 1), (1, 3), (3, 0)]
    """
    steps, router = [], source
    while True:
        port = next_port(spec.columns, router, destination)
        steps.append((router, port))
        if port == LOCAL:
            return steps
        router = spec.neighbour(router, port)


@compiled
def add_groups(
    columns: int,
    sources: NDArray[np.int64],
    first_member: NDArray[np.int64],
    members: NDArray[np.int64],
    ports: NDArray[np.uint8],
    place: NDArray[np.int32],
) -> None:
    """Write the trees of groups, whose destinations are ``members[first_member[g] : first_member[g + 1]]``."""
    routers = ports.shape[0]
    for group in range(sources.size):
        for index in range(first_member[group], first_member[group + 1]):
            place[routers + group, members[index]] = index - first_member[group]
            router = sources[group]
            while True:
                port = next_port(columns, router, members[index])
                ports[router, routers + group] |= np.uint8(1 << port)
                if port == LOCAL:
                    break
                router += STRIDES[port] * (columns if port >= NORTH else 1)


@compiled
def next_port(columns: int, router: int, destination: int) -> int:
    """The output by which a router sends a flit on to a destination: along the row first."""
    across = destination % columns - router % columns
    along = destination // columns - router // columns
    if across:
        return EAST if across > 0 else WEST
    if along:
        return NORTH if along > 0 else SOUTH
    return LOCAL


def _next_ports(spec: MeshSpec) -> NDArray[np.uint8]:
    """`next_port` for all pairs: ``[routers, destinations]``."""
    numbers = np.arange(spec.routers)
    across = numbers[None, :] % spec.columns - numbers[:, None] % spec.columns
    along = numbers[None, :] // spec.columns - numbers[:, None] // spec.columns
    vertical = np.where(along > 0, NORTH, np.where(along < 0, SOUTH, LOCAL))
    return np.where(across > 0, EAST, np.where(across < 0, WEST, vertical)).astype(np.uint8)


def _check_group(spec: MeshSpec, group: MulticastGroup) -> None:
    members = (group.source, *group.destinations)
    outside = [member for member in members if not 0 <= member < spec.routers]
    if outside:
        raise ArchitectureError(
            f"endpoint {outside[0]} of a group is not in the mesh of {spec.routers}; use one that is"
        )
    if not group.destinations or len(set(group.destinations)) != len(group.destinations):
        raise ArchitectureError(
            f"group destinations {group.destinations} are empty or named twice; name each destination once"
        )
