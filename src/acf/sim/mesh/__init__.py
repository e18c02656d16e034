"""The mesh: packets between endpoints, routing tables, and what long flows reach."""

from acf.sim.mesh.controller import TableBanks, TableUpdate, most_table_update_cycles, table_update_cycles
from acf.sim.mesh.estimate import FlowEstimate, estimate_flows, estimate_latency, link_flits
from acf.sim.mesh.routing import MulticastGroup, RoutingTable, route
from acf.sim.mesh.simulate import MeshRun, simulate_packets
from acf.sim.mesh.spec import MeshSpec

__all__ = [
    "FlowEstimate",
    "MeshRun",
    "MeshSpec",
    "MulticastGroup",
    "RoutingTable",
    "TableBanks",
    "TableUpdate",
    "estimate_flows",
    "estimate_latency",
    "link_flits",
    "most_table_update_cycles",
    "route",
    "simulate_packets",
    "table_update_cycles",
]
