"""What both engines read: a program as plain arrays, line by line, and the numbers of the machine it runs on."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.lowering import SERIAL, FabricShape, Program

REASONS = ("work", "scan", "fill", "memory", "mesh", "imbalance", "drain")
"""What a unit does with a cycle: it works, passes over a piece that holds nothing for it, or waits for a reason.

fill: for the first packets; memory: for DRAM; mesh: for a link that carries other packets; imbalance: for slower
clusters, whose full queues hold up the line, and at the end for the last unit; drain: for results to leave.
"""

WORK, SCAN, FILL, MEMORY, MESH, IMBALANCE, DRAIN = range(len(REASONS))

FRACTION_BITS = 16
"""DRAM time is counted in 1/65536 cycles, so that a packet's share of a cycle is not rounded away."""


class Traffic(NamedTuple):
    """Packets of all lines: first the mesh rows', then the mesh columns', each line's in the order of sending.

    Line ``l`` sends packets ``first[l]`` up to ``first[l + 1]``. Packets of rows have items (`acf.lowering.Stream`) and
    ``dram_ticks``, the DRAM time of their controller in 1/65536 cycles; 0: they are on chip.
    """

    first: NDArray[np.int64]
    serial: NDArray[np.bool_]
    k_step: NDArray[np.int32]
    flits: NDArray[np.int32]
    destinations: NDArray[np.uint64]
    item_first: NDArray[np.int64]
    item_cycles: NDArray[np.int32]
    dram_ticks: NDArray[np.int64]
    round_of_k_step: NDArray[np.int32]
    round_flits: NDArray[np.int32]
    reduces: bool

    @classmethod
    def of(cls, program: Program, dram_ticks: NDArray[np.int64]) -> "Traffic":
        """The traffic of a program; ``dram_ticks [row packets]``."""
        rows, columns = program.rows, program.columns
        return cls(
            first=np.concatenate((rows.first, columns.first[1:] + rows.packets)),
            serial=np.concatenate((rows.kind, columns.kind)) == SERIAL,
            k_step=np.concatenate((rows.k_step, columns.k_step)),
            flits=np.concatenate((rows.flits, columns.flits)),
            destinations=np.concatenate((rows.destinations, columns.destinations)),
            item_first=np.concatenate((rows.item_first[:-1], np.zeros(columns.packets, dtype=np.int64))),
            item_cycles=rows.item_cycles,
            dram_ticks=np.concatenate((dram_ticks, np.zeros(columns.packets, dtype=np.int64))),
            round_of_k_step=program.round_of_k_step,
            round_flits=program.round_flits,
            reduces=program.reduces,
        )


class Timing(NamedTuple):
    """The machine's sizes and delays, in packets and cycles (`acf.lowering.FabricShape`); ideal links have no hops."""

    queue_packets: int
    parallel_slots: int
    prefetch_packets: int
    hop_cycles: int
    sram_cycles: int
    dram_cycles: int
    result_period: int
    result_flit_cycles: int
    sum_flit_cycles: int
    ideal_links: bool

    @classmethod
    def of(cls, shape: FabricShape, dram_cycles: int) -> "Timing":
        """The timing of a fabric behind a memory that answers after ``dram_cycles``."""
        return cls(
            queue_packets=shape.queue_packets,
            parallel_slots=shape.parallel_slots,
            prefetch_packets=shape.prefetch_packets,
            hop_cycles=0 if shape.ideal_links else shape.hop_cycles,
            sram_cycles=shape.sram_cycles,
            dram_cycles=dram_cycles,
            result_period=shape.result_period_cycles,
            result_flit_cycles=shape.result_flit_cycles,
            sum_flit_cycles=shape.sum_flit_cycles,
            ideal_links=shape.ideal_links,
        )


@compiled
def takes(destinations: np.uint64, place: int) -> bool:
    """Whether the router at ``place`` along its line keeps a copy."""
    return bool((destinations >> np.uint64(place)) & np.uint64(1))


@compiled
def line_of_turn(turn: int, mesh_rows: int, mesh_columns: int) -> int:
    """Lines in the order in which a step is looked at: columns, whose blocks come first, then rows."""
    return turn + mesh_rows if turn < mesh_columns else turn - mesh_columns


@compiled
def places_of(line: int, mesh_rows: int, mesh_columns: int) -> int:
    """Routers along a line."""
    return mesh_columns if line < mesh_rows else mesh_rows


@compiled
def cluster_at(line: int, place: int, mesh_rows: int, mesh_columns: int) -> int:
    """The cluster at ``place`` of a line."""
    return line * mesh_columns + place if line < mesh_rows else place * mesh_columns + line - mesh_rows


@compiled
def arrival_of(sent: int, flits: int, place: int, timing: Timing) -> int:
    """When a packet is whole at ``place`` of its line."""
    return sent if timing.ideal_links else sent + flits + timing.hop_cycles * (place + 1)
