"""Rows S1 to S3: Dynamic Threshold Scaling (DTS) and the thresholds it is compared with."""

import torch
from torch import Tensor

from acf.gradients.rules import RULES, GradientRule
from acf.reproduce.row import Check, Row, at_most, holds

_STEPS, _WARM_UP_STEPS, _ELEMENTS = 120, 60, 20_000


def s1() -> Row:
    """The published updates of the threshold, each compared exactly."""
    gradient = torch.linspace(-1.0, 1.0, 2001, dtype=torch.float64)
    rule = RULES["dts"](0.5)
    first = torch.zeros((), dtype=torch.float64)
    second = _next(rule, gradient, first)
    third = _next(rule, gradient, second)  # far too few zeros: the change is limited
    return Row(
        "theta 1 = 0; theta 2 = max abs / 100; then theta *= target / sparsity, at most 20 % a step",
        "one gradient of 2,001 evenly spaced values, target 0.5",
        (
            holds("the first threshold drops nothing", not bool(rule.dropped(gradient, first, torch.tensor(1)).any())),
            holds("the second is max abs / 100", bool(second == gradient.abs().max() / 100)),
            holds("a change is limited to 20 %", bool(third == second * 1.2)),
        ),
    )


def s2() -> Row:
    """Largest distance of the sparsity from the target after the warm-up."""
    checks = tuple(
        at_most(f"farthest from {target:.0%}, after {_WARM_UP_STEPS} steps", 2.0, 100 * _farthest("dts", target), " pp")
        for target in (0.5, 0.7, 0.9)
    )
    return Row(
        "DTS tracks the target tightly",
        f"stationary heavy-tailed gradients of {_ELEMENTS:,} elements, {_STEPS} steps, seed 0",
        checks,
    )


def s3() -> Row:
    """How far the Gaussian threshold misses on gradients that are not Gaussian, and how a static one drifts."""
    gaussian = 100 * _farthest("gaussian", 0.5)
    drift = 100 * abs(_sparsities("static", 0.5, decay=0.98)[-1] - 0.5)
    tracking = 100 * abs(_sparsities("dts", 0.5, decay=0.98)[-1] - 0.5)
    return Row(
        "the Gaussian threshold misses by up to about 20 pp, the static one drifts",
        "the same gradients; for the drift they shrink by 2 % a step",
        (
            Check("Gaussian misses by", "up to ~20 pp", gaussian, 10.0, 40.0, "10 to 40 pp"),
            Check("static is off at the end by", "drifts", drift, 10.0, 50.0, "at least 10 pp"),
            at_most("DTS is off at the end by", 3.0, tracking, " pp"),
        ),
    )


def _next(rule: GradientRule, gradient: Tensor, threshold: Tensor) -> Tensor:
    sparsity = (gradient.abs() < threshold).double().mean()
    return rule.next_threshold(gradient, threshold, sparsity, torch.tensor(1))


def _farthest(method: str, target: float) -> float:
    return max(abs(sparsity - target) for sparsity in _sparsities(method, target)[_WARM_UP_STEPS:])


def _sparsities(method: str, target: float, decay: float = 1.0) -> list[float]:
    """Fraction of zeros in every step; gradients are cubed normal numbers, scaled by ``decay`` a step."""
    rule, generator = RULES[method](target), torch.Generator().manual_seed(0)
    kept = torch.zeros((), dtype=torch.float64)
    sparsities = []
    for step in range(1, _STEPS + 1):
        gradient = torch.randn(_ELEMENTS, generator=generator, dtype=torch.float64) ** 3 * decay**step
        threshold = rule.threshold(gradient, kept)
        sparsity = rule.dropped(gradient, threshold, torch.tensor(step)).double().mean()
        kept = rule.next_threshold(gradient, threshold, sparsity, torch.tensor(step))
        sparsities.append(float(sparsity))
    return sparsities
