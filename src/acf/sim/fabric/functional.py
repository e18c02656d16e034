"""The values a program computes: each packet multiplied at its destinations, to check that none is lost or repeated."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import SERIAL, FabricShape, Program


@dataclass(frozen=True, eq=False)
class Computed:
    """``output [m, n]``, and how often each (serial row tile, parallel column tile, k-tile) was multiplied."""

    output: NDArray[np.float64]
    meetings: Counter[tuple[int, int, int]]


def compute(program: Program, shape: FabricShape, a: NDArray[np.float64], b: NDArray[np.float64]) -> Computed:
    """Run ``program`` over the values of ``a [m, k] @ b [k, n]``, cluster by cluster."""
    serial, parallel = (b.T, a.T) if program.swapped else (a, b)
    output = np.zeros((serial.shape[0], parallel.shape[1]))
    meetings: Counter[tuple[int, int, int]] = Counter()
    tile, stream = shape.tile, program.rows
    for mesh_row, mesh_column in np.ndindex(shape.mesh_rows, shape.mesh_columns):
        stored = _parallel_tiles(program, mesh_row, mesh_column)
        for packet in range(int(stream.first[mesh_row]), int(stream.first[mesh_row + 1])):
            if stream.kind[packet] != SERIAL or not _is_set(stream.destinations[packet], mesh_column):
                continue
            row_tile, k_tile = int(stream.row_tile[packet]), int(stream.k_tile[packet])
            first = int(program.tile_first_row[row_tile])
            rows = slice(first, first + int(program.tile_rows[row_tile]))
            along_k = slice(k_tile * tile, (k_tile + 1) * tile)
            for index, column_tile in enumerate(stored[int(stream.k_step[packet])]):
                if not _is_set(stream.parallel_tiles[packet, mesh_column], index):
                    continue
                columns = slice(column_tile * tile, (column_tile + 1) * tile)
                output[rows, columns] += serial[rows, along_k] @ parallel[along_k, columns]
                meetings[row_tile, column_tile, k_tile] += 1
    return Computed(output.T if program.swapped else output, meetings)


def _parallel_tiles(program: Program, mesh_row: int, mesh_column: int) -> dict[int, list[int]]:
    """The parallel tiles that reach a cluster in every k-step, in the order of arrival."""
    tiles: dict[int, list[int]] = {k_step: [] for k_step in range(program.k_steps)}
    for stream, line, distance in ((program.columns, mesh_column, mesh_row), (program.rows, mesh_row, mesh_column)):
        for packet in range(int(stream.first[line]), int(stream.first[line + 1])):
            if stream.kind[packet] != SERIAL and _is_set(stream.destinations[packet], distance):
                tiles[int(stream.k_step[packet])].append(int(stream.row_tile[packet]))
    return tiles


def _is_set(bits: np.unsignedinteger, place: int) -> bool:
    return bool((int(bits) >> place) & 1)
