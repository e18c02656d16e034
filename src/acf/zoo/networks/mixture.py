"""A multilayer perceptron of many experts, of which every token takes one, with loads that balance themselves."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.nn.expert_linear import ExpertLinear
from acf.nn.experts import Routing

BALANCE_RATE = 1e-3
"""How far an expert's handicap moves in a step: the rate that Wang et al. (arXiv 2408.15664) found best."""


class MixtureOfExperts(nn.Module):
    """Each token's best of ``experts`` MLPs with GELU, scaled by the router's score of it (Fedus et al., 2022).

    No token is dropped. Experts that had more than their share of a batch's tokens are chosen a little less readily in
    the next one: ``handicap [experts]`` is added to the scores of the choice, not to those that scale, and takes the
    place of a loss that balances (Wang et al., 2024).

    >>> mixture = MixtureOfExperts(width=8, hidden=32, experts=4)
    >>> mixture(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    handicap: Tensor

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.router = nn.Linear(width, experts, bias=False)
        self.up = ExpertLinear(experts, width, hidden)
        self.down = ExpertLinear(experts, hidden, width)
        self.register_buffer("handicap", torch.zeros(experts))

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., width]`` to the same shape."""
        tokens = x.flatten(0, -2)
        scores = torch.sigmoid(self.router(tokens).float())
        chosen = (scores + self.handicap).argmax(dim=-1, keepdim=True)
        routing = Routing.of(chosen, self.experts)
        if self.training:
            self._balance(routing)
        hidden = self.down(F.gelu(self.up(routing.gather(tokens), routing.offsets)), routing.offsets)
        return routing.combine(hidden, scores.gather(1, chosen).to(hidden.dtype)).view_as(x)

    @torch.no_grad()
    def _balance(self, routing: Routing) -> None:
        """Move every handicap by one step against its expert's surplus of tokens."""
        loads = routing.offsets.diff()
        share = routing.order.numel() / self.experts
        self.handicap -= BALANCE_RATE * torch.sign(loads - share)
