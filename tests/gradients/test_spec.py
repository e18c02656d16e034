"""What `GradientSparsity` refuses."""

import math

import pytest

from acf.errors import SparsityError
from acf.gradients import GradientSparsity


@pytest.mark.parametrize("target", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_target_outside_zero_to_one_is_refused_by_value(target):
    with pytest.raises(SparsityError, match=rf"target {target} is outside \(0, 1\); it is the share"):
        GradientSparsity(target=target)


def test_an_unknown_method_is_refused_with_the_names_there_are():
    with pytest.raises(SparsityError, match="method 'topk' is not one of dts, top-k, gaussian, static, random; use"):
        GradientSparsity(method="topk")


def test_a_threshold_for_a_method_that_finds_its_own_is_refused():
    with pytest.raises(SparsityError, match=r"threshold 0\.1 is given, but dts finds its own; leave it out"):
        GradientSparsity(threshold=0.1)


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.inf, math.nan])
def test_a_threshold_that_drops_nothing_or_everything_is_refused(threshold):
    with pytest.raises(SparsityError, match=rf"threshold {threshold} is not above 0; pass such as 1e-6"):
        GradientSparsity(method="static", threshold=threshold)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_a_seed_that_is_no_natural_number_is_refused(seed):
    with pytest.raises(SparsityError, match="is not an integer from 0; pass such as 0"):
        GradientSparsity(method="random", seed=seed)


def test_an_unknown_place_is_refused_with_the_known_ones():
    with pytest.raises(SparsityError, match=r"at 'weight' is not one of .*input.*; use one of these names"):
        GradientSparsity(target=0.5, at="weight")
