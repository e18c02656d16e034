"""How the fraction of blocks that move falls over training."""

import math

import pytest

from acf.masks import SCHEDULES


def test_the_cosine_schedule_falls_from_one_to_zero():
    assert [SCHEDULES["cosine"](progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])
    assert SCHEDULES["cosine"](0.25) == pytest.approx((1 + math.sqrt(0.5)) / 2)


def test_the_linear_schedule_falls_evenly_and_the_cubic_one_early():
    assert [SCHEDULES["linear"](progress) for progress in (0.0, 0.25, 1.0)] == [1.0, 0.75, 0.0]
    assert [SCHEDULES["cubic"](progress) for progress in (0.0, 0.5, 1.0)] == [1.0, 0.125, 0.0]


def test_the_constant_schedule_stays_at_one():
    assert [SCHEDULES["constant"](progress) for progress in (0.0, 0.5, 1.0)] == [1.0, 1.0, 1.0]
