"""DRAM beside the stepped fabric: every burst of every packet, on the cycle-exact channels of `acf.sim.dram`.

In every cycle of the memory clock a channel accepts one burst, in turn from the controllers whose oldest requested
burst lies in it; write-backs have a source of their own. A packet is there when its last burst is, and the way between
memory and controller has passed.
"""

from typing import NamedTuple

import numpy as np

from acf.jit import compiled_in_place, inlined
from acf.sim.dram.kernel import offer, step
from acf.sim.dram.simulate import locate
from acf.sim.dram.spec import DramSpec, dram_spec
from acf.sim.dram.state import DramRules, DramState, empty_state, rules_of
from acf.sim.fabric.components.controller import Controllers, window_place
from acf.sim.fabric.components.credit import NEVER
from acf.sim.fabric.dram_streams import DramStream
from acf.sim.fabric.traffic import MEMORY, Int64s, Timing, Traffic

CLOCK_BITS = 20
"""The ratio of the clocks is counted in 1/2**20."""


class TimedDram(NamedTuple):
    """Bursts ``first[p]`` up to ``first[p + 1]`` belong to packet ``p``; those from ``reads`` on are write-backs.

    ``places [bursts, 4]``: number, bank, row, column; ``channel`` and ``completion [bursts]``, 0: not yet served.
    ``cursor`` and ``released [lines + 1]``: the next burst to offer and the first that was not requested yet, the last
    entry that of the write-backs; ``answered`` and ``seen [lines]``: the packet that is answered next, and its first
    burst whose completion was not seen yet; ``write_counts [packets]``. ``turn [channels]``: the source that a
    channel asks first. ``clock [2]``: the next cycle of the memory clock, and the first write-back that was not served
    yet. ``ratio``: memory cycles per cycle, in 1/2**CLOCK_BITS.
    """

    state: DramState
    rules: DramRules
    first: Int64s
    places: Int64s
    channel: Int64s
    completion: Int64s
    cursor: Int64s
    released: Int64s
    answered: Int64s
    seen: Int64s
    write_counts: Int64s
    turn: Int64s
    clock: Int64s
    reads: int
    ratio: int

    @classmethod
    def new(cls, traffic: Traffic, stream: DramStream, spec: DramSpec, ratio: float) -> "TimedDram":
        """An idle memory; ``ratio``: memory cycles per cycle of the fabric."""
        written = [np.arange(s, s + n) for s, n in zip(stream.write_starts, stream.write_counts, strict=True) if n]
        bursts = np.concatenate((stream.bursts, np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *written]))))
        places = locate(spec, bursts.astype(np.int64) * spec.burst_bytes)
        table = np.stack((np.arange(bursts.size), places.bank, places.row, places.column), axis=1)
        begin = np.append(stream.first[traffic.first[:-1]], stream.reads)
        return cls(
            state=empty_state(spec),
            rules=rules_of(spec),
            first=stream.first,
            places=np.ascontiguousarray(table, dtype=np.int64),
            channel=places.channel.astype(np.int64),
            completion=np.zeros(bursts.size, dtype=np.int64),
            cursor=begin.copy(),
            released=begin.copy(),
            answered=traffic.first[:-1].copy(),
            seen=begin[:-1].copy(),
            write_counts=stream.write_counts,
            turn=np.zeros(spec.channels, dtype=np.int64),
            clock=np.array([0, stream.reads], dtype=np.int64),
            reads=stream.reads,
            ratio=round(ratio * 2**CLOCK_BITS),
        )

    @classmethod
    def off(cls, traffic: Traffic) -> "TimedDram":
        """A memory that no packet needs."""
        packets = traffic.line.size
        nothing, zeros = np.zeros(0, dtype=np.int64), np.zeros(packets, dtype=np.int64)
        stream = DramStream(np.zeros(packets + 1, dtype=np.int64), nothing, zeros, zeros)
        return cls.new(traffic, stream, dram_spec("hbm2", 1), 0.0)


@inlined
def release(traffic: Traffic, timing: Timing, controllers: Controllers, dram: TimedDram, packet: int) -> None:
    """Let the controller offer the bursts of a packet."""
    line = traffic.line[packet]
    if dram.first[packet + 1] > dram.first[packet]:
        dram.released[line] = dram.first[packet + 1]
        controllers.ready_at[line, window_place(traffic, timing, packet)] = NEVER
        controllers.ready_reason[line, window_place(traffic, timing, packet)] = MEMORY


@inlined
def release_writes(dram: TimedDram, packet: int) -> None:
    """Let the writer offer the write-backs that make room when a packet has left."""
    if dram.ratio > 0:
        dram.released[dram.released.size - 1] += dram.write_counts[packet]


@compiled_in_place
def run_memory(traffic: Traffic, timing: Timing, controllers: Controllers, dram: TimedDram, time: int) -> None:
    """Let the memory clock run up to the end of a cycle of the fabric, and answer what is complete."""
    until = ((time + 1) * dram.ratio) >> CLOCK_BITS
    while dram.clock[0] < until:
        cycle = dram.clock[0]
        for channel in range(dram.turn.size):
            accept(dram, channel, cycle)
            step(dram.state, dram.rules, channel, cycle, dram.completion)
        dram.clock[0] = cycle + 1
    for line in range(dram.cursor.size - 1):
        answer(traffic, timing, controllers, dram, line)


@inlined
def accept(dram: TimedDram, channel: int, cycle: int) -> None:
    """A channel takes the next burst of the first source, in turn, that has one for it and that it has room for."""
    sources = dram.cursor.size
    for offset in range(sources):
        source = (dram.turn[channel] + offset) % sources
        burst = dram.cursor[source]
        if burst < dram.released[source] and dram.channel[burst] == channel:
            is_write = burst >= dram.reads
            if offer(dram.state, dram.rules, channel, dram.places, burst, is_write, cycle, dram.completion):
                dram.cursor[source] = burst + 1
                dram.turn[channel] = (source + 1) % sources
                return


@inlined
def answer(traffic: Traffic, timing: Timing, controllers: Controllers, dram: TimedDram, line: int) -> None:
    """Tell a controller when its packets are there, in order, as far as all their bursts have been served."""
    while dram.answered[line] < controllers.requested[line]:
        packet = dram.answered[line]
        while dram.seen[line] < dram.first[packet + 1] and dram.completion[dram.seen[line]] > 0:
            dram.seen[line] += 1
        if dram.seen[line] < dram.first[packet + 1]:
            return
        latest = 0
        for burst in range(dram.first[packet], dram.first[packet + 1]):
            latest = max(latest, dram.completion[burst])
        if dram.first[packet + 1] > dram.first[packet]:
            done = ((latest << CLOCK_BITS) + dram.ratio - 1) // dram.ratio
            controllers.ready_at[line, window_place(traffic, timing, packet)] = done + timing.dram_cycles
        dram.answered[line] += 1


@compiled_in_place
def all_written(dram: TimedDram) -> bool:
    """Whether every write-back has been served."""
    while dram.clock[1] < dram.completion.size and dram.completion[dram.clock[1]] > 0:
        dram.clock[1] += 1
    return bool(dram.clock[1] == dram.completion.size)


@compiled_in_place
def written_at(dram: TimedDram) -> int:
    """The cycle of the fabric at which the last write-back is complete; 0 without any."""
    latest = 0
    for burst in range(dram.reads, dram.completion.size):
        latest = max(latest, dram.completion[burst])
    return int(((latest << CLOCK_BITS) + dram.ratio - 1) // dram.ratio) if latest > 0 else 0
