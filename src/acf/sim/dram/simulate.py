"""Requests played on a DRAM cycle by cycle: when each is done, what happened, what it cost."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.errors import ArchitectureError
from acf.sim.dram.kernel import run_requests
from acf.sim.dram.spec import DramSpec
from acf.sim.dram.state import (
    ACTIVATES,
    ACTIVE_CYCLES,
    HITS,
    READS,
    REFRESHES,
    WRITES,
    Requests,
    Sources,
    empty_state,
    rules_of,
)


@dataclass(frozen=True, eq=False)
class DramPlaces:
    """Where bursts lie: int64 arrays of one entry per address; ``bank`` counts through all groups of a channel."""

    channel: NDArray[np.int64]
    bank: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DramRun:
    """What became of the requests. Cycles are those of the memory clock; one entry per request, in the order given.

    A read is complete when its last word is on the bus, a write when its last word is in the row buffer.
    """

    spec: DramSpec
    accepted_cycle: NDArray[np.int64]
    completion_cycle: NDArray[np.int64]
    cycles: int
    activates: int
    reads: int
    writes: int
    refreshes: int
    row_hits: int
    active_cycles: int
    forwarded_reads: int

    @property
    def row_hit_share(self) -> float:
        """Column commands that found their row open because of an earlier one."""
        return self.row_hits / max(1, self.reads + self.writes)

    @property
    def bytes_per_s(self) -> float:
        """Bytes over the pins per second."""
        return (self.reads + self.writes) * self.spec.burst_bytes / (self.cycles * self.spec.cycle_ns * 1e-9)

    @property
    def energy_pj(self) -> dict[str, float]:
        """Picojoules by cause: currents above standby while a command lasts, and standby itself."""
        spec, power, timing = self.spec, self.spec.power, self.spec.timing
        scale = power.supply * spec.devices * spec.cycle_ns
        row_cycle = timing.activate_to_precharge + timing.precharge_to_activate
        standby = (
            power.active_standby * timing.activate_to_precharge + power.precharge_standby * timing.precharge_to_activate
        )
        idle_cycles = self.cycles * spec.channels - self.active_cycles
        return {
            "activate": self.activates * scale * (power.activate_precharge * row_cycle - standby),
            "read": self.reads * scale * (power.read_burst - power.active_standby) * timing.burst_cycles,
            "write": self.writes * scale * (power.write_burst - power.active_standby) * timing.burst_cycles,
            "refresh": self.refreshes * scale * (power.refresh_burst - power.active_standby) * timing.refresh,
            "standby": scale * (power.active_standby * self.active_cycles + power.precharge_standby * idle_cycles),
        }

    @property
    def pj_per_bit(self) -> float:
        """All energy over the bits moved."""
        return sum(self.energy_pj.values()) / max(1, (self.reads + self.writes) * self.spec.burst_bytes * 8)


def locate(spec: DramSpec, address: ArrayLike) -> DramPlaces:
    """Channel, bank, row and column of byte addresses; those beyond the capacity wrap around.

    >>> from acf.sim.dram.spec import MEMORIES
    >>> places = locate(MEMORIES["hbm2"], [0, 2048, 4096])
    >>> places.channel.tolist(), places.bank.tolist()
    ([0, 1, 0], [0, 0, 1])
    """
    rest = np.asarray(address, dtype=np.int64) // spec.burst_bytes
    sizes = {
        "column": spec.columns,
        "channel": spec.channels,
        "bank": spec.banks_per_group,
        "group": spec.bank_groups,
        "row": spec.rows,
    }
    found = {}
    for name in spec.address_order:
        found[name] = rest % sizes[name]
        rest = rest // sizes[name]
    bank = found["group"] * spec.banks_per_group + found["bank"]
    return DramPlaces(channel=found["channel"], bank=bank, row=found["row"], column=found["column"])


def simulate_requests(
    spec: DramSpec,
    arrival_cycle: ArrayLike,
    address: ArrayLike,
    is_write: ArrayLike | bool = False,
    source: ArrayLike | None = None,
) -> DramRun:
    """Play one burst per request, cycle by cycle, on an idle memory.

    ``arrival_cycle``, ``address`` (bytes) and ``is_write`` have one entry per request (``is_write`` may be one for
    all). Every ``source`` (one for all without it) offers its requests in order of arrival, one per cycle, and waits
    while the queue of the channel is full: that wait lies between arrival and `DramRun.accepted_cycle`.
    """
    arrival = np.ascontiguousarray(arrival_cycle, dtype=np.int64)
    count = arrival.size
    writes = np.broadcast_to(np.asarray(is_write, dtype=np.int64), (count,)).copy()
    sources = np.zeros(count, dtype=np.int64) if source is None else np.asarray(source, dtype=np.int64)
    places = locate(spec, address)
    _check_same_length(count, {"address": places.row.size, "source": sources.size})
    if count and int(arrival.min()) < 0:
        raise ArchitectureError(f"arrival cycle {int(arrival.min())} is before 0; let time begin at 0")
    order = np.lexsort((arrival, sources))
    numbers = np.unique(sources)
    first_of_source = np.append(np.searchsorted(sources[order], numbers), count).astype(np.int64)
    table = np.stack([order, places.bank[order], places.row[order], places.column[order]], axis=1)
    state = empty_state(spec)
    accepted, completion = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    cycles = 0
    if count:
        requests = Requests(table, places.channel, writes, arrival, first_of_source)
        cycles = run_requests(state, rules_of(spec), requests, Sources.of(requests), accepted, completion)
    totals = state.counts.sum(axis=0)
    return DramRun(
        spec=spec,
        accepted_cycle=accepted,
        completion_cycle=completion,
        cycles=int(cycles),
        activates=int(totals[ACTIVATES]),
        reads=int(totals[READS]),
        writes=int(totals[WRITES]),
        refreshes=int(totals[REFRESHES]),
        row_hits=int(totals[HITS]),
        active_cycles=int(totals[ACTIVE_CYCLES]),
        forwarded_reads=count - int(totals[READS] + totals[WRITES]),
    )


def _check_same_length(count: int, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        if size != count:
            raise ArchitectureError(f"{name} has {size} entries for {count} requests; give one for each")
