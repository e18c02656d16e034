"""Energy of one matrix product on the fabric, from the figures of `acf.cost`.

Per MAC slot: a MAC, its sum, and a value of a parallel tile for every row of sums that is held. Sums are in registers,
and go in and out of the accumulators per row and parallel tile, or every MAC reads and writes an accumulator bank
(``accumulate_in``). The registers are part of control where that is charged and was synthesised with them. Per packet:
a read of on-chip memory, every hop, and a write in every destination. Results leave the accumulators, travel, and are
written on chip. Control and clock are those of `acf.sim.fabric.control`.
"""

from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from acf.cost import MAC_65NM_PJ, REGISTER_65NM_PJ_PER_BYTE, sram_pj_per_byte
from acf.cost.mesh import WIRE_65NM_PJ_PER_BIT_MM, link_pj, router_pass_pj
from acf.lowering import SERIAL, Program, Stream
from acf.lowering.fabric_shape import SUM_BYTES
from acf.sim.fabric.area import cluster_side_mm, local_memory_mm2

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric

BANK_WORD_BYTES = 16
"""Word of a small bank of `acf.cost.sram`; wider words take several banks side by side."""


def product_j(spec: "AdaptiveFabric", program: Program, slots: int, read_share: float) -> dict[str, float]:
    """Joules of MACs and memories for a program that multiplies in ``slots`` MAC slots.

    ``read_share``: values of parallel tiles that are read from the store, over ``slots``; the others are still held.
    """
    picojoules = _compute_pj(spec, program, slots, read_share)
    picojoules["sram"] += sum(_packets_pj(spec, stream) for stream in (program.rows, program.columns))
    moved = int(program.round_flits.sum(dtype=np.int64)) * spec.link_bytes
    picojoules["sram"] += moved * (_accumulator_pj(spec) + _sram_pj(spec, spec.bank_bytes, True))
    return {name: value * 1e-12 for name, value in picojoules.items()}


def mesh_j(spec: "AdaptiveFabric", flit_hops: int) -> float:
    """Joules of flits through so many routers and over as many links.

    Routers look nothing up: a controller derives from the index where a flit goes.
    """
    flit_pj = router_pass_pj(spec.link_bytes, groups=0) + link_pj(spec.link_bytes, cluster_side_mm(spec))
    return flit_hops * flit_pj * 1e-12


def topology_update_j(spec: "AdaptiveFabric", update_cycles: int) -> float:
    """Joules of one step's share of a topology update: a word read and one written in each of its cycles."""
    access_pj = 4 * (_queue_pj(spec) + _queue_pj(spec, True))
    return update_cycles / spec.topology_every_steps * access_pj * 1e-12


def index_j(spec: "AdaptiveFabric", walked_bytes: int) -> float:
    """Joules of the controller's reads of an index on chip."""
    return walked_bytes * _sram_pj(spec, spec.bank_bytes) * 1e-12


def _compute_pj(spec: "AdaptiveFabric", program: Program, slots: int, read_share: float) -> dict[str, float]:
    pairs = int(np.bitwise_count(program.rows.parallel_tiles).sum())  # a serial and a parallel tile met in a cluster
    accumulator_pj = _accumulator_pj(spec) + _accumulator_pj(spec, True)
    in_registers = spec.accumulate_in == "registers"
    sums_pj = (pairs * spec.tile**2 if in_registers else slots) * SUM_BYTES * accumulator_pj
    values_pj = slots * read_share * spec.value_bytes * _store_pj(spec)
    in_control = spec.control_energy != "none" and spec.skip == "serial"  # synthesised registers of sums are there
    registers_pj = 2 * SUM_BYTES * REGISTER_65NM_PJ_PER_BYTE.value if in_registers and not in_control else 0.0
    return {
        "mac": slots * (MAC_65NM_PJ.value + registers_pj),
        "sram": sums_pj + values_pj,
    }


def _packets_pj(spec: "AdaptiveFabric", stream: Stream) -> float:
    """Picojoules of fetching and storing all packets of a stream."""
    payload = stream.flits.astype(np.int64) * spec.link_bytes
    copies = np.bitwise_count(stream.destinations).astype(np.int64)
    serial = stream.kind == SERIAL
    stored = float((payload * copies)[serial].sum()) * _queue_pj(spec, True)
    stored += float((payload * copies)[~serial].sum()) * _store_pj(spec, True)
    return float(payload.sum()) * _sram_pj(spec, spec.bank_bytes) + stored


def _sram_pj(spec: "AdaptiveFabric", size_bytes: int, write: bool = False) -> float:
    return sram_pj_per_byte(spec.technology_nm, size_bytes, write)


def _local_pj(spec: "AdaptiveFabric", size_bytes: int, word_bytes: int, write: bool = False) -> float:
    """A byte of a cluster's memory, which may have several banks: in a bank, and over the wire to it.

    Banks side by side give a word; where there are more, a word crosses half the side of the memory on average.
    """
    if size_bytes <= spec.local_bank_bytes:
        return _sram_pj(spec, size_bytes, write)
    has_more = size_bytes > spec.local_bank_bytes * ceil(word_bytes / BANK_WORD_BYTES)
    wire_mm = sqrt(local_memory_mm2(spec, size_bytes)) / 2 if has_more else 0.0
    return _sram_pj(spec, spec.local_bank_bytes, write) + 8 * wire_mm * WIRE_65NM_PJ_PER_BIT_MM.value


def _queue_pj(spec: "AdaptiveFabric", write: bool = False) -> float:
    return _local_pj(spec, spec.queue_bytes, spec.link_bytes, write)


def _store_pj(spec: "AdaptiveFabric", write: bool = False) -> float:
    """Written in flits, read in rows of a tile."""
    return _local_pj(spec, spec.store_bytes, spec.link_bytes if write else spec.tile * spec.value_bytes, write)


def _accumulator_pj(spec: "AdaptiveFabric", write: bool = False) -> float:
    return _local_pj(spec, spec.accumulator_bytes, spec.lanes * SUM_BYTES, write)
