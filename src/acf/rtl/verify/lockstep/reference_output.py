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
    each rounded to the nearest; where SCUs hold a block, by falling k in every other row of an SCU. Then it is rounded
    to bf16; or, where the reduction is spread over mesh rows, the sums
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
    program, tile, scus = encoded.program, encoded.sizes.shape.tile, encoded.sizes.shape.scus_per_cluster
    rows, serial, parallel = program.rows, bf16_values(encoded.serial), bf16_values(encoded.parallel)
    banks: dict[tuple[int, int], Bank] = {}
    for cluster, work in enumerate(encoded.work):
        for item in work.items:
            bank = banks.setdefault((cluster, int(rows.round[item.packet])), _empty_bank(encoded.sizes))
            number, k_tile = int(rows.row_tile[item.packet]), int(rows.k_tile[item.packet])
            first, along = int(program.tile_first_row[number]), slice(k_tile * tile, (k_tile + 1) * tile)
            left = serial[first : first + int(program.tile_rows[number]), along]
            falling = np.arange(len(left)) // scus % 2 * encoded.sizes.holds_sums == 1
            columns = work.blocks[int(rows.k_step[item.packet])]
            for rank, target in item.sums.items():
                right = parallel[along, columns[rank] * tile : (columns[rank] + 1) * tile]
                _accumulate(bank[target], left, right, falling)
    return banks


@compiled
def _accumulate(
    bank: NDArray[np.float32], left: NDArray[np.float32], right: NDArray[np.float32], falling: NDArray[np.bool_]
) -> None:
    """``bank[row, column] += left[row, k] * right[k, column]`` by rising or falling k, pairs with a zero left out."""
    depth = left.shape[1]
    for row in range(left.shape[0]):
        for place in range(depth):
            k = depth - 1 - place if falling[row] else place
            for column in range(right.shape[1]):
                if _is_normal(left[row, k]) and _is_normal(right[k, column]):
                    product = _flushed(left[row, k] * right[k, column])
                    bank[row, column] = _flushed(bank[row, column] + product)


@compiled
def _is_normal(value: np.float32) -> bool:
    """Whether a number is neither zero nor subnormal."""
    return not abs(value) < np.float32(2.0**-126)


@compiled
def _flushed(value: np.float32) -> np.float32:
    """The number rounded to float32, or zero with its sign where that is subnormal."""
    rounded = np.float32(value)
    return rounded if _is_normal(rounded) else np.float32(np.copysign(np.float32(0.0), rounded))
