"""The policies that Algorithm 1 is compared with, as far as they need no model."""

import pytest
import torch

from acf.errors import SparsityError
from acf.masks import POLICIES, SET, BlockDST, GradualPruning, StaticTopology


def test_a_static_topology_never_moves():
    policy = StaticTopology()
    assert not any(policy.moves_at(step) for step in range(200))
    assert policy.blocks_to_move(100, present=10, absent=90) == 0


def test_gradual_pruning_follows_the_cube_and_ends_at_the_target():
    policy = GradualPruning(total_steps=100, every=10, stop_at=0.5)
    kept = [policy.blocks_kept(step, present=1000, target=100, block_count=1000) for step in (10, 20, 30, 40, 50)]
    assert kept == [100 + round(900 * share**3) for share in (0.8, 0.6, 0.4, 0.2, 0.0)]


def test_gradual_pruning_ends_at_the_target_though_the_last_moving_step_is_no_multiple():
    policy = GradualPruning(total_steps=100, every=30, stop_at=0.75, schedule="constant")
    steps = [step for step in range(101) if policy.moves_at(step)]
    assert steps == [30, 60]
    assert policy.blocks_kept(60, present=1000, target=100, block_count=1000) == 100


def test_gradual_pruning_never_asks_for_blocks_back():
    policy = GradualPruning(total_steps=100, every=10)
    assert policy.blocks_kept(10, present=150, target=100, block_count=1000) == 150


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"total_steps": 0},
            "total_steps 0 is out of range: it must be a whole number of at least 1; pass such a value to",
        ),
        ({"total_steps": 10}, "every 100 is beyond the last moving step 7.5"),
        ({"total_steps": 10, "every": 1, "schedule": "sine"}, "schedule 'sine' is not one of cosine, linear, cubic"),
    ],
)
def test_a_gradual_schedule_out_of_range_is_refused(settings, message):
    with pytest.raises(SparsityError) as caught:
        GradualPruning(**settings)
    assert message in str(caught.value)


def test_random_growth_follows_from_seed_step_and_layer_alone():
    def draw(seed: int, step: int, layer: int) -> list[float]:
        policy = SET(total_steps=100, every=10, seed=seed)
        return policy.growth_scores(torch.zeros(6), policy.generator(step, layer)).tolist()

    assert draw(1, 10, 0) == draw(1, 10, 0)
    assert len({tuple(draw(*which)) for which in [(1, 10, 0), (2, 10, 0), (1, 20, 0), (1, 10, 1), (10, 1, 0)]}) == 5


def test_algorithm_one_is_set_with_growth_by_gradient():
    policy, gradients = BlockDST(total_steps=200), torch.tensor([3.0, 1.0])
    assert isinstance(policy, SET)
    assert policy.growth_scores(gradients, policy.generator(1, 0)) is gradients


@pytest.mark.parametrize(("candidates", "expected"), [(0.25, 25), (7, 7), (0.001, 1), (500, 100), (1.0, 100)])
def test_a_sample_of_candidates_has_the_size_asked_for_and_names_each_block_once(candidates, expected):
    policy = BlockDST(total_steps=200, candidates=candidates)
    sample = policy.sample(100, policy.generator(10, 0)).tolist()
    assert len(sample) == expected
    assert sample == sorted(set(sample))
    assert set(sample) <= set(range(100))


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_one_frozen_class_in_a_file_of_its_own(name):
    policy = POLICIES[name]
    assert policy.__dataclass_params__.frozen
    assert [each.__module__ for each in POLICIES.values()].count(policy.__module__) == 1
