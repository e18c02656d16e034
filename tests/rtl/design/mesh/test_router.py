"""The router: equal to its model in every cycle, under neighbours that keep to their credits."""

from collections import Counter

import numpy as np
import pytest

from acf.rtl.design.mesh.router import MeshRouter, RouterSpec
from acf.rtl.design.mesh.router_model import Flit, RouterModel

SMALL = RouterSpec(ports=3, virtual_channels=1, queue_flits=2, ids=8, data_bits=16)
MESH = RouterSpec(ids=16, data_bits=16)


class Neighbours:
    """Random senders and receivers around a `RouterModel`; keeps what they did and what the model answered."""

    def __init__(self, spec: RouterSpec, cycles: int, load: float, seed: int) -> None:
        self.spec, self.model = spec, RouterModel(spec)
        self._random, self._load = np.random.default_rng(seed), load
        self._room = np.full((spec.ports, spec.virtual_channels), spec.queue_flits)
        self._owed = np.zeros_like(self._room)
        self.inputs: dict[str, np.ndarray] = {}
        self.expected: list[tuple[list[Flit | None], list[int | None], bool]] = []
        self.sent: Counter[tuple[int, int]] = Counter()
        self.received: Counter[tuple[int, int]] = Counter()
        self._cycles = cycles
        for cycle in range(cycles):
            self._cycle(cycle)

    def _drive(self, cycle: int, **values: int) -> None:
        for name, value in values.items():
            self.inputs.setdefault(name, np.zeros(self._cycles, dtype=np.uint64))[cycle] = value

    def _cycle(self, cycle: int) -> None:
        links, credits = self.model.outputs()
        self.expected.append((links, credits, self.model.idle))
        for port, (flit, channel) in enumerate(zip(links, credits, strict=True)):
            if channel is not None:
                self._room[port, channel] += 1
            if flit is not None:
                self._owed[port, flit.channel] += 1
                self.received[port, flit.data] += 1
        if cycle <= self.spec.ids:
            self._set_up(cycle)
            return
        quiet = cycle > 0.8 * self._cycles
        arriving = [None if quiet else self._send(cycle, port) for port in range(self.spec.ports)]
        returned = [self._return(cycle, port) for port in range(self.spec.ports)]
        self.model.step(arriving, returned)

    def _set_up(self, cycle: int) -> None:
        """Write the table, some entries multicast, then swap it in."""
        nothing = [None] * self.spec.ports
        if cycle == self.spec.ids:
            self._drive(cycle, swap=1)
            self.model.step(nothing, nothing, swap=True)
            return
        single, several = 1 << self._random.integers(self.spec.ports), self._random.integers(1, 1 << self.spec.ports)
        outputs = int(several if self._random.random() < 0.4 else single)
        self._drive(cycle, table_write=1, table_id=cycle, table_ports=outputs)
        self.model.step(nothing, nothing, write=(cycle, outputs))

    def _send(self, cycle: int, port: int) -> Flit | None:
        channel = int(self._random.integers(self.spec.virtual_channels))
        if self._random.random() >= self._load or not self._room[port, channel]:
            return None
        self._room[port, channel] -= 1
        flit = Flit(channel, int(self._random.integers(self.spec.ids)), cycle * self.spec.ports + port)
        name = f"inputs__{port}"
        values = {"valid": 1, "channel": flit.channel, "id": flit.id, "data": flit.data}
        self._drive(cycle, **{f"{name}__{part}": value for part, value in values.items()})
        outputs = self.model.banks[self.model.bank][flit.id]
        self.sent.update((out, flit.data) for out in range(self.spec.ports) if outputs >> out & 1)
        return flit

    def _return(self, cycle: int, port: int) -> int | None:
        channel = int(self._random.integers(self.spec.virtual_channels))
        if port == 0 or self._random.random() < 0.4 or not self._owed[port, channel]:
            return None
        self._owed[port, channel] -= 1
        self._drive(cycle, **{f"credits_in__{port}__valid": 1, f"credits_in__{port}__channel": channel})
        return channel


@pytest.mark.parametrize("seed", [0, 1])
def test_the_model_delivers_every_flit_once_to_each_of_its_outputs(seed: int) -> None:
    neighbours = Neighbours(MESH, 1_000, load=0.6, seed=seed)
    assert neighbours.received == neighbours.sent
    assert max(neighbours.received.values()) == 1
    assert neighbours.model.idle


def test_the_router_equals_its_model_in_every_cycle(simulate) -> None:
    check_router(simulate, MESH)


def test_a_small_router_equals_its_model_in_every_cycle(interpret) -> None:
    check_router(interpret, SMALL)


def check_router(simulate, spec: RouterSpec) -> None:
    simulation = simulate(MeshRouter(spec))
    neighbours = Neighbours(spec, 1_500 if simulation.backend == "verilator" else 120, load=0.7, seed=2)
    outputs = simulation.run(neighbours.inputs, len(neighbours.expected))
    for cycle, (links, credits, idle) in enumerate(neighbours.expected):
        for port in range(spec.ports):
            parts = [int(outputs[f"outputs__{port}__{part}"][cycle]) for part in ("channel", "id", "data")]
            flit = Flit(*parts) if outputs[f"outputs__{port}__valid"][cycle] else None
            assert flit == links[port], f"output {port} in cycle {cycle}"
            name = f"credits_out__{port}"
            channel = int(outputs[f"{name}__channel"][cycle]) if outputs[f"{name}__valid"][cycle] else None
            assert channel == credits[port], f"credit of input {port} in cycle {cycle}"
        assert outputs["idle"][cycle] == idle


def test_a_flit_takes_four_cycles_through_an_empty_router(interpret) -> None:
    simulation = interpret(MeshRouter(SMALL))
    simulation.run({"table_write": 1, "table_id": 3, "table_ports": 0b100}, cycles=1)
    simulation.run({"swap": 1}, cycles=1)
    arrives = np.arange(8) == 0
    outputs = simulation.run(
        {"inputs__1__valid": arrives, "inputs__1__id": arrives * 3, "inputs__1__data": arrives * 9}
    )
    assert np.flatnonzero(outputs["outputs__2__valid"]).tolist() == [4]
    assert outputs["outputs__2__data"][4] == 9
    assert not outputs["outputs__0__valid"].any()
