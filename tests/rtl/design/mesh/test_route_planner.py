"""The controller that computes routing tables, against the simulator's balancers and tables, and in front of a mesh."""

import numpy as np
import pytest
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.rtl.design.mesh.planned_mesh import PlannedMesh
from acf.rtl.design.mesh.route_planner import POLICIES, PlannerSpec, RoutePlanner
from acf.rtl.design.mesh.route_planner_model import PlannerCycle, plan_routes, planner_cycles
from acf.rtl.design.mesh.router import RouterSpec
from acf.rtl.verify.benches.memory_bench import WithMemory

Blocks = NDArray[np.bool_]


def words(blocks: Blocks) -> list[int]:
    return [sum(1 << depth for depth in np.flatnonzero(row).tolist()) for row in blocks]


def random_blocks(seed: int, rows: int, depths: int) -> Blocks:
    generator = np.random.default_rng(seed)
    return generator.random((rows, depths)) < generator.choice((0.1, 0.4, 0.9))


SHAPES = [PlannerSpec(), PlannerSpec(3, 2, 13, 9, source=4), PlannerSpec(4, 1, 6, 5, source=2)]


def shown(seen: dict[str, NDArray[np.uint64]]) -> list[PlannerCycle]:
    """What a planner in gates showed, as its model says it."""
    given = zip(*(seen[name].tolist() for name in ("owner_row", "owner")), strict=True)
    written = zip(*(seen[name].tolist() for name in ("table_router", "table_id", "table_ports")), strict=True)
    each = zip(seen["owner_valid"], given, seen["table_write"], written, seen["ready"], strict=True)
    return [
        PlannerCycle(gives if has_owner else None, writes if has_entry else None, bool(ready))
        for has_owner, gives, has_entry, writes, ready in each
    ]


@pytest.mark.parametrize("spec", SHAPES, ids=["2 x 2", "3 x 2, source inside", "a line"])
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_shared_and_the_table_written_as_the_simulator_does(simulate, spec: PlannerSpec, policy: str) -> None:
    layers = [random_blocks(seed, rows, spec.depths) for seed, rows in enumerate((spec.block_rows, 5, 1, 0))]
    first = np.cumsum([0, *map(len, layers)])
    planner = simulate(WithMemory(RoutePlanner(spec), words(np.concatenate(layers))))
    for layer, base in zip(layers, first, strict=False):
        expected = planner_cycles(spec, layer, policy)
        held = {"policy": POLICIES.index(policy), "base": int(base), "count": len(layer)}
        seen = planner.run({"start": np.arange(len(expected)) == 0, **held})
        assert shown(seen) == expected
        assert not seen["swap"].any()
        swapped = planner.run({"boundary": 1, "mesh_idle": [0, 0, 1, 1]})
        assert swapped["swap"].tolist() == [0, 0, 1, 0]
        assert swapped["needed"][-1] == words(layer.any(axis=0)[None])[0]


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
    owners = plan_routes(spec, blocks, policy).owners
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
