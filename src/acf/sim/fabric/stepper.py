"""The fabric cycle by cycle: credits, queues, SCUs and drains change state once in every cycle, as in hardware.

Nothing here looks ahead: a controller knows its credits, a cluster what has arrived, an SCU when it is done. Links are
pipelines of fixed length, so a flit or a credit in flight is a cycle of arrival.
"""

from typing import NamedTuple

from acf.jit import compiled_in_place, inlined, int64
from acf.sim.fabric.components.accumulators import BANKS, Drains, at_edge, result_flits, sum_cycles
from acf.sim.fabric.components.cluster import Arrivals, Progress, expect, first_reason
from acf.sim.fabric.components.controller import Controllers, request, window_place
from acf.sim.fabric.components.credit import NEVER, Credits, credit_at, give_back
from acf.sim.fabric.components.line import Lines, arrival, hops, occupy_link
from acf.sim.fabric.components.scu import Scus, begin_tile, close_accounts, wait_for_memory
from acf.sim.fabric.components.sram_banks import SramBanks
from acf.sim.fabric.components.timed_dram import TimedDram, all_written, release, release_writes, run_memory, written_at
from acf.sim.fabric.event_log import EventLog
from acf.sim.fabric.plan import Plan
from acf.sim.fabric.traffic import DRAIN, FILL, IMBALANCE, MESH, Int64s, Timing, Traffic

WAITING = -1
"""Not a reason: the packet at the head of a line cannot be sent yet."""


class SteppedMachine(NamedTuple):
    """The fabric as the stepper keeps it: the state of every component in the current cycle."""

    controllers: Controllers
    lines: Lines
    queues: Credits
    stores: Credits
    serial: Arrivals
    parallel: Arrivals
    progress: Progress
    scus: Scus
    drains: Drains
    sram: SramBanks
    dram: TimedDram

    @classmethod
    def new(cls, traffic: Traffic, timing: Timing, plan: Plan, scu_cycles: Int64s, dram: TimedDram) -> "SteppedMachine":
        """An idle fabric beside ``dram`` that accounts in ``scu_cycles``."""
        clusters, items = plan.item_of.shape
        return cls(
            controllers=Controllers.new(traffic, timing),
            lines=Lines.new(traffic),
            queues=Credits.new(clusters, timing.queue_packets),
            stores=Credits.new(clusters, timing.parallel_slots),
            serial=Arrivals.new(clusters, items),
            parallel=Arrivals.new(clusters, max(1, int(plan.parallel_count.max()))),
            progress=Progress.new(clusters),
            scus=Scus.new(clusters, traffic.item_cycles.shape[1], scu_cycles),
            drains=Drains.new(clusters),
            sram=SramBanks.new(traffic),
            dram=dram,
        )


def step_program(traffic: Traffic, timing: Timing, scu_cycles: Int64s) -> int:
    """Cycles of a program; adds to ``scu_cycles [clusters * scus, reasons]``."""
    return step_and_log(traffic, timing, scu_cycles, EventLog.off())


def step_with_dram(traffic: Traffic, timing: Timing, scu_cycles: Int64s, dram: TimedDram) -> int:
    """As `step_program`, with every burst of DRAM simulated beside the fabric."""
    plan = Plan.of(traffic, timing)
    machine = SteppedMachine.new(traffic, timing, plan, scu_cycles, dram)
    return step_to_end(traffic, timing, plan, machine, EventLog.off())


def step_and_log(traffic: Traffic, timing: Timing, scu_cycles: Int64s, log: EventLog) -> int:
    """As `step_program`, and writes into ``log`` when everything happened."""
    plan = Plan.of(traffic, timing)
    machine = SteppedMachine.new(traffic, timing, plan, scu_cycles, TimedDram.off(traffic))
    return step_to_end(traffic, timing, plan, machine, log)


@compiled_in_place
def step_to_end(traffic: Traffic, timing: Timing, plan: Plan, machine: SteppedMachine, log: EventLog) -> int:
    """Step until all packets are sent, all tiles done and all results at the edge; returns the cycles."""
    controllers, progress, drains = machine.controllers, machine.progress, machine.drains
    end, time = 0, int64(0)
    while True:
        end_tiles(traffic, timing, plan, machine, time)
        end = max(end, drain_results(traffic, timing, plan, progress, drains, time, log))
        send_packets(traffic, timing, machine, time, log)
        begin_tiles(traffic, timing, plan, machine, time, log)
        if machine.dram.ratio > 0:
            run_memory(traffic, timing, controllers, machine.dram, time)
        if is_empty(traffic, plan, machine) and all_written(machine.dram):
            return wait_for_memory(machine.scus, close_accounts(machine.scus, end), written_at(machine.dram))
        time += 1


