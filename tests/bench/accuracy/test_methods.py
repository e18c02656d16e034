"""Names of methods, and the recipes they stand for."""

import re

import pytest

import acf
from acf.bench.accuracy.bench import METHODS
from acf.bench.accuracy.methods import recipe_of
from acf.errors import SparsityError


def test_a_dense_run_sparsifies_nothing():
    recipe = recipe_of("dense")
    assert recipe.sparsity is None
    assert recipe.policy is None


def test_a_block_method_has_its_sparsity_and_a_policy_for_the_length_of_the_run():
    recipe = recipe_of(
        "dst-75/moves=8/fraction=0.2/init=sparse/shrink_until=0/start_at=0/distribution=uniform", block=8
    )
    assert recipe.sparsity == acf.BlockSparsity(0.75, block=8, distribution="uniform", rescale=False)
    policy = recipe.policy(800, 3)
    assert (policy.total_steps, policy.every, policy.fraction, policy.seed) == (800, 100, 0.2, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bdwp-2:8", acf.NMSparsity(2, 8, "bdwp")),
        ("dts-0.5", acf.GradientSparsity(0.5, "dts", at="input")),
        ("dts-0.7/at=output", acf.GradientSparsity(0.7, "dts", at="output")),
    ],
)
def test_other_methods_have_the_sparsity_that_their_name_says(name, expected):
    assert recipe_of(name).sparsity == expected


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_default_comparison_is_known(name):
    assert recipe_of(name) is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lottery-90", "method 'lottery-90' begins with none of dense, dst"),
        ("dst-much", "'much' is not a number"),
        ("dst-90/fraction", "'fraction' in method 'dst-90/fraction' is no setting; write such as fraction=0.1"),
        ("dst-90/speed=9", "setting 'speed' is not known; use total_steps, every"),
        ("dense/at=input", "setting 'at' is not known; use none with this method"),
        ("dst-90/stop_at=2", "stop_at 2.0 is out of range"),
    ],
)
def test_a_name_that_means_nothing_is_refused_before_any_run(name, message):
    with pytest.raises(SparsityError, match=re.escape(message)):
        recipe_of(name)
