"""The stream of blocks: every block of every k_tile in order, one a cycle or one in two."""

import numpy as np
import pytest

from acf.rtl.design.index.block_stream import BlockStream
from acf.rtl.verify.benches.memory_bench import WithMemory

OFFSETS = [0, 3, 3, 4, 6]
"""Blocks before every k_tile; the second has none."""
SLOTS = [4, 0, 2, 5, 1, 3]
ENTRIES = [70, 71, 72, 73, 74, 75]


def streamed(simulation, direct: bool, ready: np.ndarray) -> tuple[list[tuple[int, int, int]], dict[str, np.ndarray]]:
    """Slot, entry and k_tile of the blocks that are taken, and all outputs."""
    outputs = simulation.run(
        {
            "start": np.arange(ready.size) == 0,
            "direct": int(direct),
            "lines": len(OFFSETS) - 1,
            "offsets_base": 0,
            "slots_base": len(OFFSETS),
            "entries_base": len(OFFSETS) + len(SLOTS),
            "ready": ready,
        }
    )
    taken = np.flatnonzero(outputs["valid"] * ready)
    return [tuple(int(outputs[name][cycle]) for name in ("slot", "entry", "line")) for cycle in taken], outputs


@pytest.mark.parametrize("direct", [True, False], ids=["by k_tile", "through slots"])
def test_blocks_leave_once_in_order_however_often_they_must_wait(direct: bool, interpret) -> None:
    simulation = interpret(WithMemory(BlockStream(), OFFSETS + SLOTS + ENTRIES))
    slots = list(range(6)) if direct else SLOTS
    k_tiles = [0, 0, 0, 2, 3, 3]
    expected = [(slot, ENTRIES[slot], k_tile) for slot, k_tile in zip(slots, k_tiles, strict=True)]
    for share in (1.0, 0.4):
        ready = (np.random.default_rng(0).random(80) < share).astype(int)
        blocks, outputs = streamed(simulation, direct, ready)
        assert blocks == expected
        assert int(outputs["ends"].sum()) == 1
        assert np.flatnonzero(outputs["busy"])[-1] == np.flatnonzero(outputs["ends"])[0]


def test_a_block_takes_one_cycle_where_entries_lie_in_order_and_two_through_slots(interpret) -> None:
    simulation = interpret(WithMemory(BlockStream(), OFFSETS + SLOTS + ENTRIES))
    k_tile_cycles = 2 * (len(OFFSETS) - 1)
    for direct, block_cycles in ((True, 1), (False, 2)):
        _, outputs = streamed(simulation, direct, np.ones(60, dtype=int))
        assert int(outputs["busy"].sum()) == k_tile_cycles + block_cycles * len(SLOTS)
