"""What a topology update leaves, bit by bit: scores in the unit's order of additions, then its selection."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import add_fp32
from acf.rtl.design.vector.model import VectorInputs, run_pass

Block = tuple[int, int]


def block_scores(blocks: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Float32 bits of the sum of squares of ``blocks [count, rows, lanes]``: down the lanes, then over them."""
    lanes = blocks.shape[2]
    nothing = np.zeros((5, lanes), dtype=np.float32)
    scores = []
    for block in blocks:
        inputs = VectorInputs(block, block, np.zeros((1, lanes), dtype=bool), nothing)
        total = np.zeros((), dtype=np.uint32)
        for lane in run_pass(("batch_norm", "forward", 0), inputs, len(block)).second_sums:
            total = add_fp32(total, lane)
        scores.append(int(total))
    return np.array(scores, dtype=np.uint32)


def move_blocks(
    blocks: Sequence[Block], shape: Block, norms: NDArray[np.uint32], gradients: NDArray[np.uint32], moves: int
) -> list[Block]:
    """The block of every slot after an update.

    ``blocks`` by slot in a layer of ``shape`` (rows, columns) blocks; ``norms [slots]`` and ``gradients [rows,
    columns]`` are scores. The ``moves`` present blocks of the least norm leave, the earlier slot of equal ones first,
    and their slots go to the absent blocks of the largest gradient in that order. Raises `RtlError` where a row or a
    column of blocks would be empty.
    """
    present = set(blocks)
    absent = [(row, column) for row in range(shape[0]) for column in range(shape[1]) if (row, column) not in present]
    dropped = np.argsort(norms, kind="stable")[:moves]
    grown = sorted(absent, key=lambda block: -int(gradients[block]))[:moves]
    after = list(blocks)
    for slot, block in zip(dropped.tolist(), grown, strict=True):
        after[slot] = block
    for axis, name in ((0, "row"), (1, "column")):
        missing = sorted(set(range(shape[axis])) - {block[axis] for block in after})
        if missing:
            raise RtlError(f"{name} {missing[0]} of blocks would be empty; move fewer blocks, or keep more")
    return after
