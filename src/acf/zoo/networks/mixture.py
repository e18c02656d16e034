"""A multilayer perceptron of many experts, of which every token takes one, with loads that balance themselves."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.nn.expert_linear import ExpertLinear
from acf.nn.experts import Routing

BALANCE_RATE = 1e-3
"""Step of an expert's balance bias: the rate that Wang et al. (arXiv 2408.15664) found best."""


class MixtureOfExperts(nn.Module):
    """Each token's best of ``experts`` MLPs with GELU, scaled by the router's score of it (Fedus et al., 2022).

    No token is dropped. Loads are balanced without an auxiliary loss (Wang et al., 2024): ``balance_bias [experts]`` is
    added to the scores that choose an expert, not to those that scale its output, and falls in every training step for
    experts with more than their share of the tokens.

    >>> mixture = MixtureOfExperts(width=8, hidden=32, experts=4)
    >>> mixture(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    balance_bias: Tensor

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.router = nn.Linear(width, experts, bias=False)
        self.up = ExpertLinear(experts, width, hidden)
        self.down = ExpertLinear(experts, hidden, width)
        self.register_buffer("balance_bias", torch.zeros(experts))

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., width]`` to the same shape."""
        tokens = x.flatten(0, -2)
        scores = torch.sigmoid(self.router(tokens).float())
        chosen = (scores + self.balance_bias).argmax(dim=-1, keepdim=True)
        routing = Routing.of(chosen, self.experts)
        if self.training:
            self._balance(routing)
        hidden = self.down(F.gelu(self.up(routing.gather(tokens), routing.offsets)), routing.offsets)
        return routing.combine(hidden, scores.gather(1, chosen).to(hidden.dtype)).view_as(x)

    @torch.no_grad()
    def _balance(self, routing: Routing) -> None:
        """Lower the bias of experts with more tokens than their share by one step, raise that of the others."""
        loads = routing.offsets.diff()
        share = routing.order.numel() / self.experts
        self.balance_bias -= BALANCE_RATE * torch.sign(loads - share)
