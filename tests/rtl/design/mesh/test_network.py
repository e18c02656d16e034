"""Routers wired to a mesh: their model against `acf.sim.mesh`, packet by packet, and the wiring in gates."""

import numpy as np
import pytest

from acf.rtl.design.mesh.network import EAST, LOCAL, NORTH, OPPOSITE, SOUTH, WEST, MeshNetwork, MeshNetworkSpec
from acf.rtl.design.mesh.router import RouterSpec
from acf.rtl.design.mesh.router_model import Flit, RouterModel
from acf.sim.mesh.routing import MulticastGroup, RoutingTable
from acf.sim.mesh.simulate import simulate_packets
from acf.sim.mesh.spec import MeshSpec

LINKS = (EAST, WEST, NORTH, SOUTH)


class ModelledMesh:
    """`RouterModel`s wired like a `MeshNetwork`, with endpoints that send packets of one flit in order."""

    def __init__(self, spec: MeshSpec, table: RoutingTable) -> None:
        ids = table.ports.shape[1]
        router = RouterSpec(ids=ids, virtual_channels=spec.virtual_channels, queue_flits=spec.queue_flits)
        self.shape = MeshNetworkSpec(spec.columns, spec.rows, router)
        self.routers = [RouterModel(router) for _ in range(spec.routers)]
        for model, ports in zip(self.routers, table.ports.tolist(), strict=True):
            model.banks[0][:ids] = ports
        self._room = np.full((spec.routers, spec.virtual_channels), spec.queue_flits)
        self._turn = np.zeros(spec.routers, dtype=int)

    def cycle(self, offered: list[tuple[int, int] | None]) -> tuple[list[bool], list[Flit | None]]:
        """Let a cycle pass; says which offered (id, packet) went in, and what arrived at the endpoints."""
        shown = [model.outputs() for model in self.routers]
        taken, delivered = [], [links[LOCAL] for links, _ in shown]
        for number, model in enumerate(self.routers):
            credit = shown[number][1][LOCAL]
            if credit is not None:
                self._room[number, credit] += 1
            arriving: list[Flit | None] = [self._inject(number, offered[number]), *[None] * 4]
            taken.append(arriving[LOCAL] is not None)
            returned: list[int | None] = [None] * 5
            for port in LINKS:
                behind = self.shape.neighbour(number, port)
                if behind is not None:
                    arriving[port] = shown[behind][0][OPPOSITE[port]]
                    returned[port] = shown[behind][1][OPPOSITE[port]]
            model.step(arriving, returned)
        return taken, delivered

    def _inject(self, number: int, offer: tuple[int, int] | None) -> Flit | None:
        channels = self._room.shape[1]
        for step in range(channels if offer else 0):
            channel = int(self._turn[number] + step) % channels
            if self._room[number, channel]:
                self._room[number, channel] -= 1
                self._turn[number] = (channel + 1) % channels
                return Flit(channel, *offer)
        return None


@pytest.mark.parametrize(("columns", "rows", "seed"), [(2, 2, 0), (3, 3, 1), (4, 2, 2)])
def test_every_packet_arrives_in_the_simulators_cycle(columns: int, rows: int, seed: int) -> None:
    generator, spec = np.random.default_rng(seed), MeshSpec(columns=columns, rows=rows)
    members = [generator.choice(spec.routers, 3, replace=False).tolist() for _ in range(spec.routers)]
    table = RoutingTable.build(spec, [MulticastGroup(source, tuple(to)) for source, to in enumerate(members)])
    packets = 60 * spec.routers
    source = generator.integers(0, spec.routers, packets)
    to_group = generator.random(packets) < 0.3
    route = np.where(to_group, spec.routers + source, generator.integers(0, spec.routers, packets))
    made = np.sort(generator.integers(0, 100, packets))
    expected = simulate_packets(spec, table, source, route, made)
    mesh, arrived = ModelledMesh(spec, table), {}
    waiting = [np.flatnonzero(source == endpoint).tolist() for endpoint in range(spec.routers)]
    for cycle in range(expected.cycles):
        ready = [queue and made[queue[0]] < cycle for queue in waiting]
        offers = [(int(route[queue[0]]), queue[0]) if go else None for queue, go in zip(waiting, ready, strict=True)]
        taken, delivered = mesh.cycle(offers)
        for endpoint, flit in enumerate(delivered):
            if flit is not None:
                arrived[flit.data, endpoint] = cycle + 1
            if taken[endpoint]:
                waiting[endpoint].pop(0)
    of_packet = np.repeat(np.arange(packets), np.diff(expected.first_delivery))
    endpoints = [end for packet in range(packets) for end in table.destinations(int(route[packet]))]
    cycles = dict(zip(zip(of_packet.tolist(), endpoints, strict=True), expected.delivery_cycle.tolist(), strict=True))
    assert arrived == cycles


def test_routers_in_gates_are_wired_like_the_mesh(interpret) -> None:
    small = RouterSpec(virtual_channels=1, queue_flits=2, ids=4, data_bits=8)
    shape = MeshNetworkSpec(2, 2, small)
    table = RoutingTable.build(MeshSpec(columns=2, rows=2))
    network = interpret(MeshNetwork(shape))
    entries = [(router, name, int(table.ports[router, name])) for router in range(4) for name in range(4)]
    router, name, ports = np.array(entries).T
    network.run({"table_write": 1, "table_router": router, "table_id": name, "table_ports": ports})
    network.run({"swap": 1}, cycles=1)
    first = np.arange(14) == 0
    outputs = network.run(
        {"send_valid": first * 0b1111}
        | {f"send_id__{end}": first * (3 - end) for end in range(4)}
        | {f"send_data__{end}": first * (10 + end) for end in range(4)}
    )
    for end in range(4):
        arrivals = np.flatnonzero(outputs[f"receive__{end}__valid"])
        assert arrivals.tolist() == [12]  # two links between opposite corners: 4 (hops + 1)
        assert outputs[f"receive__{end}__data"][12] == 10 + (3 - end)
