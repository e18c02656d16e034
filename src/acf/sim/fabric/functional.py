"""The values a program computes: every packet multiplied where it arrives, so that nothing is done twice or missed."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import SERIAL, FabricShape, Program


@dataclass(frozen=True, eq=False)
class Computed:
    """``output [m, n]``, and how often each (serial piece, parallel piece, depth) met."""

    output: NDArray[np.float64]
    meetings: Counter[tuple[int, int, int]]


def compute(program: Program, shape: FabricShape, a: NDArray[np.float64], b: NDArray[np.float64]) -> Computed:
    """Run ``program`` over the values of ``a [m, k] @ b [k, n]``, cluster by cluster."""
    serial, parallel = (b.T, a.T) if program.swapped else (a, b)
    output = np.zeros((serial.shape[0], parallel.shape[1]))
    meetings: Counter[tuple[int, int, int]] = Counter()
    tile, mesh_columns = shape.tile, shape.mesh_columns
    for mesh_row in range(shape.mesh_rows):
        for mesh_column in range(mesh_columns):
            blocks = _blocks_by_step(program, mesh_row, mesh_column)
            for packet in range(int(program.rows.first[mesh_row]), int(program.rows.first[mesh_row + 1])):
                if program.rows.kind[packet] != SERIAL or not _takes(program.rows.destinations[packet], mesh_column):
                    continue
                piece, depth = int(program.rows.row_tile[packet]), int(program.rows.k_tile[packet])
                first = int(program.tile_first_row[piece])
                rows = slice(first, first + int(program.tile_rows[piece]))
                along = slice(depth * tile, (depth + 1) * tile)
                for index, block in enumerate(blocks[int(program.rows.k_step[packet])]):
                    if not _takes(program.rows.parallel_tiles[packet, mesh_column], index):
                        continue
                    columns = slice(block * tile, (block + 1) * tile)
                    output[rows, columns] += serial[rows, along] @ parallel[along, columns]
                    meetings[piece, block, depth] += 1
    return Computed(output.T if program.swapped else output, meetings)


def _blocks_by_step(program: Program, mesh_row: int, mesh_column: int) -> dict[int, list[int]]:
    """For every step the parallel pieces that reach a cluster, in the order of arrival."""
    blocks: dict[int, list[int]] = {step: [] for step in range(program.k_steps)}
    for stream, line, place in ((program.columns, mesh_column, mesh_row), (program.rows, mesh_row, mesh_column)):
        for packet in range(int(stream.first[line]), int(stream.first[line + 1])):
            if stream.kind[packet] != SERIAL and _takes(stream.destinations[packet], place):
                blocks[int(stream.k_step[packet])].append(int(stream.row_tile[packet]))
    return blocks


def _takes(bits: np.unsignedinteger, place: int) -> bool:
    return bool((int(bits) >> place) & 1)
