"""Mappings: which dataflow is chosen, and what stays where blocks move."""

from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.lowering import FabricShape, Gemm, lower_gemm
from acf.lowering.mapping import Mapping, choose_mapping, keep_mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.packing import lower_product
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.sim.fabric.functional import compute
from tests.lowering.random_products import Case, blocks, fabric, products


def test_few_tokens_are_mapped_split_k() -> None:
    gemm = Gemm(np.ones((16, 4096), dtype=bool), np.ones((4096, 128), dtype=bool))
    assert lower_gemm(gemm, fabric()).reduces


def test_many_tokens_are_mapped_output_stationary() -> None:
    gemm = Gemm(np.ones((8192, 64), dtype=bool), np.ones((64, 128), dtype=bool))
    assert not lower_gemm(gemm, fabric()).reduces


@dataclass(frozen=True, kw_only=True)
class SlowControllers(FabricShape):
    """A fabric whose controllers take so many cycles for products of each dataflow."""

    stationary_cycles: int
    split_k_cycles: int

    def control_cycles(self, product: TiledProduct, mapping: Mapping) -> int:
        return self.split_k_cycles if isinstance(mapping, SplitKMapping) else self.stationary_cycles


@pytest.mark.parametrize(
    ("stationary_cycles", "split_k_cycles", "is_split_k"),
    [(1, 1, True), (1, 10**6, False), (10**6, 10**6, True)],
    ids=["controllers are fast", "split-K keeps them long", "both keep them long"],
)
def test_work_decides_unless_controllers_take_longer_for_one_of_the_mappings(
    stationary_cycles: int, split_k_cycles: int, is_split_k: bool
) -> None:
    sizes = {each.name: getattr(fabric(), each.name) for each in fields(FabricShape)}
    shape = SlowControllers(**sizes, stationary_cycles=stationary_cycles, split_k_cycles=split_k_cycles)
    gemm = Gemm(np.ones((16, 4096), dtype=bool), np.ones((4096, 128), dtype=bool))
    assert lower_gemm(gemm, shape).reduces == is_split_k


@given(products(), st.integers(0, 10**6))
def test_a_mapping_kept_while_blocks_moved_still_gives_the_product_exactly(case: Case, seed: int) -> None:
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
    shape = fabric(mesh_rows=1, mesh_columns=4, scus_per_cluster=2)
    rng = np.random.default_rng(0)
    a = np.ones((2, 256), dtype=bool)  # too few tokens to spread: output columns must be shared
    before, after = (
        tile_product(Gemm(a, blocks(rng, 256, 256, 16, 0.3), None), shape, swapped=False) for _ in range(2)
    )
    old, new = choose_mapping(before, shape), choose_mapping(after, shape)
    kept = keep_mapping(old, before, after, shape)
    assert isinstance(old, OutputStationaryMapping)
    assert isinstance(new, OutputStationaryMapping)
    assert isinstance(kept, OutputStationaryMapping)
    assert (kept.column_of == old.column_of).all()
    assert (kept.k_orders(after.present) == old.k_orders(before.present)).all()
    assert (new.column_of != old.column_of).any()
    assert kept.estimated_cycles > new.estimated_cycles


def test_a_static_mapping_is_the_same_whatever_blocks_are_left() -> None:
    shape = fabric(mesh_rows=2, mesh_columns=4, interconnect="static")
    a, few = np.ones((256, 256), dtype=bool), np.zeros((256, 256), dtype=bool)
    few[:, :64] = True
    full, pruned = (
        choose_mapping(tile_product(Gemm(a, right, None), shape, swapped=False), shape)
        for right in (np.ones_like(few), few)
    )
    assert isinstance(full, OutputStationaryMapping)
    assert isinstance(pruned, OutputStationaryMapping)
    assert full.group_columns == pruned.group_columns
    assert (full.column_of == pruned.column_of).all()


def test_a_kept_split_k_mapping_of_a_layer_that_lost_all_blocks_sends_nothing() -> None:
    shape = fabric(mesh_rows=2, mesh_columns=2)
    a, right = np.ones((2, 512), dtype=bool), np.ones((512, 16), dtype=bool)
    before, after = (tile_product(Gemm(a, b), shape, swapped=False) for b in (right, np.zeros_like(right)))
    mapping = choose_mapping(before, shape)
    assert isinstance(mapping, SplitKMapping)
    assert lower_product(after, shape, keep_mapping(mapping, before, after, shape)).rows.packets == 0