@inlined
def is_empty(traffic: Traffic, plan: Plan, machine: SteppedMachine) -> bool:
    """Whether all packets are sent, all tiles done and the results of all rounds drained."""
    for line in range(traffic.first.size - 1):
        if machine.controllers.head[line] < traffic.first[line + 1]:
            return False
    for cluster in range(plan.item_count.size):
        items_are_done = machine.progress.serial_done[cluster] == plan.item_count[cluster]
        if not items_are_done or machine.drains.round[cluster] < traffic.round_flits.shape[0]:
            return False
    return True


@compiled_in_place
def end_tiles(traffic: Traffic, timing: Timing, plan: Plan, machine: SteppedMachine, time: int) -> None:
    """Serial tiles that all SCUs have streamed free their place; the end of a k-step or a round is noted."""
    progress, scus, queues, stores = machine.progress, machine.scus, machine.queues, machine.stores
    for cluster in range(plan.item_count.size):
        row, column = cluster // timing.mesh_columns, cluster % timing.mesh_columns
        while progress.serial_done[cluster] < plan.item_count[cluster]:
            item = progress.serial_done[cluster]
            if not all_ended(scus, cluster, item, time):
                break
            progress.serial_done[cluster] += 1
            give_back(queues, cluster, time + hops(timing, column))
            needed = plan.parallel_before[cluster, item]
            is_last = item + 1 == plan.item_count[cluster]
            if is_last or plan.parallel_before[cluster, item + 1] > needed:  # the k-step is over
                for _ in range(progress.parallel_freed[cluster], needed):
                    give_back(stores, cluster, time + hops(timing, column if traffic.reduces else row))
                progress.parallel_freed[cluster] = needed
            if is_last or plan.round[cluster, item + 1] != plan.round[cluster, item]:
                progress.rounds_done[cluster] = plan.round[cluster, item]


@inlined
def all_ended(scus: Scus, cluster: int, item: int, time: int) -> bool:
    """Whether every SCU of a cluster has streamed an item."""
    for scu in range(scus.started.shape[1]):
        started = scus.started[cluster, scu]
        if started <= item or (started == item + 1 and scus.busy_until[cluster, scu] > time):
            return False
    return True


@compiled_in_place
def drain_results(
    traffic: Traffic, timing: Timing, plan: Plan, progress: Progress, drains: Drains, time: int, log: EventLog
) -> int:
    """Results of closed rounds leave; returns when the last that left in this cycle is at the edge, 0 if none did."""
    end = 0
    for cluster in range(drains.round.size):
        while drains.round[cluster] < plan.takes_part.shape[0]:
            number = drains.round[cluster]
            if drains.flits_left[cluster] < 0:
                if not plan.takes_part[number, cluster]:
                    drains.round[cluster] += 1
                    continue
                if not round_is_closed(traffic, timing, plan, progress, number, cluster):
                    break
                start_drain(traffic, timing, drains, cluster, time, log)
            if drains.until[cluster] > time:
                send_result_flit(timing, drains, cluster, time, log)
                break
            if log.sent_at.size > 0:
                log.emptied_at[number, cluster] = time
            end = max(end, at_edge(traffic, timing, cluster, time))
            drains.emptied[cluster] += 1
            drains.round[cluster] += 1
            drains.flits_left[cluster] = -1
    return end


@compiled_in_place
def round_is_closed(
    traffic: Traffic, timing: Timing, plan: Plan, progress: Progress, number: int, cluster: int
) -> bool:
    """Whether a round's items are done, in this cluster or, where columns reduce, in all of its column."""
    columns = timing.mesh_columns
    for row in range(timing.mesh_rows):
        other = row * columns + cluster % columns
        concerned = (traffic.reduces or other == cluster) and plan.has_items[number, other]
        if concerned and progress.rounds_done[other] < number:
            return False
    return True


@compiled_in_place
def start_drain(traffic: Traffic, timing: Timing, drains: Drains, cluster: int, time: int, log: EventLog) -> None:
    """Begin to drain the results of a round."""
    number = drains.round[cluster]
    flits = result_flits(traffic, timing, number, cluster)
    drains.flits_left[cluster] = 0 if traffic.reduces else flits
    drains.until[cluster] = NEVER
    if traffic.reduces:
        drains.until[cluster] = time + sum_cycles(timing, flits)
        if log.sent_at.size > 0:
            log.first_left[number, cluster] = time
    elif flits == 0:
        drains.until[cluster] = time


