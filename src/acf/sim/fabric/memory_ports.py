"""A program from memory to memory: commands and operands of all lines are read, and results written, through ports.

`play` has operands on chip, or lets row packets wait for their share of DRAM. Here every line reads through one of a
few ports, as the device of `acf.rtl` does through its AXI4 masters, and results leave no faster than ports take them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.lowering import FabricShape, Program
from acf.sim.fabric.engine import play_program
from acf.sim.fabric.play import Played
from acf.sim.fabric.traffic import FRACTION_BITS, REASONS, Int64s, Timing, Traffic


def lines_of_masters(shape: FabricShape, masters: int) -> list[list[int]]:
    """The lines of every port, mesh rows first: rows and columns are dealt out round-robin.

    Every port has rows and columns, since a split-K program reads on rows and writes on columns.

    >>> from types import SimpleNamespace
    >>> lines_of_masters(SimpleNamespace(mesh_rows=4, mesh_columns=2), 2)
    [[0, 2, 4], [1, 3, 5]]
    """
    rows, lines = shape.mesh_rows, shape.mesh_rows + shape.mesh_columns
    return [[*range(master, rows, masters), *range(rows + master, lines, masters)] for master in range(masters)]


@dataclass(frozen=True)
class MemoryPorts:
    """``masters`` ports, each of which reads and writes ``bytes_per_cycle`` at the same time.

    A read has a latency of ``latency_cycles``. A packet is read with its command, of ``row_command_bytes`` or
    ``column_command_bytes``. ``finish_cycles`` pass from the last result at the edge until the program is done.
    """

    masters: int
    bytes_per_cycle: int
    latency_cycles: int
    row_command_bytes: int = 0
    column_command_bytes: int = 0
    finish_cycles: int = 0

    def __post_init__(self) -> None:
        for name in ("masters", "bytes_per_cycle"):
            if getattr(self, name) < 1:
                raise ArchitectureError(f"{name} {getattr(self, name)} must be at least 1; give a positive number")

    @property
    def start_cycles(self) -> int:
        """Cycles until the first commands are there; only then operands are requested."""
        return self.latency_cycles


def play_through_ports(program: Program, shape: FabricShape, ports: MemoryPorts) -> Played:
    """Play ``program`` with all commands, operands and results in memory.

    The lines of a port share its rate in proportion to what each reads in all, so that a port that is the bottleneck
    is busy all the time. Results of clusters that share a port leave at its rate. Reading, computing and writing
    overlap as far as prefetching and the two accumulator banks allow; nothing overlaps with the first commands.
    """
    scu_cycles = np.zeros((shape.scus, len(REASONS)), dtype=np.int64)
    ticks = _port_ticks(program, shape, ports)
    traffic = Traffic.of(program, ticks[: program.rows.packets])._replace(dram_ticks=ticks)
    cycles = play_program(traffic, _port_timing(program, shape, ports), scu_cycles)
    return Played(ports.start_cycles + int(cycles) + ports.finish_cycles, scu_cycles)


def _port_ticks(program: Program, shape: FabricShape, ports: MemoryPorts) -> Int64s:
    """The time of every packet at its port in units of 2**-FRACTION_BITS cycles, rows then columns."""
    read = [
        (stream.flits.astype(np.int64) * shape.link_bytes + command_bytes, np.diff(stream.first))
        for stream, command_bytes in (
            (program.rows, ports.row_command_bytes),
            (program.columns, ports.column_command_bytes),
        )
    ]
    packet_bytes: Int64s = np.concatenate([each for each, _ in read])
    line_of = np.repeat(np.arange(shape.mesh_rows + shape.mesh_columns), np.concatenate([count for _, count in read]))
    line_bytes = np.bincount(line_of, packet_bytes, minlength=shape.mesh_rows + shape.mesh_columns)
    share: NDArray[np.float64] = np.ones(line_bytes.size)
    for lines in lines_of_masters(shape, ports.masters):
        share[lines] = line_bytes[lines].sum() / np.maximum(1, line_bytes[lines])
    ticks = packet_bytes * share[line_of] / ports.bytes_per_cycle * 2**FRACTION_BITS
    rounded: Int64s = np.maximum(1, np.rint(ticks)).astype(np.int64)
    return rounded


def _port_timing(program: Program, shape: FabricShape, ports: MemoryPorts) -> Timing:
    """The machine's timing where results leave no faster than their port writes them."""
    flit_cycles = -(-shape.link_bytes // ports.bytes_per_cycle)
    writing_rows = -(-shape.mesh_rows // ports.masters)
    writing_columns = -(-shape.mesh_columns // program.split // ports.masters)
    return Timing.of(shape, ports.latency_cycles)._replace(
        result_period=max(shape.result_period_cycles, shape.mesh_columns * writing_rows * flit_cycles),
        sum_flit_cycles=max(shape.sum_flit_cycles, -(-writing_columns * flit_cycles // program.split)),
    )
