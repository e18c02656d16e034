"""The list of output tiles that a topology unit writes is the one that lowering makes of the same topology."""

from dataclasses import replace

import numpy as np
import pytest

from acf.lowering import Gemm
from acf.lowering.product_index import build_index
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import tile_product
from tests.rtl.device.programs import SIZES
from tests.rtl.device.topology.unit_bench import LIST_FLIT, Group, run_update


def lowered_list(needed: np.ndarray, group: Group, mesh_columns: int) -> list[int]:
    """The output tiles of a split-K weight gradient over dense operands, as lowering balances and lists them."""
    shape = replace(SIZES.shape, mesh_columns=mesh_columns, accumulator_tiles=group.accumulator_tiles, parallel_slots=8)
    rows, columns = (8 * side for side in needed.shape)
    gemm = Gemm(np.ones((rows, 16), bool), np.ones((16, columns), bool), np.kron(needed, np.ones((8, 8), dtype=bool)))
    product = tile_product(gemm, shape, swapped=False)
    index = build_index(product, SplitKMapping.balanced(product, shape, mesh_columns // group.columns), shape)
    return index.words[index.descriptor.owners_at : index.descriptor.orders_at].tolist()


@pytest.mark.parametrize(
    ("shape", "group"),
    [((3, 5), Group(1, 2)), ((6, 3), Group(2, 2)), ((5, 7), Group(4, 3))],
    ids=["one mesh column", "a group of two", "a group of four"],
)
def test_a_list_written_in_gates_is_that_of_lowering(shape: tuple[int, int], group: Group) -> None:
    before = np.random.default_rng(3).random(shape) < 0.5
    before[:, :2], before[0], before[-1, 2:] = True, True, False
    seen = run_update(before, 2, tile=8, read_cycles=2, group=group)
    assert not seen.failed
    assert (seen.after != before).sum() == 4  # two blocks have moved
    expected = lowered_list(seen.after, group, mesh_columns=4)
    found = seen.words_from(LIST_FLIT)
    assert found[: len(expected)] == expected
    assert not any(found[len(expected) :])
    assert expected != lowered_list(before, group, mesh_columns=4)


def test_an_update_for_more_mesh_columns_than_there_are_fails() -> None:
    before = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
    assert run_update(before, 1, tile=8, read_cycles=2, group=Group(5, 2)).failed
