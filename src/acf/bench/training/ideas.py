"""Ideas of the literature beside plain blocks, tried by `acf bench training` one switch each.

``low_rank``: a product of two thin matrices beside the blocks (Pixelated Butterfly has it beside a butterfly).
``permute``: the order of a layer's inputs is learned as a doubly stochastic matrix that becomes a permutation after so
many steps (as PA-DST does; layers with more than `MOST_PERMUTED` inputs keep theirs).
"""

from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from acf.nn.linear import BlockSparseLinear

MOST_PERMUTED = 1024
SINKHORN_ROUNDS = 5
SHARPNESS = 6.0  # of the initial identity, in logits
PENALTY = 1e-4


class LowRankBeside(nn.Module):
    """``layer(x) + up(down(x))`` with ``rank`` values between; zero at the start."""

    def __init__(self, layer: BlockSparseLinear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        y: Tensor = self.layer(x)
        return y + x @ self.down.T @ self.up.T


class _TowardsPermutation(torch.autograd.Function):
    """Identity whose gradient adds that of the sum of (l1 - l2) over rows and columns."""

    @staticmethod
    def forward(ctx: Any, mixing: Tensor) -> Tensor:
        ctx.save_for_backward(mixing)
        return mixing.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (mixing,) = ctx.saved_tensors
        rows, columns = mixing.norm(dim=1, keepdim=True), mixing.norm(dim=0, keepdim=True)
        return gradient + PENALTY * (2 - mixing / rows - mixing / columns)


class LearnedOrder(nn.Module):
    """``layer(P x)`` with ``P`` learned for ``soft_steps`` forward passes in training and a permutation after them."""

    def __init__(self, layer: BlockSparseLinear, soft_steps: int) -> None:
        super().__init__()
        self.layer, self.soft_steps, self.passes = layer, soft_steps, 0
        self.logits = nn.Parameter(SHARPNESS * torch.eye(layer.in_features))
        self.register_buffer("order", torch.arange(layer.in_features))

    def mixing(self) -> Tensor:
        """The doubly stochastic matrix of the logits."""
        matrix = self.logits
        for _ in range(SINKHORN_ROUNDS):
            matrix = matrix - matrix.logsumexp(1, keepdim=True)
            matrix = matrix - matrix.logsumexp(0, keepdim=True)
        return matrix.exp()

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        if self.training:
            self.passes += 1
            if self.passes == self.soft_steps + 1:
                self._harden()
        if self.passes > self.soft_steps:
            y: Tensor = self.layer(x[..., self.order])
        else:
            y = self.layer(x @ _TowardsPermutation.apply(self.mixing()).T)
        return y

    @torch.no_grad()
    def _harden(self) -> None:
        mixing = self.mixing()
        best = linear_sum_assignment(mixing.numpy(), maximize=True)[1]
        kept = float(mixing[torch.arange(best.size), torch.as_tensor(best)].mean())
        moved = int((best != range(best.size)).sum())
        print(f"hardened: {moved} of {best.size} inputs moved, mean weight of the chosen {kept:.3f}")
        self.order.copy_(torch.as_tensor(best))


def try_idea_(model: nn.Module, low_rank: int | None, permute: int | None) -> None:
    """Put the asked-for idea around every sparse linear layer of ``model``."""
    for name, module in list(model.named_modules()):
        if not isinstance(module, BlockSparseLinear):
            continue
        wrapped: nn.Module | None = None
        if low_rank:
            wrapped = LowRankBeside(module, low_rank)
        elif permute and module.in_features <= MOST_PERMUTED:
            wrapped = LearnedOrder(module, permute)
        if wrapped is not None:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, wrapped)
