"""Running one matrix product on the fabric: cycles, MAC slots by what became of them, energy."""

from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Gemm, Program
from acf.lowering.tiled_product import TiledProduct
from acf.sim.accelerator import ComputeCount
from acf.sim.fabric.energy import control_j, index_j, product_j
from acf.sim.fabric.index_traffic import NO_INDEX, IndexTraffic
from acf.sim.fabric.play import Played, play
from acf.sim.fabric.topology_update import topology_update_cycles

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric


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
    waits = _controller_cycles(spec, index, played.cycles)
    effectual = gemm.effectual_macs()
    multiplied = _multiplied_slots(spec, product, effectual)
    update_cycles = topology_update_cycles(spec, product, program.reduces)
    return ComputeCount(
        cycles=played.cycles + waits,
        dense_macs=gemm.dense_macs,
        effectual_macs=effectual,
        lost_slots=_lost_slots(spec, played, multiplied, effectual, waits),
        energy_j=product_j(spec, program, multiplied)
        | {"control": control_j(spec, update_cycles), "index": index_j(spec, index.walked_bytes)},
        streamed_bytes=index.fetched_bytes,
        other_cycles=ceil(update_cycles / spec.topology_every_steps),
    )


def _multiplied_slots(spec: "AdaptiveFabric", product: TiledProduct, effectual: int) -> int:
    """MAC slots of every non-zero of the serial operand times the width of every parallel tile it meets.

    Where zeros of both operands are skipped, only the effectual ones.
    """
    if spec.skip == "both":
        return effectual
    widths = product.parallel.widths.astype(np.float64)
    present = product.present.astype(np.float64)
    if product.needed is None:
        return int(np.dot(product.serial.tile_nonzeros.sum(axis=0), present.T @ widths))
    met: NDArray[np.float64] = product.serial.tile_nonzeros.astype(np.float64) @ present.T
    columns: NDArray[np.float64] = (met * product.needed).sum(axis=0)
    return int(np.dot(columns, widths))


def _controller_cycles(spec: "AdaptiveFabric", index: IndexTraffic, played_cycles: int) -> int:
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
