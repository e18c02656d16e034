"""The event engine: when everything on the fabric happens, without stepping through cycles.

Every link has one sender, every queue is served in order, and a packet leaves its controller only when all its
destinations have room. So each event is the latest of a few earlier ones, and one pass over the packets in order
gives exact times. `acf.sim.fabric.stepper` is the same machine cycle by cycle; the two agree to the cycle, except where
controllers share a memory: there a request can be visited before an earlier one, and they agree to a few percent.
"""

from typing import NamedTuple

from acf.jit import compiled_in_place, inlined
from acf.sim.fabric.components.accumulators import Banks, at_edge, result_flits, sum_cycles
from acf.sim.fabric.components.cluster import LatestTiles
from acf.sim.fabric.components.controller import Controllers, request, window_place
from acf.sim.fabric.components.credit import Credits, credit_at, give_back
from acf.sim.fabric.components.line import Lines, arrival, hops, occupy_link
from acf.sim.fabric.components.scu import Scus, begin_tile, close_accounts, wait_for_memory
from acf.sim.fabric.components.shared_dram import SharedDram, request_shared, write_back
from acf.sim.fabric.components.sram_banks import SramBanks
from acf.sim.fabric.recorder import Recorder, is_on, record_send, record_tiles
from acf.sim.fabric.traffic import DRAIN, FILL, IMBALANCE, MESH, Int64s, Timing, Traffic


class EventMachine(NamedTuple):
    """The fabric as the event engine keeps it: the cycle at which each resource is next free."""

    controllers: Controllers
    lines: Lines
    queues: Credits
    stores: Credits
    clusters: LatestTiles
    scus: Scus
    banks: Banks
    sram: SramBanks
    dram: SharedDram

    @classmethod
    def new(cls, traffic: Traffic, timing: Timing, scu_cycles: Int64s) -> "EventMachine":
        """An idle fabric that accounts in ``scu_cycles``."""
        clusters = timing.mesh_rows * timing.mesh_columns
        return cls(
            controllers=Controllers.new(traffic, timing),
            lines=Lines.new(traffic),
            queues=Credits.new(clusters, timing.queue_packets),
            stores=Credits.new(clusters, timing.parallel_slots),
            clusters=LatestTiles.new(clusters),
            scus=Scus.new(clusters, traffic.item_cycles.shape[1], scu_cycles),
            banks=Banks.new(clusters),
            sram=SramBanks.new(traffic),
            dram=SharedDram.new(traffic, timing),
        )


def play_program(traffic: Traffic, timing: Timing, scu_cycles: Int64s) -> int:
    """Cycles of a program; adds to ``scu_cycles [clusters * scus, reasons]``."""
    return visit_packets(traffic, timing, EventMachine.new(traffic, timing, scu_cycles), Recorder.off())


@compiled_in_place
def visit_packets(traffic: Traffic, timing: Timing, machine: EventMachine, recorder: Recorder) -> int:
    """Send and deliver all packets, k-step by k-step; returns the cycles of the program."""
    k_steps, end = traffic.round_of_k_step.size, 0
    fill_windows(traffic, timing, machine)
    for k_step in range(k_steps):
        for index in range(traffic.k_step_first[k_step], traffic.k_step_first[k_step + 1]):
            packet = traffic.order[index]
            link_free = machine.lines.link_free[traffic.line[packet]]
            ready = machine.controllers.ready_at[traffic.line[packet], window_place(traffic, timing, packet)]
            sent, reason = send(traffic, timing, machine, packet)
            if traffic.serial[packet]:
                deliver_serial(traffic, timing, machine, packet, sent, reason)
            else:
                deliver_parallel(traffic, timing, machine, packet, sent, reason)
            if is_on(recorder):
                record_send(traffic, timing, recorder, packet, ready, link_free, sent, reason)
                if traffic.serial[packet]:
                    record_tiles(traffic, machine.scus, recorder, packet)
        close_k_step(traffic, timing, machine)
        number = traffic.round_of_k_step[k_step]
        if k_step + 1 == k_steps or traffic.round_of_k_step[k_step + 1] != number:
            end = max(end, close_round(traffic, timing, machine, number))
    end = close_accounts(machine.scus, end)
    if is_on(recorder):
        recorder.counts[2] = end
    return wait_for_memory(machine.scus, end, machine.dram.end[0])


@compiled_in_place
def fill_windows(traffic: Traffic, timing: Timing, machine: EventMachine) -> None:
    """Request the first packets of every controller, as many as it prefetches, one per cycle and controller."""
    for place in range(timing.prefetch_packets):
        for line in range(traffic.first.size - 1):
            fetch(traffic, timing, machine, line, traffic.first[line] + place, 0)


@inlined
def fetch(traffic: Traffic, timing: Timing, machine: EventMachine, line: int, packet: int, earliest: int) -> None:
    """Request a packet of a line, if it has that many, a cycle after the one before it or at ``earliest``."""
    if packet < traffic.first[line + 1]:
        controllers = machine.controllers
        requested = max(controllers.next_request[line], earliest)
        controllers.next_request[line] = requested + 1
        request(traffic, timing, controllers, machine.sram, packet, requested)
        if traffic.load.read_ticks.size > 0:
            request_shared(traffic, timing, controllers, machine.dram, packet, requested)


