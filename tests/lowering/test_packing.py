"""What a program does: every pair of pieces that matters meets once, and nothing else is sent."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import acf.sim
from acf.errors import ArchitectureError
from acf.lowering import BALANCERS, PARALLEL, FabricShape, Gemm, lower_gemm
from acf.lowering.fabric_shape import SKIP_MODES, TILES
from acf.lowering.mapping import TokenMapping, choose_mapping, keep_mapping
from acf.lowering.packing import lower_product
from acf.lowering.tiled_product import tile_product
from acf.sim.fabric.functional import compute


@st.composite
def products(draw: st.DrawFn) -> tuple[FabricShape, np.ndarray, np.ndarray, np.ndarray | None]:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    tile, accumulator_tiles = draw(st.sampled_from(TILES)), draw(st.integers(1, 5))
    shape = acf.sim.spec(
        "acf-512",
        mesh_rows=draw(st.integers(1, 4)),
        mesh_columns=draw(st.integers(1, 5)),
        scus_per_cluster=2,
        lanes=draw(st.sampled_from((1, 8))),
        tile=tile,
        accumulator_tiles=accumulator_tiles,
        parallel_slots=accumulator_tiles + 2,
        interconnect=draw(st.sampled_from(("mesh", "static"))),
        balancer=draw(st.sampled_from(tuple(BALANCERS))),
    )
    m, k, n = draw(st.integers(1, 120)), draw(st.integers(1, 120)), draw(st.integers(1, 100))
    a = rng.integers(-3, 4, (m, k)) * (rng.random((m, k)) < draw(st.sampled_from((0.05, 0.5))))
    b = rng.integers(-3, 4, (k, n)) * blocks(rng, k, n, tile, draw(st.sampled_from((0.1, 0.6))))
    return shape, a, b, blocks(rng, m, n, tile, 0.4) if draw(st.booleans()) else None


def blocks(rng: np.random.Generator, rows: int, columns: int, tile: int, density: float) -> np.ndarray:
    present = rng.random((-(-rows // tile), -(-columns // tile))) < density
    return np.kron(present, np.ones((tile, tile), dtype=bool))[:rows, :columns]


@given(products())
def test_integer_results_equal_the_product_exactly(
    case: tuple[FabricShape, np.ndarray, np.ndarray, np.ndarray | None],
) -> None:
    shape, a, b, needed = case
    program = lower_gemm(Gemm(a != 0, b != 0, needed), shape)
    computed = compute(program, shape, a.astype(np.float64), b.astype(np.float64))
    expected = a @ b if needed is None else (a @ b) * needed
    assert (computed.output == expected).all()
    assert set(computed.meetings.values()) <= {1}


@given(products())
def test_only_needed_pieces_are_fetched_and_each_of_them_is(
    case: tuple[FabricShape, np.ndarray, np.ndarray, np.ndarray | None],
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


def test_a_step_with_few_tokens_spreads_the_reduction_over_the_mesh() -> None:
    gemm = Gemm(np.ones((16, 4096), dtype=bool), np.ones((4096, 128), dtype=bool))
    assert lower_gemm(gemm, acf.sim.spec("acf-512")).reduces


def test_a_step_with_many_tokens_spreads_them_over_the_mesh() -> None:
    gemm = Gemm(np.ones((8192, 64), dtype=bool), np.ones((64, 128), dtype=bool))
    assert not lower_gemm(gemm, acf.sim.spec("acf-512")).reduces


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile": 12}, "tile 12 is not one of 8, 16, 32"),
        ({"lanes": 3}, "lanes 3 must divide the tile 16"),
        ({"mesh_rows": 65}, "side above 64"),
        ({"queue_packets": 0}, "queue_packets 0 must be at least 1"),
        ({"skip": "maybe"}, "skip 'maybe' is not one of both, serial, gate"),
        ({"accumulator_tiles": 33, "parallel_slots": 64}, "accumulator_tiles 33 exceeds 32"),
        ({"parallel_slots": 8}, "parallel_slots 8 must be at least accumulator_tiles 16"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        acf.sim.spec("acf-512", **changes)


def cycles_by_hand(shape: FabricShape, serial: np.ndarray, parallel: np.ndarray) -> np.ndarray:
    """Cycles of every unit for one serial piece ``[rows, tile]`` against one parallel piece ``[tile, columns]``."""
    cycles = np.zeros(shape.scus_per_cluster, dtype=int)
    for index, row in enumerate(serial):
        for depth, value in enumerate(row):
            met = np.count_nonzero(parallel[depth]) if shape.skip == "both" else parallel.shape[1]
            if value or shape.skip == "gate":
                cycles[index % shape.scus_per_cluster] += max(-(-met // shape.lanes), shape.scus_per_port)
    return cycles


@given(products(), st.sampled_from(SKIP_MODES), st.sampled_from((0.5, 1.0)))
def test_an_item_takes_as_long_as_its_pairs_of_values(
    case: tuple[FabricShape, np.ndarray, np.ndarray, np.ndarray | None], skip: str, density: float
) -> None:
    shape, a, b, needed = case
    shape = replace(shape, skip=skip)
    b = b * (np.random.default_rng(0).random(b.shape) < density)
    program = lower_gemm(Gemm(a != 0, b != 0, needed), shape)
    serial, parallel = (b.T, a.T) if program.swapped else (a, b)
    tile = shape.tile
    serial = np.pad(serial, ((0, 0), (0, -serial.shape[1] % tile)))
    parallel = np.pad(parallel, ((0, -parallel.shape[0] % tile), (0, 0)))
    expected = 0
    for piece, block, depth in compute(program, shape, np.zeros(a.shape), np.zeros(b.shape)).meetings:
        first, along = program.tile_first_row[piece], slice(depth * tile, (depth + 1) * tile)
        rows = serial[first : first + program.tile_rows[piece], along]
        expected = expected + cycles_by_hand(shape, rows, parallel[along, block * tile : (block + 1) * tile])
    assert (program.rows.item_cycles.sum(axis=0) == expected).all()


@given(products(), st.integers(0, 10**6))
def test_a_mapping_kept_while_blocks_moved_still_gives_the_product_exactly(
    case: tuple[FabricShape, np.ndarray, np.ndarray, np.ndarray | None], seed: int
) -> None:
    shape, a, b, needed = case
    rng = np.random.default_rng(seed)
    moved = rng.integers(1, 4, b.shape) * blocks(rng, *b.shape, shape.tile, 0.3)
    needed_after = None if needed is None else blocks(rng, *needed.shape, shape.tile, 0.4)
    before = tile_product(Gemm(a != 0, b != 0, needed), shape)
    after = tile_product(Gemm(a != 0, moved != 0, needed_after), shape, before.swapped)
    mapping = keep_mapping(choose_mapping(before, shape), before, after, shape)
    program = lower_product(after, shape, mapping)
    computed = compute(program, shape, a.astype(np.float64), moved.astype(np.float64))
    expected = a @ moved if needed_after is None else (a @ moved) * needed_after
    assert (computed.output == expected).all()


def test_a_kept_mapping_leaves_columns_with_their_clusters_and_a_new_one_does_not() -> None:
    shape = acf.sim.spec("acf-512", mesh_rows=1, mesh_columns=4, scus_per_cluster=2)
    rng = np.random.default_rng(0)
    a = np.ones((2, 256), dtype=bool)  # too few tokens to spread: output columns must be shared
    before, after = (
        tile_product(Gemm(a, blocks(rng, 256, 256, 16, 0.3), None), shape, swapped=False) for _ in range(2)
    )
    old, new = choose_mapping(before, shape), choose_mapping(after, shape)
    kept = keep_mapping(old, before, after, shape)
    assert isinstance(old, TokenMapping)
    assert isinstance(new, TokenMapping)
    assert isinstance(kept, TokenMapping)
    assert (kept.group_of == old.group_of).all()
    assert (kept.depth_order(after.present) == old.depth_order(before.present)).all()
    assert (new.group_of != old.group_of).any()
    assert kept.cycles > new.cycles


def test_a_static_mapping_is_the_same_whatever_blocks_are_left() -> None:
    shape = acf.sim.spec("acf-512", mesh_rows=2, mesh_columns=4, interconnect="static")
    a, few = np.ones((256, 256), dtype=bool), np.zeros((256, 256), dtype=bool)
    few[:, :64] = True
    full, pruned = (
        choose_mapping(tile_product(Gemm(a, right, None), shape, swapped=False), shape)
        for right in (np.ones_like(few), few)
    )
    assert isinstance(full, TokenMapping)
    assert isinstance(pruned, TokenMapping)
    assert full.groups == pruned.groups
    assert (full.group_of == pruned.group_of).all()
