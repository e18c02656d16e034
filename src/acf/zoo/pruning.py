"""Pruning of single weights while a network trains: RigL, and the two methods of TensorDash's authors.

Weights stay dense tensors under masks, so that absent weights have gradients and moments too. These methods serve as
published workloads; block-sparse training is `acf.masks`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import SparsityError

PRUNED_SHARE = 0.2
"""Share of the present weights that an update prunes and regrows: Dettmers and Zettlemoyer, 2019, section 5."""

RIGL_SHARE = 0.3
"""Share of the present weights that RigL's first update moves: Evci et al., 2020, section 4."""


def prunable_weights(model: nn.Module) -> Iterator[nn.Parameter]:
    """Weights of all convolutions and linear layers but the first, which reads the data."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    yield from (layer.get_parameter("weight") for layer in layers[1:])


@dataclass(eq=False)
class WeightPruning:
    """Masks over the weights of a model, every layer with the same share ``sparsity`` of random zeros at first.

    Call `apply` after every optimizer step and `update` at the steps that move weights.
    """

    model: nn.Module
    sparsity: float
    seed: int = 0
    masks: dict[nn.Parameter, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise SparsityError(f"sparsity {self.sparsity} is outside (0, 1); give a share of weights such as 0.9")
        self.generator = torch.Generator().manual_seed(self.seed)
        self.masks = {}
        for weight in prunable_weights(self.model):
            order = torch.randperm(weight.numel(), generator=self.generator)
            kept = order[: max(1, round((1 - self.sparsity) * weight.numel()))]
            mask = torch.zeros(weight.numel(), dtype=torch.bool)
            mask[kept] = True
            self.masks[weight] = mask.reshape(weight.shape).to(weight.device)
        self.apply()

    @torch.no_grad()
    def apply(self) -> None:
        """Set absent weights to zero."""
        for weight, mask in self.masks.items():
            weight.mul_(mask)

    @torch.no_grad()
    def apply_to_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the moments of absent weights to zero: the next step is then that of masked gradients.

        The gradients themselves stay dense, because regrowth ranks absent weights by them.
        """
        for weight, mask in self.masks.items():
            for value in optimizer.state.get(weight, {}).values():
                if isinstance(value, Tensor) and value.shape == weight.shape:
                    value.mul_(mask)

    def state_dict(self) -> dict[str, Any]:
        """The masks in the order of the layers, and the random state."""
        return {"masks": list(self.masks.values()), "random": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, in place."""
        shapes = [list(mask.shape) for mask in self.masks.values()]
        if shapes != [list(mask.shape) for mask in state["masks"]]:
            raise SparsityError(
                "the saved masks are those of another model; load them into the model they were saved of"
            )
        for mask, saved in zip(self.masks.values(), state["masks"], strict=True):
            mask.copy_(saved)
        self.generator.set_state(state["random"])

    @property
    def present(self) -> int:
        """Present weights of all layers."""
        return sum(int(mask.sum()) for mask in self.masks.values())

    @torch.no_grad()
    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Prune and regrow as many weights; their total stays."""
        before = self.present
        wanted = self._prune(optimizer)
        for weight, mask in self.masks.items():
            self._grow(weight, mask, wanted[weight], optimizer)
        self._settle(before - self.present)
        self.apply()

    def _prune(self, optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, int]:
        """Prune, and say how many weights every layer regrows."""
        raise NotImplementedError

    def _growth_scores(self, weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> Tensor:
        """What ranks absent weights."""
        return torch.rand(weight.shape, generator=self.generator).to(weight.device)

    def _grow(self, weight: nn.Parameter, mask: Tensor, count: int, optimizer: torch.optim.Optimizer) -> None:
        absent = int((~mask).sum())
        scores = self._growth_scores(weight, optimizer).masked_fill(mask, -1.0)
        mask.view(-1)[scores.flatten().topk(min(count, absent)).indices] = True

    def _settle(self, missing: int) -> None:
        """Regrow at random what rounding and full layers left over, or prune it, in the largest layer."""
        mask = max(self.masks.values(), key=lambda each: int((~each).sum() if missing > 0 else each.sum()))
        places = (~mask if missing > 0 else mask).flatten().nonzero().flatten().cpu()
        chosen = places[torch.randperm(len(places), generator=self.generator)[: abs(missing)]]
        mask.view(-1)[chosen.to(mask.device)] = missing > 0

    def _shared_out(self, total: int, shares: dict[nn.Parameter, float]) -> dict[nn.Parameter, int]:
        whole = sum(shares.values()) or 1.0
        return {weight: int(total * share / whole) for weight, share in shares.items()}


class SparseMomentum(WeightPruning):
    """Prune each layer's smallest weights; layers with large momentum regrow more, where momentum is largest.

    Dettmers and Zettlemoyer, 2019. Momentum is the first moment of Adam over the root of the second.
    """

    def _prune(self, optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, int]:
        momenta = {weight: float(self._momentum(weight, optimizer)[mask].mean()) for weight, mask in self.masks.items()}
        total = 0
        for weight, mask in self.masks.items():
            count = int(PRUNED_SHARE * int(mask.sum()))
            magnitudes = weight.abs().masked_fill(~mask, torch.inf)
            mask.view(-1)[magnitudes.flatten().topk(count, largest=False).indices] = False
            total += count
        return self._shared_out(total, momenta)

    def _growth_scores(self, weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> Tensor:
        return self._momentum(weight, optimizer)

    def _momentum(self, weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> Tensor:
        state = optimizer.state[weight]
        momentum: Tensor = state["exp_avg"].abs() / (state["exp_avg_sq"].sqrt() + 1e-8)
        return momentum


class DynamicReparameterization(WeightPruning):
    """Prune the smallest weights of all layers together; layers that keep more regrow more, at random.

    Mostafa and Wang, 2019. The global threshold is exact here, where theirs is adapted until it prunes about as many.
    """

    def _prune(self, optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, int]:
        present = torch.cat([weight[mask].abs() for weight, mask in self.masks.items()])
        count = int(PRUNED_SHARE * len(present))
        threshold = present.kthvalue(max(1, count)).values
        for weight, mask in self.masks.items():
            mask.logical_and_(weight.abs() > threshold)
        total = len(present) - self.present
        return self._shared_out(total, {weight: float(mask.sum()) for weight, mask in self.masks.items()})


@dataclass(eq=False)
class Rigl(WeightPruning):
    """Prune each layer's smallest weights and regrow as many of the same layer where the gradient is largest.

    Evci et al., 2020, with the same sparsity in every layer. Set ``progress``, the share of the run that is done,
    before an `update`: the share of weights that moves falls from 0.3 to 0 along a cosine.
    """

    progress: float = 0.0

    def _prune(self, optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, int]:
        share = RIGL_SHARE / 2 * (1 + math.cos(math.pi * min(1.0, self.progress)))
        counts = {weight: int(share * int(mask.sum())) for weight, mask in self.masks.items()}
        for weight, mask in self.masks.items():
            magnitudes = weight.abs().masked_fill(~mask, torch.inf)
            mask.view(-1)[magnitudes.flatten().topk(counts[weight], largest=False).indices] = False
        return counts

    def _growth_scores(self, weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> Tensor:
        if weight.grad is None:
            raise SparsityError("RigL regrows by gradients and a weight has none; call update after a backward pass")
        return weight.grad.abs()


PRUNINGS: dict[str, type[WeightPruning]] = {
    "sparse-momentum": SparseMomentum,
    "dynamic-reparameterization": DynamicReparameterization,
    "rigl": Rigl,
}
"""Methods that prune single weights in training, by name."""
