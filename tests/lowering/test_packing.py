"""What a program does: every pair of tiles that matters meets once, and nothing else is sent."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acf.lowering import PARALLEL, FabricShape, Gemm, lower_gemm
from acf.lowering.fabric_shape import SKIP_MODES
from acf.lowering.tiled_product import tile_product
from acf.sim.fabric.functional import compute
from tests.lowering.random_products import Case, products


@given(products())
def test_integer_results_equal_the_product_exactly(
    case: Case,
) -> None:
    shape, a, b, needed = case
    program = lower_gemm(Gemm(a != 0, b != 0, needed), shape)
    computed = compute(program, shape, a.astype(np.float64), b.astype(np.float64))
    expected = a @ b if needed is None else (a @ b) * needed
    assert (computed.output == expected).all()
    assert set(computed.meetings.values()) <= {1}


@given(products())
def test_only_needed_tiles_are_fetched_and_each_of_them_is(
    case: Case,
) -> None:
    shape, a, b, needed = case
    gemm = Gemm(a != 0, b != 0, needed)
    product = tile_product(gemm, shape)
    program = lower_gemm(gemm, shape)
    met = compute(program, shape, np.zeros(a.shape), np.zeros(b.shape)).meetings
    fetched = {
        (int(row), int(depth))
        for stream in (program.columns, program.rows)
        for row, depth, kind in zip(stream.row_tile, stream.k_tile, stream.kind, strict=True)
        if kind == PARALLEL
    }
    assert fetched == {(block, depth) for _, block, depth in met}
    assert all(product.present[block, depth] for block, depth in fetched)


def cycles_by_hand(shape: FabricShape, serial: np.ndarray, parallel: np.ndarray) -> np.ndarray:
    """Cycles of every SCU for one serial tile ``[rows, tile]`` against one parallel tile ``[tile, columns]``."""
    cycles = np.zeros(shape.scus_per_cluster, dtype=int)
    for index, row in enumerate(serial):
        for depth, value in enumerate(row):
            met = np.count_nonzero(parallel[depth]) if shape.skip == "both" else parallel.shape[1]
            if value or shape.skip == "gate":
                cycles[index % shape.scus_per_cluster] += max(-(-met // shape.lanes), shape.scus_per_port)
    return cycles


@given(products(), st.sampled_from(SKIP_MODES), st.sampled_from((0.5, 1.0)))
def test_an_item_takes_as_long_as_its_pairs_of_values(case: Case, skip: str, density: float) -> None:
    shape, a, b, needed = case
    shape = replace(shape, skip=skip)
    b = b * (np.random.default_rng(0).random(b.shape) < density)
    program = lower_gemm(Gemm(a != 0, b != 0, needed), shape)
    serial, parallel = (b.T, a.T) if program.swapped else (a, b)
    tile = shape.tile
    serial = np.pad(serial, ((0, 0), (0, -serial.shape[1] % tile)))
    parallel = np.pad(parallel, ((0, -parallel.shape[0] % tile), (0, 0)))
    expected = 0
    for tile_row, column, k_tile in compute(program, shape, np.zeros(a.shape), np.zeros(b.shape)).meetings:
        first, along = program.tile_first_row[tile_row], slice(k_tile * tile, (k_tile + 1) * tile)
        rows = serial[first : first + program.tile_rows[tile_row], along]
        expected = expected + cycles_by_hand(shape, rows, parallel[along, column * tile : (column + 1) * tile])
    assert (program.rows.item_cycles.sum(axis=0) == expected).all()
