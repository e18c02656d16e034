"""The selection of a topology unit keeps the best scores with their tags, of equal ones the earlier first."""

import numpy as np
import pytest

from acf.rtl.device.topology.selection import Selection


@pytest.mark.parametrize("least", [False, True], ids=["largest", "least"])
def test_the_best_scores_come_out_in_order(least: bool, interpret) -> None:
    simulation = interpret(Selection(3, 4))
    rng = np.random.default_rng(0)
    for _ in range(4):
        scores = rng.integers(0, 5, 10).astype(np.uint32) << 24  # few values, so that some are equal
        count = len(scores)
        seen = simulation.run(
            {
                "clear": np.arange(count + 2) == 0,
                "least": int(least),
                "valid": np.concatenate(([0], np.ones(count), [0])).astype(np.uint64),
                "score": np.concatenate(([0], scores, [0])).astype(np.uint64),
                "tag": np.concatenate(([0], np.arange(count), [0])).astype(np.uint64),
            }
        )
        tags = [int(seen["tags"][-1]) >> 4 * place & 15 for place in range(3)]
        keys = scores.astype(np.int64) * (1 if least else -1)
        assert tags == np.argsort(keys, kind="stable")[:3].tolist()
        assert seen["held"][-1] == 3
