"""The output that the fabric must give, bit by bit: the same sums in the same order, in NumPy and numba."""

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.rtl.design.arithmetic.model import add_flushed, bf16_bits, bf16_values
from acf.rtl.design.fabric.decoding import add_groups, assemble_banks
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes

Bank = NDArray[np.float32]


def ordered_output(encoded: EncodedProgram) -> NDArray[np.uint32]:
    """Float32 bits of the output as the fabric computes it, ``[m, n]``.

    Every sum begins at zero and accumulates the products of its cluster k_step by k_step, within a k_step by rising k,
    each rounded to the nearest. Then it is rounded to bf16; or, where the reduction is spread over mesh rows, the sums
    of a mesh column are added from the first row down, and groups of columns in their order (`add_groups`).
    """
    sizes, banks = encoded.sizes, _fill_banks(encoded)
    if not encoded.program.reduces:
        return assemble_banks(encoded, {key: bf16_values(bf16_bits(bank)) for key, bank in banks.items()})
    rows, columns = sizes.shape.mesh_rows, sizes.shape.mesh_columns
    sums = {}
    for column in range(columns):
        for number in encoded.work[column].rounds:
            total = banks.get((column, number), _empty_bank(sizes))
            for row in range(1, rows):
                total = add_flushed(total, banks.get((row * columns + column, number), _empty_bank(sizes)))
            sums[column, number] = total
    return assemble_banks(encoded, add_groups(encoded, sums))


def _empty_bank(sizes: FabricSizes) -> Bank:
    tile = sizes.shape.tile
    return np.zeros((sizes.shape.accumulator_tiles, tile, tile), dtype=np.float32)


def _fill_banks(encoded: EncodedProgram) -> dict[tuple[int, int], Bank]:
    """Accumulator banks ``[tiles, tile, tile]`` by (cluster, round)."""
    program, tile = encoded.program, encoded.sizes.shape.tile
    rows, serial, parallel = program.rows, bf16_values(encoded.serial), bf16_values(encoded.parallel)
    banks: dict[tuple[int, int], Bank] = {}
    for cluster, work in enumerate(encoded.work):
        for item in work.items:
            bank = banks.setdefault((cluster, int(rows.round[item.packet])), _empty_bank(encoded.sizes))
            number, k_tile = int(rows.row_tile[item.packet]), int(rows.k_tile[item.packet])
            first, along = int(program.tile_first_row[number]), slice(k_tile * tile, (k_tile + 1) * tile)
            left = serial[first : first + int(program.tile_rows[number]), along]
            columns = work.blocks[int(rows.k_step[item.packet])]
            for rank, target in item.sums.items():
                right = parallel[along, columns[rank] * tile : (columns[rank] + 1) * tile]
                _accumulate(bank[target], left, right)
    return banks


@compiled
def _accumulate(bank: NDArray[np.float32], left: NDArray[np.float32], right: NDArray[np.float32]) -> None:
    """``bank[row, column] += left[row, k] * right[k, column]`` by rising k, pairs with a zero left out."""
    least = np.float32(2.0**-126)
    zero = np.float32(0.0)
    for row in range(left.shape[0]):
        for k in range(left.shape[1]):
            value = left[row, k]
            if abs(value) < least:
                continue
            for column in range(right.shape[1]):
                factor = right[k, column]
                if abs(factor) < least:
                    continue
                product = np.float32(value * factor)
                if abs(product) < least:
                    product = np.float32(np.copysign(zero, product))
                total = np.float32(bank[row, column] + product)
                if abs(total) < least:
                    total = np.float32(np.copysign(zero, total))
                bank[row, column] = total
