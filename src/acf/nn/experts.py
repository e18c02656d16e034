"""The multilayer perceptrons of a mixture of experts: routing tokens to experts and their outputs back."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from acf.nn.expert_linear import ExpertLinear


class Routing(NamedTuple):
    """Pairs of a token and one of its experts, sorted by expert.

    ``order [tokens * top_k]`` has the pairs in ascending order of experts, ``offsets`` int32 ``[experts + 1]`` the
    first of each expert. Nothing here waits for the device.
    """

    order: Tensor
    offsets: Tensor
    top_k: int

    @classmethod
    def of(cls, top_k_index: Tensor, experts: int) -> "Routing":
        """Sort by ``top_k_index [tokens, top_k]``, the experts of each token; ``experts`` and above stand for none."""
        sorted_experts, order = torch.sort(top_k_index.reshape(-1), stable=True)
        firsts = torch.arange(experts + 1, dtype=sorted_experts.dtype, device=order.device)
        return cls(order, torch.searchsorted(sorted_experts, firsts, out_int32=True), top_k_index.shape[-1])

    def gather(self, tokens: Tensor) -> Tensor:
        """The row of ``tokens [tokens, features]`` of each pair: ``[tokens * top_k, features]``."""
        return tokens.index_select(0, torch.div(self.order, self.top_k, rounding_mode="floor"))

    def combine(self, pairs: Tensor, top_k_weights: Tensor) -> Tensor:
        """``[tokens, features]``: the sum of each token's pairs, weighted by ``top_k_weights [tokens, top_k]``."""
        weighted = pairs * top_k_weights.reshape(-1).index_select(0, self.order).unsqueeze(1)
        places = torch.empty_like(self.order).scatter_(
            0, self.order, torch.arange(self.order.numel(), device=self.order.device)
        )
        return weighted.index_select(0, places).reshape(-1, self.top_k, pairs.shape[1]).sum(1)


class Experts(nn.Module):
    """The gated multilayer perceptrons of a mixture of experts, as in Mixtral or Qwen's mixtures; without the router.

    ``down_proj(activation(gate) * up)`` where ``gate_up_proj`` gives gate and up beside each other. `acf.sparsify_`
    makes both layers block-sparse.

    >>> experts = Experts(experts=4, hidden_features=8, intermediate_features=16)
    >>> tokens, chosen = torch.randn(5, 8), torch.tensor([[0, 1], [1, 3], [0, 3], [3, 1], [0, 1]])
    >>> experts(tokens, chosen, torch.full((5, 2), 0.5)).shape
    torch.Size([5, 8])
    """

    def __init__(
        self, experts: int, hidden_features: int, intermediate_features: int, activation: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.experts = experts
        self.gate_up_proj = ExpertLinear(experts, hidden_features, 2 * intermediate_features)
        self.down_proj = ExpertLinear(experts, intermediate_features, hidden_features)
        self.activation = nn.SiLU() if activation is None else activation

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """``hidden_states [..., hidden]`` to the same shape.

        ``top_k_index`` and ``top_k_weights`` are ``[..., top_k]``: the experts of each token and their weights.
        """
        tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
        routing = Routing.of(top_k_index, self.experts)
        gate, up = self.gate_up_proj(routing.gather(tokens), routing.offsets).chunk(2, dim=-1)
        y = routing.combine(self.down_proj(self.activation(gate) * up, routing.offsets), top_k_weights)
        return y.to(hidden_states.dtype).reshape(hidden_states.shape)
