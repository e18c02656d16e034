"""What both engines read: a program as flat arrays, and the sizes and delays of the machine that runs it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.lowering import SERIAL, FabricShape, Program
from acf.sim.fabric.multicast import copies_of, packets_by_k_step

Int64s = NDArray[np.int64]

REASONS = ("work", "scan", "fill", "memory", "mesh", "imbalance", "drain")
"""What an SCU does with a cycle: it computes (work), passes over a tile without work for it (scan), or stalls.

fill: for the first packets; memory: for DRAM or for a bank of on-chip memory; mesh: for a link that carries other
packets; imbalance: head-of-line blocking by a slower cluster whose queue is full, and at the end the wait for the last
SCU; drain: for an accumulator bank to empty.
"""

WORK, SCAN, FILL, MEMORY, MESH, IMBALANCE, DRAIN = range(len(REASONS))

FRACTION_BITS = 16
"""DRAM time is counted in 1/65536 cycles, so that a packet's share of a cycle is not rounded away."""


class MemoryLoad(NamedTuple):
    """What packets ask of memories that all controllers share; arrays without entries: of none.

    By packet: ``read_ticks`` and ``write_ticks``, service of a DRAM channel for the packet and for the write-backs that
    make room when it has left, in 1/65536 cycles, and ``read_channel`` and ``write_channel``, which channel; ``bank``:
    the bank of on-chip memory that has its tile, -1: it comes from DRAM.
    """

    read_ticks: Int64s
    write_ticks: Int64s
    read_channel: Int64s
    write_channel: Int64s
    bank: NDArray[np.int32]

    @classmethod
    def none(cls) -> "MemoryLoad":
        """No shared memory: a tile on chip is there ``sram_cycles`` after its request."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing, np.zeros(0, dtype=np.int32))


class Traffic(NamedTuple):
    """A program's packets: those of the mesh rows' controllers, then of the columns', each line's as it sends them.

    Line ``l`` sends packets ``first[l]`` up to ``first[l + 1]``. By packet: its ``line``, whether it is a ``serial``
    tile, its ``flits`` and its ``dram_ticks`` (DRAM time in 1/65536 cycles; 0: the tile is on chip). Its copies, one
    for each destination (`acf.sim.fabric.multicast.Copies`), lie from ``copy_first[p]`` to ``copy_first[p + 1]``. An
    *item* is the copy of a serial packet in one cluster: packet ``p`` has those from ``item_first[p]`` on, in the order
    of its copies, and ``item_cycles [items, scus_per_cluster]`` is their work.

    ``order`` lists all packets by k-step: those of step ``k`` lie from ``k_step_first[k]`` to ``k_step_first[k + 1]``,
    column controllers first, so that parallel tiles come before the serial ones that meet them. ``round_flits
    [rounds, clusters]`` leave a cluster after a round; with ``reduces`` they are partial sums, added down the column.
    ``load``: what packets ask of shared memories.
    """

    first: Int64s
    line: NDArray[np.int32]
    serial: NDArray[np.bool_]
    flits: NDArray[np.int32]
    dram_ticks: Int64s
    copy_first: Int64s
    copy_cluster: NDArray[np.int32]
    copy_distance: NDArray[np.int32]
    item_first: Int64s
    item_cycles: NDArray[np.int32]
    order: Int64s
    k_step_first: Int64s
    round_of_k_step: NDArray[np.int32]
    round_flits: NDArray[np.int32]
    reduces: bool
    load: MemoryLoad

    @classmethod
    def of(cls, program: Program, dram_ticks: Int64s) -> "Traffic":
        """The traffic of a program; ``dram_ticks [row packets]``: DRAM time on the channel of each row's own."""
        rows, columns = program.rows, program.columns
        rounds, mesh_rows, mesh_columns = program.round_flits.shape
        first = np.concatenate((rows.first, columns.first[1:] + rows.packets))
        k_step = np.concatenate((rows.k_step, columns.k_step))
        destinations = np.concatenate((rows.destinations, columns.destinations))
        copies = copies_of(first, destinations, mesh_rows, mesh_columns)
        order, k_step_first = packets_by_k_step(first, k_step, program.k_steps, mesh_rows)
        return cls(
            first=first,
            line=np.repeat(np.arange(first.size - 1, dtype=np.int32), np.diff(first)),
            serial=np.concatenate((rows.kind, columns.kind)) == SERIAL,
            flits=np.concatenate((rows.flits, columns.flits)),
            dram_ticks=np.concatenate((dram_ticks, np.zeros(columns.packets, dtype=np.int64))),
            copy_first=copies.first,
            copy_cluster=copies.cluster,
            copy_distance=copies.distance,
            item_first=np.concatenate((rows.item_first[:-1], np.zeros(columns.packets, dtype=np.int64))),
            item_cycles=rows.item_cycles,
            order=order,
            k_step_first=k_step_first,
            round_of_k_step=program.round_of_k_step,
            round_flits=program.round_flits.reshape(rounds, mesh_rows * mesh_columns),
            reduces=program.reduces,
            load=MemoryLoad.none(),
        )


class Timing(NamedTuple):
    """The machine's sizes and delays, in packets and cycles (`acf.lowering.FabricShape`); ideal links have no hops."""

    mesh_rows: int
    mesh_columns: int
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
        """The timing of a fabric behind a memory with a latency of ``dram_cycles``."""
        return cls(
            mesh_rows=shape.mesh_rows,
            mesh_columns=shape.mesh_columns,
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
