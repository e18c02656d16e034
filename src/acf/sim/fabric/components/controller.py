"""Memory controllers, one per line: they request packets ahead and send them in order."""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.components.credit import NEVER
from acf.sim.fabric.components.sram_banks import SramBanks, read_bank
from acf.sim.fabric.traffic import FILL, FRACTION_BITS, MEMORY, Int64s, Timing, Traffic


class Controllers(NamedTuple):
    """``[lines]``: ``head``, the next packet to send; ``requested``, the next to request; ``next_request``, its
    earliest cycle; ``dram_free``, when the DRAM channel is next free, in 1/65536 cycles.

    Of the prefetch window, ``[lines, prefetch_packets]``: ``ready_at`` and ``ready_reason``, when memory answers and
    what the answer waited for.
    """

    head: Int64s
    requested: Int64s
    next_request: Int64s
    dram_free: Int64s
    ready_at: Int64s
    ready_reason: Int64s

    @classmethod
    def new(cls, traffic: Traffic, timing: Timing) -> "Controllers":
        """Controllers that have requested nothing yet."""
        lines = traffic.first.size - 1
        window = (lines, timing.prefetch_packets)
        return cls(
            head=traffic.first[:-1].copy(),
            requested=traffic.first[:-1].copy(),
            next_request=np.zeros(lines, dtype=np.int64),
            dram_free=np.zeros(lines, dtype=np.int64),
            ready_at=np.full(window, NEVER, dtype=np.int64),
            ready_reason=np.full(window, FILL, dtype=np.int64),
        )


@inlined
def window_place(traffic: Traffic, timing: Timing, packet: int) -> int:
    """The place of a packet in the prefetch window of its controller."""
    return int((packet - traffic.first[traffic.line[packet]]) % timing.prefetch_packets)


@inlined
def request(
    traffic: Traffic, timing: Timing, controllers: Controllers, banks: SramBanks, packet: int, time: int
) -> None:
    """Ask memory for a packet at ``time``: on-chip memory, or DRAM, whose channel serves one packet after another."""
    line, place = traffic.line[packet], window_place(traffic, timing, packet)
    begin, reason = time, FILL
    if traffic.load.bank.size > 0 and traffic.load.bank[packet] >= 0:
        begin = read_bank(banks, traffic.load.bank[packet], time, traffic.flits[packet])
        reason = MEMORY if begin > time else FILL
    controllers.ready_at[line, place], controllers.ready_reason[line, place] = begin + timing.sram_cycles, reason
    if traffic.dram_ticks[packet] > 0:
        free = max(controllers.dram_free[line], time << FRACTION_BITS) + traffic.dram_ticks[packet]
        whole_cycles = (free + (1 << FRACTION_BITS) - 1) >> FRACTION_BITS
        controllers.dram_free[line] = free
        controllers.ready_at[line, place] = whole_cycles + timing.dram_cycles
        controllers.ready_reason[line, place] = MEMORY
