"""From streams of results, as they leave the fabric, to the output of a program. `encoding` is the way in."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Program
from acf.rtl.design.arithmetic.model import QUIET_NAN, add_flushed, bf16_values
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes

Values = NDArray[np.float32]


def result_values(content: bytes) -> Values:
    """Flits of a cluster's results, bf16, as float32."""
    return bf16_values(np.frombuffer(content, dtype="<u2").astype(np.uint16))


def sum_values(content: bytes) -> Values:
    """Flits of a mesh column's partial sums, float32."""
    return np.frombuffer(content, dtype="<f4").astype(np.float32)


def stream_flits(encoded: EncodedProgram) -> list[int]:
    """Flits of every result stream: one per cluster, or one per mesh column where its partial sums are added."""
    program, columns = encoded.program, encoded.sizes.shape.mesh_columns
    work = encoded.work[:columns] if program.reduces else encoded.work
    return [
        sum(_round_flits(program, number, *divmod(index, columns)) for number in own.rounds)
        for index, own in enumerate(work)
    ]


def assemble_output(encoded: EncodedProgram, streams: Sequence[Values]) -> NDArray[np.uint32]:
    """Float32 bits of the output ``[m, n]`` out of the values of all result streams, as they leave the fabric."""
    banks: dict[tuple[int, int], Values] = {}
    for index, values in enumerate(streams):
        banks |= _banks(encoded, values, index, encoded.work[index].rounds)
    return assemble_banks(encoded, add_groups(encoded, banks) if encoded.program.reduces else banks)


def assemble_added(encoded: EncodedProgram, streams: Sequence[Values]) -> NDArray[np.uint32]:
    """As `assemble_output` where groups of mesh columns have been added: a stream for every column of a group."""
    banks: dict[tuple[int, int], Values] = {}
    for index, values in enumerate(streams):
        banks |= _banks(encoded, values, index, chain_rounds(encoded, index))
    return assemble_banks(encoded, banks)


def assemble_banks(encoded: EncodedProgram, banks: Mapping[tuple[int, int], Values]) -> NDArray[np.uint32]:
    """Float32 bits of the output out of accumulator banks by (cluster or mesh column of the first group, round)."""
    output = np.zeros(encoded.output_shape, dtype=np.float32)
    for (place, number), bank in banks.items():
        _scatter_tiles(encoded, output, place, number, bank)
    return oriented(encoded.program, output)


def add_groups(encoded: EncodedProgram, banks: Mapping[tuple[int, int], Values]) -> dict[tuple[int, int], Values]:
    """Add partial sums of groups of mesh columns, the first group first; ``banks`` by (mesh column, round).

    A column that has no part in a round adds zeros.
    """
    shape = encoded.sizes.shape
    empty = np.zeros((1, shape.tile, shape.tile), dtype=np.float32)
    added = {}
    for column in range(shape.mesh_columns // encoded.program.split):
        for number in chain_rounds(encoded, column):
            total, *others = (banks.get((each, number), empty) for each in _chain(encoded, column))
            for bank in others:
                total = add_flushed(total, bank)
            added[column, number] = total
    return added


def chain_rounds(encoded: EncodedProgram, column: int) -> list[int]:
    """Rounds in which a mesh column of the first group, or the column at its place in another group, takes part."""
    return sorted({number for each in _chain(encoded, column) for number in encoded.work[each].rounds})


def chain_flits(encoded: EncodedProgram) -> list[int]:
    """Flits of partial sums of every mesh column of a group, once the groups have been added."""
    width = encoded.sizes.shape.mesh_columns // encoded.program.split
    return [
        sum(_round_flits(encoded.program, number, 0, column) for number in chain_rounds(encoded, column))
        for column in range(width)
    ]


def _chain(encoded: EncodedProgram, column: int) -> range:
    """The mesh columns whose partial sums belong to the same outputs, one of every group."""
    columns = encoded.sizes.shape.mesh_columns
    return range(column, columns, columns // encoded.program.split)


def _banks(encoded: EncodedProgram, values: Values, index: int, rounds: Sequence[int]) -> dict[tuple[int, int], Values]:
    """The accumulator banks of a stream by (``index``, round)."""
    program, sizes = encoded.program, encoded.sizes
    value_bytes = 4 if program.reduces else 2
    banks, taken = {}, 0
    for number in rounds:
        flits = _round_flits(program, number, *divmod(index, sizes.shape.mesh_columns))
        count = flits * sizes.shape.link_bytes // value_bytes
        banks[index, number] = _bank(sizes, values[taken : taken + count])
        taken += count
    return banks


def _scatter_tiles(encoded: EncodedProgram, output: Values, place: int, number: int, bank: Values) -> None:
    """Put the tiles of a bank where they belong in the output."""
    program, tile = encoded.program, encoded.sizes.shape.tile
    places = _chain(encoded, place) if program.reduces else [place]
    tiles = next(encoded.tiles[each, number] for each in places if (each, number) in encoded.tiles)
    for index, (serial_tile, column) in enumerate(tiles):
        first, rows = int(program.tile_first_row[serial_tile]), int(program.tile_rows[serial_tile])
        target = output[first : first + rows, column * tile : (column + 1) * tile]
        target[...] = bank[index, : target.shape[0], : target.shape[1]]


def oriented(program: Program, output: Values) -> NDArray[np.uint32]:
    """Bits of the output with one kind of NaN, transposed where the right operand was the serial one."""
    bits = output.view(np.uint32)
    bits = np.where(np.isnan(output), np.uint32(QUIET_NAN), bits)
    return np.ascontiguousarray(bits.T if program.swapped else bits)


def _round_flits(program: Program, number: int, row: int, column: int) -> int:
    if program.reduces:
        return int(program.round_flits[number, 0, column]) // program.split
    return int(program.round_flits[number, row, column])


def _bank(sizes: FabricSizes, values: Values) -> Values:
    """Values in the order of leaving as ``[tiles, tile, tile]``: word n is word n // SCUs of SCU n % SCUs."""
    shape = sizes.shape
    ordered = values.reshape(-1, sizes.scu_rows, sizes.chunks, shape.scus_per_cluster, shape.lanes)
    return np.ascontiguousarray(ordered.transpose(0, 1, 3, 2, 4)).reshape(-1, shape.tile, shape.tile)
