"""Running one matrix product on the fabric: cycles, MAC slots by what became of them, energy."""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Gemm, Program
from acf.lowering.tiled_product import TiledProduct
from acf.lowering.tiles import TiledRows
from acf.sim.accelerator import ComputeCount
from acf.sim.fabric.control import control_j
from acf.sim.fabric.energy import index_j, product_j, topology_update_j
from acf.sim.fabric.index_traffic import NO_INDEX, IndexTraffic
from acf.sim.fabric.play import Played, play
from acf.sim.fabric.topology_update import topology_update_cycles

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric


@dataclass(frozen=True)
class LoweredProduct:
    """``gemm``, cut into the tiles of ``product`` and lowered to ``program``; ``index``: what walking it takes."""

    gemm: Gemm
    product: TiledProduct
    program: Program
    index: IndexTraffic

    def run(self, spec: "AdaptiveFabric", dram_bytes: int) -> ComputeCount:
        """Counts on ``spec`` while ``dram_bytes`` cross the pins."""
        return run_product(spec, self.gemm, self.product, self.program, dram_bytes, self.index)


def run_product(
    spec: "AdaptiveFabric",
    gemm: Gemm,
    product: TiledProduct,
    program: Program,
    dram_bytes: int,
    index: IndexTraffic | None = None,
) -> ComputeCount:
    """Counts of ``gemm``, cut into the tiles of ``product`` and lowered to ``program``, whatever its mapping.

    ``dram_bytes`` cross the pins meanwhile. ``index``: what walking the index takes; None: commands come from nowhere
    at no cost.
    """
    index = index or NO_INDEX
    played = play(program, spec, spec.dram_port, dram_bytes + index.fetched_bytes, spec.engine)
    waits = controller_cycles(spec, index, played.cycles)
    effectual = gemm.effectual_macs()
    multiplied = _multiplied_slots(spec, product, effectual)
    update_cycles = topology_update_cycles(spec, product, program.reduces)
    energy_j = product_j(spec, program, multiplied, _read_share(spec, product))
    energy_j |= control_j(spec, played.cycles + waits, played.by_reason["work"])
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


def controller_cycles(spec: "AdaptiveFabric", index: IndexTraffic, played_cycles: int) -> int:
    """Cycles before the first command, and those by which a walk outlasts the packets.

    Descriptor and index are read one after the other, each after the latency of DRAM; nothing overlaps with the
    product before.
    """
    if not index.fetched_bytes:
        return 0
    set_up = 2 * spec.dram_port.latency_cycles + index.set_up_cycles
    return set_up + max(0, index.walk_cycles - index.set_up_cycles - played_cycles)


def _lost_slots(spec: "AdaptiveFabric", played: Played, multiplied: int, effectual: int, waits: int) -> dict[str, int]:
    """MAC slots that were no effectual MAC, by reason; those in which all wait for the controller are ``fill``."""
    lost = {reason: cycles * spec.lanes for reason, cycles in played.by_reason.items()}
    lost["fill"] += waits * spec.macs_per_cycle
    issued = lost.pop("work")
    beyond = "gated" if spec.skip == "gate" else "edge"
    return {beyond: issued - multiplied, "ineffectual": multiplied - effectual} | lost
