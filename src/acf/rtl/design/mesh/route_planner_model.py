"""`RoutePlanner` cycle by cycle, out of the simulator's own balancers and routing tables."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering.balance import BALANCERS
from acf.rtl.design.mesh.route_planner import PlannerSpec
from acf.sim.mesh.routing import MulticastGroup, RoutingTable
from acf.sim.mesh.spec import MeshSpec


@dataclass(frozen=True)
class PlannerCycle:
    """What a planner shows in a cycle: (row, owner) that it gives, (router, id, ports) that it writes, whether done."""

    gives: tuple[int, int] | None = None
    writes: tuple[int, int, int] | None = None
    ready: bool = False


@dataclass(frozen=True, eq=False)
class RoutePlan:
    """``owners [block rows]``, the table ``ports [routers, ids]``, and the depths that somebody takes ``[depths]``."""

    owners: NDArray[np.int64]
    ports: NDArray[np.uint8]
    needed: NDArray[np.bool_]


def plan_routes(spec: PlannerSpec, blocks: NDArray[np.bool_], policy: str) -> RoutePlan:
    """The plan of a layer with ``blocks [block rows, depths]``, shared by a balancer of `acf.lowering`."""
    owners = BALANCERS[policy].share(blocks.sum(axis=1).astype(np.int64), blocks, spec.routers)
    needed = np.asarray(blocks.any(axis=0))
    destinations = [tuple(sorted(set(owners[blocks[:, depth]].tolist()))) for depth in range(spec.depths)]
    groups = [MulticastGroup(spec.source, members) for members in destinations if members]
    table = RoutingTable.build(MeshSpec(columns=spec.columns, rows=spec.rows), groups)
    ports = np.zeros((spec.routers, spec.ids), dtype=np.uint8)
    ports[:, : spec.routers] = table.ports[:, : spec.routers]
    ports[:, spec.routers + np.flatnonzero(needed)] = table.ports[:, spec.routers :]
    return RoutePlan(owners, ports, needed)


def planner_cycles(spec: PlannerSpec, blocks: NDArray[np.bool_], policy: str) -> list[PlannerCycle]:
    """Every cycle from ``start`` to the first in which the table is ready."""
    plan, count = plan_routes(spec, blocks, policy), len(blocks)
    divide = -(-count // spec.routers) + 1
    cycles = [PlannerCycle()] * (1 + spec.routers + divide)
    if count:
        weights = blocks.sum(axis=1)
        levels = range(spec.depths, -1, -1) if policy == "longest-first" else [None]
        cycles.append(PlannerCycle())  # the first row is asked for
        cycles += [
            PlannerCycle(gives=(row, int(plan.owners[row])) if level in (None, weights[row]) else None)
            for level in levels
            for row in range(count)
        ]
    for router in range(spec.routers):
        cycles += [PlannerCycle()] * spec.routers
        cycles += [PlannerCycle(writes=(router, name, int(plan.ports[router, name]))) for name in range(spec.ids)]
    return [*cycles, PlannerCycle(ready=True)]
