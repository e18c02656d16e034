"""A step that scores absent blocks needs little more memory than an ordinary one, as the example counts it."""

import runpy
from pathlib import Path

import pytest

from acf.nn import BlockSparsity

pytestmark = pytest.mark.usefixtures("few_collected_objects")

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "scoring_memory.py"))
measure, POLICIES = EXAMPLE["measure"], EXAMPLE["POLICIES"]


# What tokens add shows where every absent block is scored and where inputs are summed.
@pytest.mark.parametrize(
    ("scored", "tokens"), [*((scored, 1) for scored in POLICIES), ("all absent blocks", 64), ("input-aware", 64)]
)
def test_a_scoring_step_needs_less_than_a_quarter_more_than_an_ordinary_one(scored, tokens):
    policy, distribution = POLICIES[scored]
    memory = measure(tokens, BlockSparsity(0.9, block=16, distribution=distribution), policy)
    assert memory.ordinary_bytes > 0.1 * 4096 * 4096 * 4  # the gradient, at least
    assert memory.ratio_in_all < 1.1
    assert memory.ratio_within_the_step < 1.25  # though parameters and optimizer state count for nothing


def test_small_blocks_which_have_four_times_the_scores_hold_it_too():
    policy, distribution = POLICIES["all absent blocks"]
    memory = measure(1, BlockSparsity(0.9, block=8, distribution=distribution), policy)
    assert memory.ratio_in_all < 1.25
