"""The block-CSR walker: every element once, in order, in the cycle that its model says."""

import numpy as np
import pytest
import torch

from acf.rtl.design.index.block_walker import BlockWalker, WalkerSpec, walk_blocks, walker_cycles
from acf.rtl.verify.benches.memory_bench import WithMemory
from acf.sparse import BlockLayout, BlockTopology

LAYOUT = BlockLayout(rows=8, cols=12, block_height=2, block_width=4)
SPEC = WalkerSpec(block_height=2, block_width=4)


def topology() -> BlockTopology:
    """Some blocks, one row of blocks without any, slots in no order."""
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1], [1, 0, 0]], dtype=torch.bool)
    rows, cols = torch.nonzero(mask, as_tuple=True)
    order = torch.tensor([3, 0, 4, 2, 1])
    return BlockTopology.build(LAYOUT, rows[order], cols[order])


def order_of(blocks: BlockTopology, transposed: bool) -> tuple[list[int], list[int], list[int]]:
    """Offsets, slots and indices of one direction."""
    if transposed:
        return blocks.col_offsets.tolist(), blocks.col_slots.tolist(), blocks.block_rows.tolist()
    return blocks.row_offsets.tolist(), blocks.row_slots.tolist(), blocks.block_cols.tolist()


@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
def test_both_orders_read_the_one_packed_copy(transposed: bool) -> None:
    blocks = topology()
    packed = torch.arange(1.0, 1 + 5 * 8).reshape(5, 2, 4)
    dense = LAYOUT.unpack(packed, blocks.block_rows, blocks.block_cols)
    matrix = dense.T if transposed else dense
    height, width = (4, 2) if transposed else (2, 4)
    rebuilt, step = torch.zeros_like(matrix), 0
    for element in walk_blocks(*order_of(blocks, transposed), SPEC, transposed):
        step = 0 if element.first else step + 1
        row, column = divmod(step, width)
        rebuilt[element.line * height + row, element.index * width + column] = packed.flatten()[element.address]
    assert torch.equal(rebuilt, matrix)


def test_the_block_walker_offers_each_element_in_the_models_cycle(simulate) -> None:
    orders = [order_of(topology(), transposed) for transposed in (False, True)]
    memory = [word for order in orders for part in order for word in part]
    simulation, base = simulate(WithMemory(BlockWalker(SPEC), memory)), 0
    ready = (np.random.default_rng(0).random(110) < 0.6).astype(int)
    for transposed, (offsets, slots, indices) in enumerate(orders):
        outputs = simulation.run(
            {
                "start": np.arange(ready.size) == 0,
                "transposed": transposed,
                "lines": len(offsets) - 1,
                "offsets_base": base,
                "slots_base": base + len(offsets),
                "indices_base": base + len(offsets) + len(slots),
                "ready": ready,
            }
        )
        expected = walker_cycles(offsets, slots, indices, SPEC, bool(transposed), ready.tolist())
        for cycle, element in enumerate(expected):
            assert bool(outputs["valid"][cycle]) == (element is not None), f"cycle {cycle}"
            if element is not None:
                assert {name: int(outputs[name][cycle]) for name in vars(element)} == vars(element), f"cycle {cycle}"
        assert (outputs["valid"] * ready).sum() == 5 * SPEC.block_elements
        assert outputs["busy"][-1] == 0
        base += len(offsets) + len(slots) + len(indices)
