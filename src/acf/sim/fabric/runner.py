"""Running one matrix product on the fabric: cycles, MAC slots by what became of them, energy."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Gemm, Program
from acf.lowering.tiled_product import TiledProduct
from acf.lowering.tiles import TiledRows
from acf.sim.accelerator import ComputeCount, SetUp
from acf.sim.fabric.activity import Activity, full_tiles, program_activity
from acf.sim.fabric.control import control_j
from acf.sim.fabric.energy import index_j, mesh_j, product_j, topology_update_j
from acf.sim.fabric.index_traffic import NO_INDEX, IndexTraffic, sharing_controllers
from acf.sim.fabric.play import Played, play
from acf.sim.fabric.timed_memory import TimedProduct, play_timed
from acf.sim.fabric.topology_update import topology_update_cycles
from acf.sim.memory import DramTraffic

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric


def play_at_rate(spec: "AdaptiveFabric", product: TimedProduct) -> Played:
    """Play a product with DRAM as one rate and one latency, the same for every mesh row."""
    return play(product.program, spec, spec.dram_port, product.traffic.total_bytes, spec.engine)


MEMORY_MODELS: dict[str, Callable[["AdaptiveFabric", TimedProduct], Played]] = {
    "timed": play_timed,
    "rate": play_at_rate,
}
"""timed: both operands wait for DRAM as `acf.sim.dram` times it, and banks conflict; rate: serial tiles wait for their
share of the sustained rate."""


@dataclass(frozen=True)
class LoweredProduct:
    """``gemm``, cut into the tiles of ``product`` and lowered to ``program``; ``index``: what walking it takes."""

    gemm: Gemm
    product: TiledProduct
    program: Program
    index: IndexTraffic

    def run(self, spec: "AdaptiveFabric", traffic: DramTraffic) -> ComputeCount:
        """Counts on ``spec`` while ``traffic`` crosses the pins."""
        return run_product(spec, self.gemm, self.product, self.program, traffic, self.index)


def run_product(
    spec: "AdaptiveFabric",
    gemm: Gemm,
    product: TiledProduct,
    program: Program,
    traffic: DramTraffic,
    index: IndexTraffic | None = None,
) -> ComputeCount:
    """Counts of ``gemm``, cut into the tiles of ``product`` and lowered to ``program``, whatever its mapping.

    ``traffic`` crosses the pins meanwhile. ``index``: what walking the index takes; None: commands come from nowhere
    at no cost.
    """
    index = index or NO_INDEX
    played = MEMORY_MODELS[spec.memory_model](spec, TimedProduct(program, gemm, traffic))
    lead = lead_cycles(spec, index)
    waits = lead + max(0, index.walk_cycles - index.set_up_cycles - played.cycles)
    effectual = gemm.effectual_macs()
    multiplied = _multiplied_slots(spec, product, effectual)
    update_cycles = topology_update_cycles(spec, product, program.split if program.reduces else 0)
    activity = _activity(spec, product, program, index, played, waits)
    energy_j = product_j(spec, program, multiplied, activity.read_share)
    energy_j |= {"mesh": mesh_j(spec, activity.flit_hops)} | control_j(spec, activity)
    energy_j["control"] = energy_j.get("control", 0.0) + topology_update_j(spec, update_cycles)
    energy_j["index"] = index_j(spec, index.walked_bytes)
    return ComputeCount(
        cycles=played.cycles + waits,
        dense_macs=gemm.dense_macs,
        effectual_macs=effectual,
        lost_slots=_lost_slots(spec, played, multiplied, effectual, waits),
        energy_j=energy_j,
        streamed_bytes=index.fetched_bytes,
        other_cycles=ceil(update_cycles / spec.topology_every_steps),
        set_up=_set_up(spec, index, lead, played.cycles + waits),
        counters=activity.counters,
    )


def _activity(
    spec: "AdaptiveFabric", product: TiledProduct, program: Program, index: IndexTraffic, played: Played, waits: int
) -> Activity:
    met = _times_widths(product, product.serial.tile_nonzeros)
    return Activity(
        cycles=played.cycles + waits,
        work_cycles=played.by_reason["work"],
        read_share=_read_share(spec, product),
        full_share=_times_widths(product, full_tiles(product)) / met if met else 0.0,
        walk_cycles=index.walk_cycles * max(index.controllers, sharing_controllers(spec, spec.walking_controllers)),
        **program_activity(spec, program),
    )


def _multiplied_slots(spec: "AdaptiveFabric", product: TiledProduct, effectual: int) -> int:
    """MAC slots of every non-zero of the serial operand times the width of every parallel tile it meets.

    Where zeros of both operands are skipped, only the effectual ones.
    """
    if spec.skip == "both":
        return effectual
    return int(_times_widths(product, product.serial.tile_nonzeros))


def _times_widths(product: TiledProduct, per_tile: NDArray[np.int64]) -> float:
    """``per_tile [serial tiles, k_tiles]`` times the width of every parallel tile that a serial tile meets, summed."""
    widths = product.parallel.widths.astype(np.float64)
    present = product.present.astype(np.float64)
    if product.needed is None:
        return float(np.dot(per_tile.sum(axis=0), present.T @ widths))
    met: NDArray[np.float64] = per_tile.astype(np.float64) @ present.T
    columns: NDArray[np.float64] = (met * product.needed).sum(axis=0)
    return float(np.dot(columns, widths))


def _read_share(spec: "AdaptiveFabric", product: TiledProduct) -> float:
    """Rows of parallel tiles read from the store, over the non-zeros that meet them.

    An SCU reads a row once for the ``held_rows`` serial rows whose sums it holds, if one of them has a non-zero there.
    """
    met = _times_widths(product, product.serial.tile_nonzeros)
    if spec.held_rows == 1 or not met:
        return 1.0
    return _times_widths(product, held_row_reads(product.serial, spec.scus_per_cluster, spec.held_rows)) / met


def held_row_reads(serial: TiledRows, scus: int, held_rows: int) -> NDArray[np.int64]:
    """Depths at which one of ``held_rows`` rows of an SCU has a non-zero, per serial tile: int64 ``[tiles, k_tiles]``.

    SCU ``s`` owns rows ``s``, ``s + scus``, ... of a tile and holds sums of as many as ``held_rows`` of them at a time.
    """
    tiles, tile = serial.tiles, serial.tile
    padded = np.pad(serial.patterns, ((0, tiles * tile - serial.rows), (0, 0)))
    owned = padded.reshape(tiles, tile // scus, scus, serial.k_tiles)
    starts = np.arange(0, tile // scus, held_rows)
    together = np.bitwise_or.reduceat(owned, starts, axis=1)
    reads: NDArray[np.int64] = np.bitwise_count(together).sum(axis=(1, 2), dtype=np.int64)
    return reads


def lead_cycles(spec: "AdaptiveFabric", index: IndexTraffic) -> int:
    """Cycles before the first command.

    Descriptor and mapping are read one after the other at the sustained rate, each after the latency of DRAM.
    """
    if not index.fetched_bytes:
        return 0
    transfer = ceil(index.fetched_bytes / spec.dram_sustained_bytes_per_s * spec.clock_hz)
    return 2 * spec.dram_port.latency_cycles + transfer + index.set_up_cycles


def _set_up(spec: "AdaptiveFabric", index: IndexTraffic, lead: int, cycles: int) -> SetUp:
    """What the product before can hide of ``lead``, and when a controller is free for the product behind.

    A lone controller walks until the last packet, so it hides nothing. Of several, half are free throughout; where a
    batch occupies more, only when the batch is walked.
    """
    if spec.index_controllers == 1:
        return SetUp()
    walking = index.walk_cycles if index.controllers > spec.walking_controllers else 0
    return SetUp(lead, control_j(spec, Activity(lead)), max(0, cycles - walking))


def _lost_slots(spec: "AdaptiveFabric", played: Played, multiplied: int, effectual: int, waits: int) -> dict[str, int]:
    """MAC slots that were no effectual MAC, by reason; those in which all wait for the controller are ``fill``."""
    lost = {reason: cycles * spec.lanes for reason, cycles in played.by_reason.items()}
    lost["fill"] += waits * spec.macs_per_cycle
    issued = lost.pop("work")
    beyond = "gated" if spec.skip == "gate" else "edge"
    return {beyond: issued - multiplied, "ineffectual": multiplied - effectual} | lost
