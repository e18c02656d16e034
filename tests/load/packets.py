"""Many packets on a mesh: each arrives once, whole, and in the order of its flow."""

import numpy as np
from numpy.typing import NDArray

from acf.sim.mesh import MeshSpec, RoutingTable, simulate_packets
from tests.load.footprint import MIB, Load, in_tenths

MESHES = (MeshSpec(), MeshSpec(virtual_channels=1))
"""Parts of the load take turns. With one virtual channel the packets of a flow cannot overtake each other."""

FLITS, MEAN_GAP_CYCLES = 2, 0.1
"""Flits of a packet, and cycles between two packets of the whole mesh."""


class Sender:
    """Sends packets between random endpoints, and notes what became of them."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.tables = [RoutingTable.build(spec) for spec in MESHES]
        self.parts = 0
        self.wrong: list[str] = []
        self.latencies: list[float] = []

    def send(self, packets: int) -> None:
        """So many packets on an idle mesh."""
        spec, table = MESHES[self.parts % 2], self.tables[self.parts % 2]
        self.parts += 1
        source, destination = self.random.integers(0, spec.routers, (2, packets))
        made = np.sort(self.random.integers(0, max(1, int(packets * MEAN_GAP_CYCLES)), packets))
        run = simulate_packets(spec, table, source, destination, made, FLITS)
        hops = np.abs(source % spec.columns - destination % spec.columns)
        hops += np.abs(source // spec.columns - destination // spec.columns)
        self.latencies.append(float((run.arrival_cycle - made).mean()))
        if run.delivered_flits.size != packets or not (run.delivered_flits == FLITS).all():
            self.wrong.append(f"{int((run.delivered_flits != FLITS).sum())} of {packets} packets did not arrive whole")
        if not (run.arrival_cycle - made >= hops).all():
            self.wrong.append("a packet arrived sooner than its hops allow")
        if run.flit_hops != FLITS * int(hops.sum()):
            self.wrong.append(f"links carried {run.flit_hops} flits, and {FLITS * int(hops.sum())} were sent over them")
        if overtaken := _overtaken(source, run.entry_cycle):
            self.wrong.append(f"{overtaken} packets left their source before an earlier one")
        if spec.virtual_channels == 1 and (
            overtaken := _overtaken(source * spec.routers + destination, run.arrival_cycle)
        ):
            self.wrong.append(f"{overtaken} packets overtook an earlier one of their flow")


def load_packets(count: int) -> Load:
    """``count`` packets, a tenth in every run of a mesh."""
    sender = Sender()
    sender.send(1000)  # compile
    sender.send(1000)
    seconds, early, late = in_tenths(count, sender.send)
    return Load(
        "packets on a mesh of 8 x 8",
        count,
        seconds,
        (late.resident_bytes - early.resident_bytes) / MIB,
        late.open_files - early.open_files,
        {"mean latency of the first part, cycles": sender.latencies[2], "of the ninth": sender.latencies[-2]},
        sender.wrong,
    )


def _overtaken(group: NDArray[np.int64], cycle: NDArray[np.int64]) -> int:
    """Entries whose cycle is not after that of the entry before in their group."""
    order = np.argsort(group, kind="stable")
    same = group[order][1:] == group[order][:-1]
    return int((np.diff(cycle[order])[same] <= 0).sum())
