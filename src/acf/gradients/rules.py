"""The rules that decide which elements of a gradient become zero, one class per method."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

LARGEST_CHANGE = 0.2  # of a DTS threshold in one step: SparTANN, section 3.2
FIRST_THRESHOLD = 1 / 100  # of the greatest magnitude, in DTS's second step: SparTANN, section 3.2


@dataclass(frozen=True)
class GradientRule:
    """Zero the elements below a threshold; the rules differ in where the threshold comes from.

    Thresholds, sparsities and steps are tensors of one element, so that no step waits for the device. ``step`` counts
    from 1. The threshold of the first step is 0, which drops nothing, unless the user gave one.
    """

    target: float
    seed: int = 0

    def threshold(self, gradient: Tensor, kept: Tensor) -> Tensor:
        """The threshold of this step, given the one ``kept`` from the previous step."""
        return kept

    def dropped(self, gradient: Tensor, threshold: Tensor, step: Tensor) -> Tensor:
        """Bool, of the gradient's shape: what becomes zero. Inf and NaN stay, so that a loss scaler finds them."""
        return gradient.abs() < threshold

    def next_threshold(self, gradient: Tensor, threshold: Tensor, sparsity: Tensor, step: Tensor) -> Tensor:
        """The threshold for the next step, given the fraction of zeros that ``threshold`` led to."""
        return threshold


class DynamicThresholdScaling(GradientRule):
    """theta_1 = 0, theta_2 = max|G|/100, then theta *= target / sparsity, within 20 % a step (SparTANN, Fig. 5)."""

    def next_threshold(self, gradient: Tensor, threshold: Tensor, sparsity: Tensor, step: Tensor) -> Tensor:
        """As the class says; scaling cannot leave 0, so after 0 the formula of the second step applies again."""
        scale = (self.target / sparsity).clamp(1.0 - LARGEST_CHANGE, 1.0 + LARGEST_CHANGE)
        # A denormal float cannot change by 20 % any more and would be stuck.
        scaled = (threshold * scale).clamp(min=torch.finfo(threshold.dtype).tiny)
        return torch.where(threshold == 0.0, largest_magnitude(gradient) * FIRST_THRESHOLD, scaled)


class TopK(GradientRule):
    """Keep the greatest elements of the current gradient, as many as the target leaves (meProp, over the tensor)."""

    def threshold(self, gradient: Tensor, kept: Tensor) -> Tensor:
        """The least magnitude that is kept."""
        return least_kept_magnitude(gradient, self.target)


class Gaussian(GradientRule):
    """theta = mu + z sigma of the previous step, z = 0.67 for a target of 0.5; exact for gradients from N(0, sigma)."""

    def next_threshold(self, gradient: Tensor, threshold: Tensor, sparsity: Tensor, step: Tensor) -> Tensor:
        """Mean plus z deviations, where P(abs(x) < z) is the target."""
        deviation, mean = torch.std_mean(gradient, correction=0)
        return (mean + NormalDist().inv_cdf((1.0 + self.target) / 2.0) * deviation).clamp(min=0.0)


class Static(GradientRule):
    """One threshold for the whole run: the user's, or the first step's quantile."""

    def next_threshold(self, gradient: Tensor, threshold: Tensor, sparsity: Tensor, step: Tensor) -> Tensor:
        """The same again."""
        return torch.where(threshold == 0.0, least_kept_magnitude(gradient, self.target), threshold)


class Random(GradientRule):
    """Drop non-zero elements at random, with the probability that leads to the target."""

    def dropped(self, gradient: Tensor, threshold: Tensor, step: Tensor) -> Tensor:
        """Drawn from a generator seeded by layer and step, so that a resumed run draws the same numbers."""
        state = int(np.random.SeedSequence([self.seed, int(step)]).generate_state(1, np.uint64)[0])
        generator = torch.Generator(gradient.device).manual_seed(state)
        nonzero_share = gradient.count_nonzero() / gradient.numel()
        drop_share = 1.0 - (1.0 - self.target) / nonzero_share
        return torch.rand(gradient.shape, generator=generator, device=gradient.device) < drop_share


def largest_magnitude(gradient: Tensor) -> Tensor:
    """The greatest absolute value, or NaN if there is one; one pass without a copy."""
    low, high = torch.aminmax(gradient)
    return torch.maximum(-low, high)


def least_kept_magnitude(gradient: Tensor, target: float) -> Tensor:
    """The magnitude below which at most a fraction ``target`` of the elements lies; float32, one element."""
    dropped = int(target * gradient.numel())
    return gradient.abs().flatten().kthvalue(dropped + 1).values


RULES: dict[str, type[GradientRule]] = {
    "dts": DynamicThresholdScaling,
    "top-k": TopK,
    "gaussian": Gaussian,
    "static": Static,
    "random": Random,
}
