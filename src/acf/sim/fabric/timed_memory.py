"""The memory of one product as it is timed: DRAM with its channels, banks and refresh, and banks of on-chip memory."""

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.lowering import Gemm, Program
from acf.sim.dram import DramSpec, dram_spec, locate
from acf.sim.fabric.components.timed_dram import TimedDram
from acf.sim.fabric.dram_rates import idle_read_cycles, ns_per_burst
from acf.sim.fabric.dram_streams import DramStream, Sent, dram_stream
from acf.sim.fabric.engine import play_program
from acf.sim.fabric.packet_sample import scaled_to_packets
from acf.sim.fabric.packet_stepper import step_packets
from acf.sim.fabric.play import Played
from acf.sim.fabric.stepper import step_with_dram
from acf.sim.fabric.tile_places import TilePlaces
from acf.sim.fabric.traffic import FRACTION_BITS, REASONS, Int64s, MemoryLoad, Timing, Traffic
from acf.sim.memory import DramTraffic

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric

TIMED_MEMORIES: dict[str, str] = {"ddr": "ddr4-2400", "hbm2": "hbm2"}
"""By ``dram_kind``, the memory of `acf.sim.dram` that times it."""

MOST_CHANNELS = 64


@dataclass(frozen=True, eq=False)
class TimedProduct:
    """A product to be played with timed memory: its ``program``, the ``gemm`` it computes, what crosses the pins."""

    program: Program
    gemm: Gemm
    traffic: DramTraffic


def timed_dram_spec(dram_kind: str, pin_bytes_per_s: float) -> DramSpec:
    """Channels whose peak is ``pin_bytes_per_s``: the nearest number of them, their clock scaled by the rest."""
    if dram_kind not in TIMED_MEMORIES:
        raise ArchitectureError(
            f"dram_kind {dram_kind!r} has no timing in acf.sim.dram, only {', '.join(TIMED_MEMORIES)} have; use one of "
            'these, or memory_model = "rate"'
        )
    one = dram_spec(TIMED_MEMORIES[dram_kind], 1)
    channels = min(MOST_CHANNELS, max(1, round(pin_bytes_per_s / one.peak_bytes_per_s)))
    spec = replace(one, channels=channels)
    return replace(spec, cycle_ns=spec.cycle_ns * spec.peak_bytes_per_s / pin_bytes_per_s)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A product's packets, the DRAM and its address stream, and the bank of every packet's tile, -1: from DRAM."""

    traffic: Traffic
    sent: Sent
    dram: DramSpec
    stream: DramStream
    bank: NDArray[np.int32]

    @classmethod
    def of(cls, spec: "AdaptiveFabric", product: TimedProduct) -> "_Prepared":
        program = product.program
        traffic = Traffic.of(program, np.zeros(program.rows.packets, dtype=np.int64))
        places = TilePlaces.of(program, product.gemm, spec.tile)
        sent = Sent(traffic.order, traffic.line, traffic.flits)
        dram = timed_dram_spec(spec.dram_kind, spec.dram_pin_bytes_per_s)
        stream = dram_stream(places, sent, product.traffic, dram.burst_bytes)
        bank = np.where(np.diff(stream.first) > 0, -1, places.banks(spec.on_chip_banks)).astype(np.int32)
        return cls(traffic, sent, dram, stream, bank)


def play_timed(spec: "AdaptiveFabric", product: TimedProduct) -> Played:
    """Play a product: with engine "exact" every burst beside the fabric, else at the rate of its own address stream.

    On a packet-switched mesh engine "exact" also steps every router, else a part of the product is played there.
    """
    scu_cycles = np.zeros((spec.scus, len(REASONS)), dtype=np.int64)
    if spec.engine == "exact":
        return Played(int(_step_beside_dram(spec, product, scu_cycles)), scu_cycles)
    traffic, timing = event_traffic(spec, product)
    played = Played(int(play_program(traffic, timing, scu_cycles)), scu_cycles)
    if spec.interconnect == "packet":
        return scaled_to_packets(spec, traffic._replace(load=MemoryLoad.none()), played)
    return played


def event_traffic(spec: "AdaptiveFabric", product: TimedProduct) -> tuple[Traffic, Timing]:
    """What the event engine plays: every packet with the service that it asks of DRAM and of on-chip memory."""
    prepared = _Prepared.of(spec, product)
    dram, stream = prepared.dram, prepared.stream
    cycles_per_burst = ns_per_burst(dram, stream, prepared.sent) * spec.clock_hz * 1e-9
    load = MemoryLoad(
        read_ticks=_ticks(np.diff(stream.first), cycles_per_burst),
        write_ticks=_ticks(stream.write_counts, cycles_per_burst),
        read_channel=_channels(dram, _first_bursts(stream)),
        write_channel=_channels(dram, stream.write_starts),
        bank=prepared.bank,
    )
    return prepared.traffic._replace(load=load), Timing.of(spec, ceil(spec.dram_latency_s * spec.clock_hz))


def _step_beside_dram(spec: "AdaptiveFabric", product: TimedProduct, scu_cycles: Int64s) -> int:
    """Step every cycle of the fabric and every burst of the memory; returns the cycles."""
    prepared = _Prepared.of(spec, product)
    traffic = prepared.traffic._replace(load=MemoryLoad.none()._replace(bank=prepared.bank))
    ratio = 1e9 / spec.clock_hz / prepared.dram.cycle_ns
    path = max(0, ceil(spec.dram_latency_s * spec.clock_hz) - ceil(idle_read_cycles(prepared.dram) / ratio))
    beside = TimedDram.new(traffic, prepared.stream, prepared.dram, ratio)
    if spec.interconnect == "packet":
        return step_packets(traffic, Timing.of(spec, path), scu_cycles, spec, beside)
    return step_with_dram(traffic, Timing.of(spec, path), scu_cycles, beside)


def _first_bursts(stream: DramStream) -> Int64s:
    """The first burst of every packet; any where it has none."""
    if not stream.reads:
        return np.zeros(stream.first.size - 1, dtype=np.int64)
    return stream.bursts[np.minimum(stream.first[:-1], stream.reads - 1)]


def _channels(dram: DramSpec, bursts: Int64s) -> Int64s:
    """The channels of bursts; a tile is charged to that of its first one."""
    return locate(dram, bursts * dram.burst_bytes).channel


def _ticks(bursts: Int64s, cycles_per_burst: float) -> Int64s:
    """Service of so many bursts in 1/65536 cycles; at least one for any burst."""
    ticks: Int64s = np.where(bursts > 0, np.maximum(1, np.rint(bursts * cycles_per_burst * 2**FRACTION_BITS)), 0)
    return ticks.astype(np.int64)
