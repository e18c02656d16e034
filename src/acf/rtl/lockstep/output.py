"""From streams of results, as they leave the fabric, to the output of a program."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Program
from acf.rtl.arithmetic.model import bf16_values
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.words import Encoded
from acf.rtl.lockstep.model import add_flushed, columns_of_group, oriented

Values = NDArray[np.float32]


def result_values(content: bytes) -> Values:
    """Flits of a cluster's results as float32: two bytes each, bf16."""
    return bf16_values(np.frombuffer(content, dtype="<u2").astype(np.uint16))


def sum_values(content: bytes) -> Values:
    """Flits of a mesh column's partial sums: four bytes each."""
    return np.frombuffer(content, dtype="<f4").astype(np.float32)


def stream_flits(sizes: FabricSizes, program: Program, encoded: Encoded) -> list[int]:
    """Flits that every stream will have: of each cluster, or of each mesh column where its sums are added."""
    columns = sizes.shape.mesh_columns
    places = encoded.places[:columns] if program.reduces else encoded.places
    return [
        sum(_round_flits(program, number, *divmod(index, columns)) for number in place.rounds)
        for index, place in enumerate(places)
    ]


def assembled(
    sizes: FabricSizes, program: Program, encoded: Encoded, streams: Sequence[Values], shape: tuple[int, int]
) -> NDArray[np.uint32]:
    """Float32 bits of the output ``[m, n]``; ``shape`` is that of serial rows x parallel columns."""
    output = np.zeros(shape, dtype=np.float32)
    columns = sizes.shape.mesh_columns
    value_bytes = 4 if program.reduces else 2
    for index, values in enumerate(streams):
        taken = 0
        for number in encoded.places[index].rounds:
            flits = _round_flits(program, number, *divmod(index, columns))
            count = flits * sizes.shape.link_bytes // value_bytes
            bank = _bank(sizes, values[taken : taken + count])
            taken += count
            adds = program.reduces and index >= columns_of_group(program, sizes)
            _scatter(sizes, output, program, encoded.tiles[index, number], bank, adds)
    return oriented(program, output)


def _round_flits(program: Program, number: int, row: int, column: int) -> int:
    if program.reduces:
        return int(program.round_flits[number, 0, column]) // program.split
    return int(program.round_flits[number, row, column])


def _bank(sizes: FabricSizes, values: Values) -> Values:
    """Values in the order of leaving as pieces ``[tiles, tile, tile]``: word n is word n // units of unit n % units."""
    shape = sizes.shape
    ordered = values.reshape(-1, sizes.unit_rows, sizes.chunks, shape.scus_per_cluster, shape.lanes)
    return np.ascontiguousarray(ordered.transpose(0, 1, 3, 2, 4)).reshape(-1, shape.tile, shape.tile)


def _scatter(
    sizes: FabricSizes, output: Values, program: Program, pieces: list[tuple[int, int]], bank: Values, adds: bool
) -> None:
    tile = sizes.shape.tile
    for index, (piece, column) in enumerate(pieces):
        first, rows = int(program.tile_first_row[piece]), int(program.tile_rows[piece])
        target = output[first : first + rows, column * tile : (column + 1) * tile]
        values = bank[index, : target.shape[0], : target.shape[1]]
        target[...] = add_flushed(target, values) if adds else values
