"""Playing a program and recording it: what sampled SCUs, controllers, links and DRAM did, and totals over time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape
from acf.sim.fabric.engine import EventMachine, visit_packets
from acf.sim.fabric.play import dram_ticks
from acf.sim.fabric.recorder import NO_TRACK, Recorder
from acf.sim.fabric.timed_memory import TimedProduct, event_traffic
from acf.sim.fabric.traffic import DRAIN, IMBALANCE, MEMORY, REASONS, Int64s, Timing, Traffic

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric


@dataclass(frozen=True)
class Sampling:
    """What to record of a program: the sampled ``scus``, at most ``limit`` rows of each kind, and ``bins`` of time."""

    scus: NDArray[np.int64]
    limit: int
    bins: int = 32


@dataclass(frozen=True, eq=False)
class Recording:
    """One program as it ran; see `Recorder` for the rows of ``states`` and ``sends``, which lie before ``until``.

    ``flits [packets]`` and ``serial [packets]`` describe the packets; ``copies [packets]`` counts the clusters that a
    packet goes to. ``until`` is the cycle up to which all sampled events are there.
    """

    cycles: int
    until: int
    states: Int64s
    sends: Int64s
    flits: Int64s
    serial: NDArray[np.bool_]
    copies: Int64s
    bin_cycles: int
    busy: Int64s
    carried: Int64s

    def without_events(self) -> "Recording":
        """The totals alone, for a program that runs again."""
        return replace(self, until=0, states=self.states[:0], sends=self.sends[:0])


def record_program(spec: "AdaptiveFabric", product: TimedProduct, most_cycles: int, sampling: Sampling) -> Recording:
    """Play a product, which takes at most ``most_cycles``, on the event engine and record it."""
    traffic, timing = EVENT_TRAFFIC[spec.memory_model](spec, product)
    recorder = _new_recorder(traffic, spec, most_cycles, sampling)
    machine = EventMachine.new(traffic, timing, np.zeros((spec.scus, len(REASONS)), dtype=np.int64))
    played = int(visit_packets(traffic, timing, machine, recorder))
    states, sends = (
        rows[:count] for rows, count in zip((recorder.states, recorder.sends), recorder.counts, strict=False)
    )
    until = min(played, int(recorder.cut[0]))
    states = np.concatenate((states, _final_waits(machine, sampling.scus, int(recorder.counts[2]), played)))
    return Recording(
        cycles=played,
        until=until,
        states=states[states[:, 2] < until],
        sends=sends[sends[:, 3] < until],
        flits=np.zeros_like(traffic.flits, dtype=np.int64) if timing.ideal_links else traffic.flits.astype(np.int64),
        serial=traffic.serial,
        copies=np.diff(traffic.copy_first),
        bin_cycles=int(recorder.bin_cycles[0]),
        busy=recorder.busy,
        carried=recorder.carried,
    )


def rate_traffic(spec: "AdaptiveFabric", product: TimedProduct) -> tuple[Traffic, Timing]:
    """What the event engine plays where DRAM is one rate and one latency."""
    program, port = product.program, spec.dram_port
    traffic = Traffic.of(program, dram_ticks(program, port, product.traffic.total_bytes))
    return traffic, Timing.of(spec, port.latency_cycles)


EVENT_TRAFFIC: dict[str, Callable[["AdaptiveFabric", TimedProduct], tuple[Traffic, Timing]]] = {
    "timed": event_traffic,
    "rate": rate_traffic,
}
"""By memory model, what the event engine plays of a product."""


def _new_recorder(traffic: Traffic, shape: FabricShape, cycles: int, sampling: Sampling) -> Recorder:
    track = np.full(shape.scus, NO_TRACK, dtype=np.int64)
    track[sampling.scus] = np.arange(sampling.scus.size)
    bin_cycles = max(1, -(-cycles // sampling.bins))
    bins = max(1, -(-cycles // bin_cycles))
    return Recorder(
        track=track,
        latest=np.full(sampling.scus.size, -1, dtype=np.int64),
        states=np.zeros((sampling.limit, 5), dtype=np.int64),
        sends=np.zeros((sampling.limit, 8), dtype=np.int64),
        counts=np.zeros(3, dtype=np.int64),
        cut=np.full(1, np.iinfo(np.int64).max, dtype=np.int64),
        bin_cycles=np.full(1, bin_cycles, dtype=np.int64),
        busy=np.zeros((bins, shape.clusters), dtype=np.int64),
        carried=np.zeros((bins, traffic.first.size - 1), dtype=np.int64),
        seen_until=np.zeros(shape.scus, dtype=np.int64),
        seen_cycles=np.zeros((shape.scus, len(REASONS)), dtype=np.int64),
    )


def _final_waits(machine: EventMachine, scus: NDArray[np.int64], results_at: int, cycles: int) -> Int64s:
    """What sampled SCUs wait for after their last tile, as the engine charges it: rows of ``states``."""
    ended = machine.scus.busy_until.reshape(-1)
    latest, rows = int(ended.max()), []
    for track, scu in enumerate(scus.tolist()):
        for reason, start, end in (
            (IMBALANCE, int(ended[scu]), latest),
            (DRAIN, latest, results_at),
            (MEMORY, results_at, cycles),
        ):
            if end > start:
                rows.append((track, reason, start, end, 0))
    return np.array(rows, dtype=np.int64).reshape(-1, 5)
