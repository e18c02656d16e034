"""The controller that computes routing tables, against the simulator's balancers and tables, and in front of a mesh."""

import numpy as np
import pytest
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.program.balance import BALANCERS
from acf.rtl.memory_bench import WithMemory
from acf.rtl.units.planned_mesh import PlannedMesh
from acf.rtl.units.route_planner import POLICIES, PlannerSpec, RoutePlanner
from acf.rtl.units.router import RouterSpec
from acf.sim.mesh.routing import MulticastGroup, RoutingTable
from acf.sim.mesh.spec import MeshSpec

Blocks = NDArray[np.bool_]


def words(blocks: Blocks) -> list[int]:
    return [sum(1 << depth for depth in np.flatnonzero(row).tolist()) for row in blocks]


def expected_plan(spec: PlannerSpec, blocks: Blocks, policy: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Owners by `acf.program`'s balancer, and the table of `acf.sim.mesh`, ``[routers, ids]``."""
    owners = BALANCERS[policy].share(blocks.sum(axis=1).astype(np.int64), blocks, spec.routers)
    ports = np.zeros((spec.routers, spec.ids), dtype=np.uint8)
    mesh = MeshSpec(columns=spec.columns, rows=spec.rows)
    for depth in range(spec.depths):
        takers = tuple(sorted(set(owners[blocks[:, depth]].tolist())))
        table = RoutingTable.build(mesh, [MulticastGroup(spec.source, takers)] if takers else [])
        ports[:, : spec.routers] = table.ports[:, : spec.routers]
        if takers:
            ports[:, spec.routers + depth] = table.ports[:, -1]
    return owners, ports


def random_blocks(seed: int, rows: int, depths: int) -> Blocks:
    generator = np.random.default_rng(seed)
    return generator.random((rows, depths)) < generator.choice((0.1, 0.4, 0.9))


SHAPES = [PlannerSpec(), PlannerSpec(3, 2, 13, 9, source=4), PlannerSpec(4, 1, 6, 5, source=2)]


@pytest.mark.parametrize("spec", SHAPES, ids=["2 x 2", "3 x 2, source inside", "a line"])
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_shared_and_the_table_written_as_the_simulator_does(simulate, spec: PlannerSpec, policy: str) -> None:
    layers = [random_blocks(seed, rows, spec.depths) for seed, rows in enumerate((spec.block_rows, 5, 1))]
    base = np.cumsum([0, *map(len, layers)])
    planner = simulate(WithMemory(RoutePlanner(spec), words(np.concatenate(layers))))
    for layer, first in zip(layers, base, strict=False):
        cycles = 40 + len(layer) * (spec.depths + 2) + spec.routers * (spec.routers + spec.ids)
        held = {"policy": POLICIES.index(policy), "base": int(first), "count": len(layer)}
        seen = planner.run({"start": np.arange(cycles) == 0, **held}, cycles)
        owners, ports = expected_plan(spec, layer, policy)
        gives = seen["owner_valid"] == 1
        assert dict(zip(seen["owner_row"][gives].tolist(), seen["owner"][gives].tolist(), strict=True)) == dict(
            enumerate(owners.tolist())
        )
        assert int(gives.sum()) == len(layer)
        written = np.zeros_like(ports)
        writes = seen["table_write"] == 1
        written[seen["table_router"][writes], seen["table_id"][writes]] = seen["table_ports"][writes]
        assert int(writes.sum()) == ports.size
        assert np.array_equal(written, ports)
        assert seen["ready"][-1]
        assert not seen["swap"].any()
        swapped = planner.run({"boundary": 1, "mesh_idle": [0, 0, 1, 1]})["swap"]
        assert swapped.tolist() == [0, 0, 1, 0]


def step(mesh, spec: PlannerSpec, cycles: int = 60) -> dict[int, list[int]]:
    """Send a packet of every needed depth from the source; the depths that each endpoint receives, sorted."""
    known = int(mesh.run({}, 1)["needed"][0])
    waiting = [depth for depth in range(spec.depths) if known >> depth & 1]
    received: dict[int, list[int]] = {end: [] for end in range(spec.routers)}
    for _ in range(cycles):
        offer = waiting[0] if waiting else 0
        seen = mesh.run(
            {
                "send_valid": [int(bool(waiting)) << spec.source],
                f"send_id__{spec.source}": [spec.routers + offer],
                f"send_data__{spec.source}": [offer],
            }
        )
        if waiting and int(seen["send_ready"][0]) >> spec.source & 1:
            waiting.pop(0)
        for end in range(spec.routers):
            if seen[f"receive__{end}__valid"][0]:
                received[end].append(int(seen[f"receive__{end}__data"][0]))
    assert not waiting
    return {end: sorted(depths) for end, depths in received.items()}


def needed(spec: PlannerSpec, blocks: Blocks, policy: str) -> dict[int, list[int]]:
    """The depths that every cluster's rows have a block at."""
    owners, _ = expected_plan(spec, blocks, policy)
    return {end: np.flatnonzero(blocks[owners == end].any(axis=0)).tolist() for end in range(spec.routers)}


def test_a_step_goes_by_the_old_table_and_the_next_by_the_new_one(simulate) -> None:
    spec = PlannerSpec(block_rows=6, depths=6)
    old, new = random_blocks(3, 6, 6), random_blocks(4, 6, 6)
    router = RouterSpec(virtual_channels=1, queue_flits=2, data_bits=8)
    mesh = simulate(WithMemory(PlannedMesh(spec, router), words(np.concatenate([old, new]))))

    def plan(base: int, policy: int) -> None:
        seen = mesh.run({"start": np.arange(160) == 0, "policy": policy, "base": base, "count": 6}, 160)
        assert seen["ready"][-1]

    plan(0, 0)
    assert mesh.run({"boundary": 1}, 1)["swap"][0]
    assert step(mesh, spec) == needed(spec, old, "round-robin")
    plan(6, 1)  # computed and written while the old table is in use
    assert step(mesh, spec) == needed(spec, old, "round-robin")
    assert mesh.run({"boundary": 1}, 1)["swap"][0]
    assert step(mesh, spec) == needed(spec, new, "longest-first")
    assert needed(spec, old, "round-robin") != needed(spec, new, "longest-first")


def test_a_table_waits_for_the_mesh_to_be_empty(interpret) -> None:
    spec = PlannerSpec(block_rows=4, depths=4)
    router = RouterSpec(virtual_channels=1, queue_flits=2, data_bits=8)
    mesh = interpret(WithMemory(PlannedMesh(spec, router), words(random_blocks(0, 4, 4))))
    assert mesh.run({"start": np.arange(140) == 0, "count": 4}, 140)["ready"][-1]
    assert mesh.run({"boundary": 1}, 1)["swap"][0]
    assert mesh.run({"start": np.arange(140) == 0, "count": 4}, 140)["ready"][-1]
    mesh.run({"send_valid": [1], "send_id__0": [3], "send_data__0": [7]})
    seen = mesh.run({"boundary": 1}, 20)
    arrives, swaps = np.flatnonzero(seen["receive__3__valid"]), np.flatnonzero(seen["swap"])
    assert arrives.size == swaps.size == 1
    assert swaps[0] > arrives[0]


def test_a_source_outside_the_mesh_is_refused() -> None:
    with pytest.raises(RtlError, match="source 4 is none of 4 routers"):
        PlannerSpec(source=4)
