"""The custom op that applies a rule to a gradient, opaque to compilers, and the autograd function around it."""

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
    is_usable = torch.isfinite(largest) & (largest > 0.0)  # neither an overflow nor all zeros
    step += is_usable
    now = rule.threshold(values, threshold)
    result = gradient.clone().masked_fill_(rule.dropped(values, now, step), 0.0)  # keeps the memory layout
    zeros = 1.0 - result.count_nonzero() / result.numel()
    following = rule.next_threshold(values, now, zeros, step)
    threshold.copy_(torch.where(is_usable, following, threshold))
    sparsity.copy_(torch.where(is_usable, zeros, sparsity))
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
        """``y`` itself and not a view, because in-place activations may follow."""
        ctx.rule = (threshold, sparsity, step, method, target, seed)
        if torch.compiler.is_compiling():
            return y.clone()  # fused away by the compiler; torch before 2.13 would treat y itself as a view
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The sparsified gradient; the rule's state takes none. Second derivatives pass the elements that it keeps."""
        sparse = _sparsify_gradient(gradient.detach(), *ctx.rule)
        if torch.is_grad_enabled():
            sparse = torch.where(sparse != 0.0, gradient, 0.0)
        return sparse, *[None] * 6
