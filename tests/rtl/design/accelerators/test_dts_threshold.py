"""The DTS unit against its model, and its thresholds against the rule that training uses."""

import numpy as np
import pytest
import torch

from acf.gradients.rules import DynamicThresholdScaling
from acf.rtl.design.accelerators.dts_threshold import ThresholdModel, ThresholdSpec, ThresholdUnit, next_threshold


def test_the_threshold_unit_equals_its_model_in_every_cycle(simulate) -> None:
    spec, generator = ThresholdSpec(count_bits=8), np.random.default_rng(1)
    update = spec.update_cycles + 2
    element, valid, finish = [], [], []
    for _ in range(6):
        gradient = (generator.standard_normal(50) * 1e-3).astype(np.float32)
        gradient[generator.random(50) < 0.2] = 0.0
        element += [*gradient.view(np.uint32).tolist(), *[7] * update]
        valid += [*(generator.random(50) < 0.9).astype(int).tolist(), *[0] * update]
        finish += [0] * 50 + [1] + [0] * (update - 1)
    target = round(0.6 * 2**16)
    outputs = simulate(ThresholdUnit(spec)).run(
        {"element": element, "valid": valid, "finish": finish, "target": target}
    )
    model = ThresholdModel(spec)
    for cycle in range(len(element)):
        expected = model.step(element[cycle], valid[cycle], finish[cycle], target)
        assert {name: int(outputs[name][cycle]) for name in expected} == expected, f"cycle {cycle}"
    assert model.threshold > 0


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-37])
def test_the_threshold_follows_the_rule_that_training_uses(scale: float) -> None:
    rule, generator = DynamicThresholdScaling(target=0.5), torch.Generator().manual_seed(0)
    threshold, bits = torch.zeros(()), 0
    for step in range(1, 12):
        gradient = torch.randn(4_000, generator=generator) * scale
        zeros = int((gradient.abs() < threshold).sum())
        greatest = int(gradient.abs().amax().numpy().view(np.uint32))
        after = rule.next_threshold(gradient, threshold, torch.tensor(zeros / 4_000), torch.tensor(step))
        bits = next_threshold(int(threshold.numpy().view(np.uint32)), zeros, 4_000, greatest, 1 << 15)
        assert float(np.uint32(bits).view(np.float32)) == pytest.approx(float(after), rel=2**-22)
        threshold = after


@pytest.mark.parametrize(
    ("threshold", "zeros", "greatest", "expected"),
    [
        (0, 3, 0, 0),  # nothing but zeros so far: no threshold yet
        (0x00800000, 10, 0, 0x00800000),  # not below the least normal number
        (0x7F7FFFFF, 0, 0, 0x7F800000),  # beyond the greatest
        (0, 0, 0x7F800000, 0x7F800000),  # an overflow of the loss scale stays visible
    ],
)
def test_thresholds_at_the_ends_of_the_range(threshold: int, zeros: int, greatest: int, expected: int) -> None:
    assert next_threshold(threshold, zeros, 10, greatest, 1 << 15) == expected
