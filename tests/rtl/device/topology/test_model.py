"""The reference of a topology update: which blocks leave and which grow."""

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.device.topology.model import block_scores, move_blocks


def test_scores_are_sums_of_squares() -> None:
    blocks = np.random.default_rng(0).standard_normal((3, 8, 8)).astype(np.float32)
    found = block_scores(blocks).view(np.float32)
    np.testing.assert_allclose(found, np.square(blocks).sum(axis=(1, 2)), rtol=1e-5)


def test_slots_of_the_smallest_blocks_go_to_the_largest_gradients() -> None:
    norms = np.array([3, 1, 2, 9], dtype=np.uint32)
    gradients = np.array([[9, 5, 9], [7, 8, 9]], dtype=np.uint32)
    blocks = [(0, 0), (0, 2), (1, 2), (0, 1)]
    with pytest.raises(RtlError, match="column 2 of blocks would be empty"):
        move_blocks(blocks, (2, 3), norms, gradients, 2)
    assert move_blocks(blocks, (2, 3), norms, gradients, 1) == [(0, 0), (1, 1), (1, 2), (0, 1)]
