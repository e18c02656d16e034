"""The gradient of a layer's output on its way through a rule, as one op that compilers leave alone."""

from typing import Any

import torch
from torch import Tensor

from acf.gradients.rules import RULES, largest_magnitude


@torch.library.custom_op("acf::sparsify_gradient", mutates_args=("threshold", "sparsity", "step"))
def _sparsify_gradient(
    gradient: Tensor, threshold: Tensor, sparsity: Tensor, step: Tensor, method: str, target: float, seed: int
) -> Tensor:
    rule = RULES[method](target, seed)
    if gradient.numel() == 0:
        return gradient.clone()
    values = gradient.float()
    largest = largest_magnitude(values)
    telling = torch.isfinite(largest) & (largest > 0.0)  # an overflow or an empty gradient teaches nothing
    step += telling
    now = rule.threshold(values, threshold)
    result = gradient.clone().masked_fill_(rule.dropped(values, now, step), 0.0)  # in the layout of the gradient
    zeros = 1.0 - result.count_nonzero() / result.numel()
    following = rule.next_threshold(values, now, zeros, step)
    threshold.copy_(torch.where(telling, following, threshold))
    sparsity.copy_(torch.where(telling, zeros, sparsity))
    return result


@_sparsify_gradient.register_fake
def _(
    gradient: Tensor, threshold: Tensor, sparsity: Tensor, step: Tensor, method: str, target: float, seed: int
) -> Tensor:
    return torch.empty_like(gradient)


class SparsifyGradient(torch.autograd.Function):
    """The identity, whose backward pass sends the gradient through a rule and updates the rule's state in place."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, threshold: Tensor, sparsity: Tensor, step: Tensor, method: str, target: float, seed: int
    ) -> Tensor:
        """``y`` itself, not a view: activations that work in place may follow."""
        ctx.rule = (threshold, sparsity, step, method, target, seed)
        if torch.compiler.is_compiling():
            return y.clone()  # the compiler fuses the copy; torch before 2.13 would take y itself for a view
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient with some elements zero."""
        return _sparsify_gradient(gradient, *ctx.rule), *[None] * 6
