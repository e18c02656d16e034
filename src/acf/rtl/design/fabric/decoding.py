"""From streams of results, as they leave the fabric, to the output of a program. `encoding` is the way in."""

from collections.abc import Sequence

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
    """Float32 bits of the output ``[m, n]`` out of the values of all result streams."""
    program, sizes = encoded.program, encoded.sizes
    output = np.zeros(encoded.output_shape, dtype=np.float32)
    value_bytes = 4 if program.reduces else 2
    for index, values in enumerate(streams):
        taken = 0
        for number in encoded.work[index].rounds:
            flits = _round_flits(program, number, *divmod(index, sizes.shape.mesh_columns))
            count = flits * sizes.shape.link_bytes // value_bytes
            bank = _bank(sizes, values[taken : taken + count])
            taken += count
            scatter_tiles(encoded, output, (index, number), bank)
    return oriented(program, output)


def scatter_tiles(encoded: EncodedProgram, output: Values, key: tuple[int, int], bank: Values) -> None:
    """Put the tiles of a bank where they belong in the output; ``key`` is (cluster or mesh column, round).

    Where a reduction is split over groups of mesh columns, the later groups add to what the first one wrote.
    """
    program, tile = encoded.program, encoded.sizes.shape.tile
    adds = program.reduces and key[0] >= encoded.sizes.shape.mesh_columns // program.split
    for index, (serial_tile, column) in enumerate(encoded.tiles[key]):
        first, rows = int(program.tile_first_row[serial_tile]), int(program.tile_rows[serial_tile])
        target = output[first : first + rows, column * tile : (column + 1) * tile]
        values = bank[index, : target.shape[0], : target.shape[1]]
        target[...] = add_flushed(target, values) if adds else values


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