@compiled_in_place
def send_result_flit(timing: Timing, drains: Drains, cluster: int, time: int, log: EventLog) -> None:
    """One flit of results leaves, if this cycle is the cluster's turn on its row."""
    number = drains.round[cluster]
    if drains.flits_left[cluster] == 0 or time % timing.result_period != cluster % timing.mesh_columns:
        return
    if log.sent_at.size > 0:
        if log.first_left[number, cluster] < 0:
            log.first_left[number, cluster] = time
        log.last_left[number, cluster] = time
    drains.flits_left[cluster] -= 1
    if drains.flits_left[cluster] == 0:
        drains.until[cluster] = time + 1 + timing.result_flit_cycles


@compiled_in_place
def send_packets(traffic: Traffic, timing: Timing, machine: SteppedMachine, time: int, log: EventLog) -> None:
    """Controllers send the packet at their head, if they may, and request one more; ideal links take any number."""
    controllers, lines = machine.controllers, machine.lines
    for line in range(traffic.first.size - 1):
        while controllers.head[line] < traffic.first[line + 1]:
            packet = controllers.head[line]
            reason = may_send(traffic, timing, machine, packet, time)
            if reason == WAITING:
                break
            deliver(traffic, timing, machine, packet, time, reason)
            occupy_link(traffic, timing, lines, packet, time)
            controllers.head[line] += 1
            release_writes(machine.dram, packet)
            if log.sent_at.size > 0:
                log.sent_at[packet] = time
            if not timing.ideal_links:
                break
        wanted = controllers.requested[line]
        if wanted < traffic.first[line + 1] and wanted - controllers.head[line] < timing.prefetch_packets:
            request(traffic, timing, controllers, machine.sram, wanted, time)
            if machine.dram.ratio > 0:
                release(traffic, timing, controllers, machine.dram, wanted)
            controllers.requested[line] += 1


@inlined
def may_send(traffic: Traffic, timing: Timing, machine: SteppedMachine, packet: int, time: int) -> int:
    """What the packet at the head of a line waited for last; `WAITING` while it still does."""
    controllers, line, place = machine.controllers, traffic.line[packet], window_place(traffic, timing, packet)
    since, reason = controllers.ready_at[line, place], controllers.ready_reason[line, place]
    link_free = machine.lines.link_free[line]
    if since > time or controllers.requested[line] <= packet or link_free > time:
        return WAITING
    if link_free > since:
        since, reason = link_free, MESH
    credits = machine.queues if traffic.serial[packet] else machine.stores
    for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
        back_at = credit_at(credits, traffic.copy_cluster[copy])
        if back_at > time:
            return WAITING
        if back_at > since:
            since, reason = back_at, IMBALANCE
    return int(reason)


@compiled_in_place
def deliver(traffic: Traffic, timing: Timing, machine: SteppedMachine, packet: int, time: int, reason: int) -> None:
    """Put a packet in flight to all its destinations; it takes a credit for each."""
    credits = machine.queues if traffic.serial[packet] else machine.stores
    arrivals = machine.serial if traffic.serial[packet] else machine.parallel
    for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
        cluster = traffic.copy_cluster[copy]
        credits.taken[cluster] += 1
        expect(arrivals, cluster, arrival(traffic, timing, packet, time, traffic.copy_distance[copy]), reason)


@compiled_in_place
def begin_tiles(
    traffic: Traffic, timing: Timing, plan: Plan, machine: SteppedMachine, time: int, log: EventLog
) -> None:
    """SCUs that are free begin their next item, if it and its parallel tiles are there and a bank is empty."""
    serial, parallel, scus, drains = machine.serial, machine.parallel, machine.scus, machine.drains
    for cluster in range(plan.item_count.size):
        for scu in range(scus.started.shape[1]):
            item, before = scus.started[cluster, scu], scus.busy_until[cluster, scu]
            if item == plan.item_count[cluster] or before > time or serial.at[cluster, item] > time:
                continue
            needed = plan.parallel_before[cluster, item]
            parallel_at = parallel.at[cluster, needed - 1] if needed else 0
            if parallel_at > time:
                continue
            if plan.filled_before[plan.round[cluster, item], cluster] - drains.emptied[cluster] >= BANKS:
                continue  # all banks hold results
            since, waited_for = before, FILL
            if serial.at[cluster, item] > since:
                since, waited_for = serial.at[cluster, item], serial.reason[cluster, item]
            if parallel_at > since:
                since, waited_for = parallel_at, first_reason(parallel, cluster, needed - 1)
            if time > since:
                waited_for = DRAIN
            begin_tile(scus, cluster, scu, time, waited_for, traffic.item_cycles[plan.item_of[cluster, item], scu])
            if log.sent_at.size > 0:
                log.begun_at[plan.packet[cluster, item], cluster % timing.mesh_columns, scu] = time
