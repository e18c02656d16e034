"""When blocks move under Algorithm 1 and how many, and which settings are refused."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.errors import SparsityError
from acf.masks import SCHEDULES, BlockDST


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"total_steps": 0},
            "total_steps 0 is out of range: it must be a whole number of at least 1",
        ),
        (
            {"total_steps": 10, "every": 0},
            "every 0 is out of range: it must be a whole number of at least 1; pass",
        ),
        ({"total_steps": 10_000, "every": 1000 / 10}, "every 100.0 is out of range: it must be a whole number"),
        ({"total_steps": 10, "every": -5}, "every -5 is out of range: it must be a whole number of at least 1"),
        ({"total_steps": 10, "fraction": 0.0}, "fraction 0.0 is out of range: it must be above 0 and at most 1"),
        ({"total_steps": 10, "fraction": 1.5}, "fraction 1.5 is out of range: it must be above 0 and at most 1"),
        ({"total_steps": 10, "fraction": math.nan}, "fraction nan is out of range"),
        ({"total_steps": 10, "stop_at": 0.0}, "stop_at 0.0 is out of range: it must be above 0 and at most 1"),
        ({"total_steps": 10, "stop_at": 1.01}, "stop_at 1.01 is out of range"),
        ({"total_steps": 10, "schedule": "sine"}, "schedule 'sine' is not one of cosine, linear, cubic, constant; use"),
        ({"total_steps": 10, "seed": -1}, "seed -1 is out of range: it must be a whole number of at least 0"),
        ({"total_steps": 10, "every": 1, "score": "size"}, "score 'size' is not one of magnitude, input_aware; use"),
        ({"total_steps": 10, "every": 1, "momentum": 1.0}, "momentum 1.0 is out of range: it must be at least 0 and"),
        ({"total_steps": 10, "every": 1, "candidates": 0}, "candidates 0 is out of range: it must be None, a fraction"),
        ({"total_steps": 10, "every": 1, "candidates": 1.5}, "candidates 1.5 is out of range"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_value_rule_and_remedy(settings, message):
    with pytest.raises(SparsityError) as caught:
        BlockDST(**settings)
    assert message in str(caught.value)


def test_a_schedule_that_would_never_move_a_block_is_refused():
    with pytest.raises(SparsityError, match=r"every 100 is beyond the last moving step 37\.5"):
        BlockDST(total_steps=50)


@pytest.mark.parametrize("settings", [{"fraction": 1.0, "every": 7}, {"every": 10, "stop_at": 1.0}, {"every": 1}])
def test_settings_at_the_edge_of_the_range_are_accepted(settings):
    policy = BlockDST(**{"total_steps": 10, **settings})
    assert any(policy.moves_at(step) for step in range(1, 11))


def test_blocks_move_at_every_multiple_up_to_the_last_step_and_never_before_the_first():
    policy = BlockDST(total_steps=40, every=4, stop_at=0.5)
    assert [step for step in range(-4, 41) if policy.moves_at(step)] == [4, 8, 12, 16, 20]


def test_the_topology_rests_when_a_multiple_falls_after_the_last_step():
    policy = BlockDST(total_steps=30, every=10, stop_at=0.75)
    assert [step for step in range(31) if policy.moves_at(step)] == [10, 20]


def test_the_share_of_blocks_that_move_follows_the_schedule():
    cosine = BlockDST(total_steps=100, every=10, fraction=0.4, stop_at=1.0)
    assert [cosine.blocks_to_move(step, present=100, absent=900) for step in (0, 50, 100)] == [40, 20, 0]
    constant = BlockDST(total_steps=100, every=10, fraction=0.4, schedule="constant", stop_at=1.0)
    assert [constant.blocks_to_move(step, present=100, absent=900) for step in (0, 50, 100)] == [40, 40, 40]


def test_the_schedule_ends_at_the_last_moving_step_not_at_the_end_of_training():
    policy = BlockDST(total_steps=100, every=10, fraction=0.4, stop_at=0.5)
    assert policy.blocks_to_move(25, present=100, absent=900) == 20
    assert policy.blocks_to_move(50, present=100, absent=900) == 0


def test_no_more_blocks_move_than_are_absent():
    policy = BlockDST(total_steps=100, every=10, fraction=1.0, schedule="constant")
    assert policy.blocks_to_move(10, present=90, absent=10) == 10
    assert policy.blocks_to_move(10, present=100, absent=0) == 0


@given(
    fraction=st.floats(0.001, 1.0),
    schedule=st.sampled_from(sorted(SCHEDULES)),
    step=st.integers(0, 200),
    present=st.integers(1, 1000),
    absent=st.integers(0, 1000),
)
def test_the_number_of_blocks_that_move_is_never_negative_and_always_fits(fraction, schedule, step, present, absent):
    policy = BlockDST(total_steps=100, every=10, fraction=fraction, schedule=schedule)
    count = policy.blocks_to_move(step, present, absent)
    assert 0 <= count <= min(present, absent)
    assert count <= fraction * present + 0.5


def test_the_topology_rests_before_the_start():
    policy = BlockDST(total_steps=100, every=10, start_at=0.25)
    assert [step for step in range(101) if policy.moves_at(step)] == [30, 40, 50, 60, 70]


def test_a_dense_start_shrinks_over_the_moves_up_to_shrink_until_and_most_of_it_early():
    policy = BlockDST(total_steps=100, every=10, start_at=0.2, shrink_until=0.5)
    kept = [policy.blocks_kept(step, present=100, target=36, block_count=100) for step in (20, 30, 40, 50, 60)]
    assert kept == [63, 44, 37, 36, 36]


def test_without_shrink_until_a_dense_start_is_pruned_at_the_first_move():
    policy = BlockDST(total_steps=100, every=10, start_at=0.2)
    assert policy.blocks_kept(20, present=100, target=36, block_count=100) == 36


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start_at": 0.75}, "start_at 0.75 is out of range: it must be at least 0 and below stop_at"),
        ({"shrink_until": 0.8}, "shrink_until 0.8 is out of range: it must be 0, or up to stop_at"),
        ({"grace_moves": -1}, "grace_moves -1 is out of range: it must be a whole number of at least 0"),
        ({"score_steps": 11}, "score_steps 11 is out of range: it must be a whole number from 1 to every"),
        ({"every": 40, "start_at": 0.5, "stop_at": 0.7}, "no multiple of every 40 lies between the steps 50 and 70"),
    ],
)
def test_a_schedule_that_could_not_run_is_refused(settings, message):
    with pytest.raises(SparsityError, match=re.escape(message)):
        BlockDST(**{"total_steps": 100, "every": 10, **settings})