@inlined
def send(traffic: Traffic, timing: Timing, machine: EventMachine, packet: int) -> tuple[int, int]:
    """When a packet leaves its controller, and what it waited for last."""
    controllers, line, place = machine.controllers, traffic.line[packet], window_place(traffic, timing, packet)
    time, reason = controllers.ready_at[line, place], controllers.ready_reason[line, place]
    if machine.lines.link_free[line] > time:
        time, reason = machine.lines.link_free[line], MESH
    credits = machine.queues if traffic.serial[packet] else machine.stores
    for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
        back_at = credit_at(credits, traffic.copy_cluster[copy])
        if back_at > time:
            time, reason = back_at, IMBALANCE
    occupy_link(traffic, timing, machine.lines, packet, time)
    fetch(traffic, timing, machine, line, packet + timing.prefetch_packets, time)
    write_back(traffic, machine.dram, packet, time)
    return time, reason


@inlined
def deliver_parallel(
    traffic: Traffic, timing: Timing, machine: EventMachine, packet: int, sent: int, reason: int
) -> None:
    """A parallel tile takes a slot in the store of each destination; serial tiles of its k-step wait for it."""
    clusters = machine.clusters
    for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
        cluster = traffic.copy_cluster[copy]
        arrives = arrival(traffic, timing, packet, sent, traffic.copy_distance[copy])
        machine.stores.taken[cluster] += 1
        if arrives > clusters.parallel_at[cluster]:
            clusters.parallel_at[cluster], clusters.parallel_reason[cluster] = arrives, reason


@inlined
def deliver_serial(
    traffic: Traffic, timing: Timing, machine: EventMachine, packet: int, sent: int, reason: int
) -> None:
    """The SCUs of each destination stream a serial tile; then its place in the queue is free."""
    clusters, banks = machine.clusters, machine.banks
    item = traffic.item_first[packet]
    for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
        cluster, distance = traffic.copy_cluster[copy], traffic.copy_distance[copy]
        ready, ready_reason = arrival(traffic, timing, packet, sent, distance), reason
        if clusters.parallel_at[cluster] > ready:
            ready, ready_reason = clusters.parallel_at[cluster], clusters.parallel_reason[cluster]
        if banks.free_at[cluster, banks.filling[cluster]] > ready:
            ready, ready_reason = banks.free_at[cluster, banks.filling[cluster]], DRAIN
        done = 0
        for scu in range(traffic.item_cycles.shape[1]):
            start, waited_for = machine.scus.busy_until[cluster, scu], FILL
            if ready > start:
                start, waited_for = ready, ready_reason
            done = max(done, begin_tile(machine.scus, cluster, scu, start, waited_for, traffic.item_cycles[item, scu]))
        machine.queues.taken[cluster] += 1
        give_back(machine.queues, cluster, done + hops(timing, distance))
        clusters.done_at[cluster] = done
        clusters.serial_in_round[cluster] += 1
        item += 1


@compiled_in_place
def close_k_step(traffic: Traffic, timing: Timing, machine: EventMachine) -> None:
    """The parallel tiles of a k-step are no longer needed when the cluster's last serial tile of it is done."""
    stores, done_at = machine.stores, machine.clusters.done_at
    for cluster in range(done_at.size):
        row, column = cluster // timing.mesh_columns, cluster % timing.mesh_columns
        back_at = done_at[cluster]
        if back_at > 0:  # else no serial tile has met them, and the slots were never occupied
            back_at += hops(timing, column if traffic.reduces else row)
        for _ in range(stores.returned[cluster], stores.taken[cluster]):
            give_back(stores, cluster, back_at)


@compiled_in_place
def close_round(traffic: Traffic, timing: Timing, machine: EventMachine, number: int) -> int:
    """Drain the results of a round and swap accumulator banks; returns when the last of them is at the edge."""
    clusters, banks = machine.clusters, machine.banks
    end = 0
    for cluster in range(clusters.done_at.size):
        done = round_done(traffic, timing, clusters, cluster)
        if done == 0:
            continue
        flits = result_flits(traffic, timing, number, cluster)
        left = max(done, banks.drained_at[cluster])
        if traffic.reduces:
            left += sum_cycles(timing, flits)
        elif flits:
            wait = (cluster % timing.mesh_columns - left) % timing.result_period
            left += wait + (flits - 1) * timing.result_period + 1 + timing.result_flit_cycles
        banks.free_at[cluster, banks.filling[cluster]] = left
        banks.filling[cluster] = 1 - banks.filling[cluster]
        banks.drained_at[cluster] = left
        end = max(end, at_edge(traffic, timing, cluster, left))
    clusters.serial_in_round[:] = 0
    return end


@compiled_in_place
def round_done(traffic: Traffic, timing: Timing, clusters: LatestTiles, cluster: int) -> int:
    """When a cluster, or where it reduces its whole column, is done with a round; 0 if it had no part in it."""
    if not traffic.reduces:
        return int(clusters.done_at[cluster]) if clusters.serial_in_round[cluster] else 0
    done = 0
    for row in range(timing.mesh_rows):
        other = row * timing.mesh_columns + cluster % timing.mesh_columns
        if clusters.serial_in_round[other]:
            done = max(done, clusters.done_at[other])
    return int(done)
