"""The fabric on a packet-switched mesh, cycle by cycle: clusters, controllers and routers step together.

Clusters, SCUs, credits and controllers are those of `acf.sim.fabric.stepper`; only the way between them differs.
Credits for places in queues and stores come back on wires of their own, as on the lines.
"""

from typing import NamedTuple

from acf.jit import compiled_in_place, int64
from acf.lowering import FabricShape
from acf.lowering.fabric_shape import SUM_BYTES
from acf.sim.fabric.components.accumulators import Drains
from acf.sim.fabric.components.cluster import Progress
from acf.sim.fabric.components.controller import request
from acf.sim.fabric.components.packet_network import PacketNetwork, run_mesh, start_packet, waiting_flits
from acf.sim.fabric.components.scu import close_accounts, wait_for_memory
from acf.sim.fabric.components.timed_dram import TimedDram, all_written, release, release_writes, run_memory, written_at
from acf.sim.fabric.event_log import EventLog
from acf.sim.fabric.plan import Plan
from acf.sim.fabric.stepper import WAITING, SteppedMachine, begin_tiles, end_tiles, is_empty, may_send
from acf.sim.fabric.traffic import Int64s, Timing, Traffic


class PacketMachine(NamedTuple):
    """The fabric and its packet network; ``flit_cycles``: cycles in which a cluster assembles a flit of results."""

    fabric: SteppedMachine
    network: PacketNetwork
    flit_cycles: int


def step_packets(
    traffic: Traffic, timing: Timing, scu_cycles: Int64s, shape: FabricShape, dram: TimedDram | None = None
) -> int:
    """Cycles of a program; adds to ``scu_cycles [clusters * scus, reasons]``. Without ``dram`` operands are on chip."""
    plan = Plan.of(traffic, timing)
    fabric = SteppedMachine.new(traffic, timing, plan, scu_cycles, dram or TimedDram.off(traffic))
    flit_cycles = shape.result_flit_cycles
    if traffic.reduces:
        flit_cycles = -(-shape.link_bytes // (SUM_BYTES * shape.scus_per_cluster * shape.lanes))
    machine = PacketMachine(fabric, PacketNetwork.new(traffic, timing, shape.link_bytes), flit_cycles)
    return step_machine(traffic, timing, plan, machine, EventLog.off())


@compiled_in_place
def step_machine(traffic: Traffic, timing: Timing, plan: Plan, machine: PacketMachine, log: EventLog) -> int:
    """Step until all packets are sent, all tiles done and all results at the edge; returns the cycles."""
    fabric, network = machine.fabric, machine.network
    time = int64(0)
    while True:
        end_tiles(traffic, timing, plan, fabric, time)
        drain_packets(traffic, plan, fabric.progress, fabric.drains, network, time, machine.flit_cycles)
        inject_packets(traffic, timing, fabric, network, time)
        begin_tiles(traffic, timing, plan, fabric, time, log)
        run_mesh(traffic, network, fabric.lines, fabric.serial, fabric.parallel, time)
        if fabric.dram.ratio > 0:
            run_memory(traffic, timing, fabric.controllers, fabric.dram, time)
        if (
            is_empty(traffic, plan, fabric)
            and network.state.in_flight[0] == 0
            and waiting_flits(network) == 0
            and all_written(fabric.dram)
        ):
            end = close_accounts(fabric.scus, network.last_result[0])
            return wait_for_memory(fabric.scus, end, written_at(fabric.dram))
        time += 1


@compiled_in_place
def inject_packets(traffic: Traffic, timing: Timing, fabric: SteppedMachine, network: PacketNetwork, time: int) -> None:
    """Controllers that have injected a packet begin the next one, if it is there and all destinations have room."""
    controllers = fabric.controllers
    for line in range(traffic.first.size - 1):
        packet = controllers.head[line]
        if packet < traffic.first[line + 1]:
            reason = may_send(traffic, timing, fabric, packet, time)
            if reason != WAITING:
                credits = fabric.queues if traffic.serial[packet] else fabric.stores
                arrivals = fabric.serial if traffic.serial[packet] else fabric.parallel
                for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
                    credits.taken[traffic.copy_cluster[copy]] += 1
                start_packet(traffic, network, fabric.lines, arrivals, packet, time, reason)
                controllers.head[line] += 1
                release_writes(fabric.dram, packet)
        wanted = controllers.requested[line]
        if wanted < traffic.first[line + 1] and wanted - controllers.head[line] < timing.prefetch_packets:
            request(traffic, timing, controllers, fabric.sram, wanted, time)
            if fabric.dram.ratio > 0:
                release(traffic, timing, controllers, fabric.dram, wanted)
            controllers.requested[line] += 1


@compiled_in_place
def drain_packets(
    traffic: Traffic,
    plan: Plan,
    progress: Progress,
    drains: Drains,
    network: PacketNetwork,
    time: int,
    flit_cycles: int,
) -> None:
    """Clusters assemble the results of closed rounds, one flit after another, each when the one before it has left."""
    for cluster in range(drains.round.size):
        while drains.round[cluster] < plan.takes_part.shape[0]:
            number = drains.round[cluster]
            if drains.flits_left[cluster] < 0:
                if not plan.takes_part[number, cluster]:
                    drains.round[cluster] += 1
                    continue
                has_items = plan.has_items[number, cluster]
                if has_items and progress.rounds_done[cluster] < number:
                    break
                drains.flits_left[cluster] = traffic.round_flits[number, cluster] if has_items else 0
                drains.until[cluster] = time + flit_cycles
            if drains.flits_left[cluster] > 0 and drains.until[cluster] <= time and network.waiting[cluster] == 0:
                network.waiting[cluster] = 1
                drains.flits_left[cluster] -= 1
                drains.until[cluster] = time + flit_cycles
            if drains.flits_left[cluster] > 0 or network.waiting[cluster] > 0:
                break
            drains.emptied[cluster] += 1
            drains.round[cluster] += 1
            drains.flits_left[cluster] = -1
