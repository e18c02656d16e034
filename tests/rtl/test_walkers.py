"""The walkers: every element once, in order, in the cycle that their models say."""

import numpy as np
import pytest
import torch

from acf.rtl.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.memory_bench import WithMemory
from acf.rtl.units.block_walker import BlockWalker, WalkerSpec, walk_blocks, walker_cycles
from acf.rtl.units.csc_walker import CscWalkerSpec, RelativeCscWalker, csc_cycles, csc_memory
from acf.sparse import BlockLayout, BlockTopology
from acf.sparse.relative_csc import encode_columns

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


def test_the_csc_walker_decodes_columns_and_passes_over_padding(simulate) -> None:
    generator, spec = np.random.default_rng(1), CscWalkerSpec(skip_bits=2)
    columns = (generator.random((6, 40)) < 0.1) * generator.integers(1, 9, (6, 40)).astype(float)
    columns[2] = 0.0
    encoded = encode_columns(columns, spec.skip_bits)
    assert encoded.padding > 0
    memory = csc_memory(encoded, bf16_bits(encoded.values).tolist(), spec)
    ready = (generator.random(140) < 0.7).astype(int)
    outputs = simulate(WithMemory(RelativeCscWalker(spec), memory)).run(
        {"start": np.arange(ready.size) == 0, "columns": 6, "entries_base": 7, "ready": ready}
    )
    decoded = np.zeros_like(columns)
    for cycle, entry in enumerate(csc_cycles(memory, 6, spec, ready.tolist())):
        assert bool(outputs["valid"][cycle]) == (entry is not None), f"cycle {cycle}"
        if entry is not None:
            assert {name: int(outputs[name][cycle]) for name in vars(entry)} == vars(entry), f"cycle {cycle}"
            decoded[entry.column, entry.row] = bf16_values([entry.value])[0]
    np.testing.assert_array_equal(decoded, columns)
    assert outputs["busy"][-1] == 0
