"""Tokens reach their experts and come back to their places."""

import torch
from torch import nn

from acf.nn import Experts
from acf.nn.experts import Routing


def token_by_token(experts: Experts, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What a mixture of experts means: every token through each of its experts, weighted."""
    y = torch.zeros_like(x)
    for token in range(x.shape[0]):
        for place, expert in enumerate(chosen[token].tolist()):
            gate, up = (experts.gate_up_proj.weight[expert] @ x[token]).chunk(2)
            hidden = experts.activation(gate) * up
            y[token] += weights[token, place] * (experts.down_proj.weight[expert] @ hidden)
    return y


def test_every_token_gets_the_weighted_sum_of_its_experts():
    experts = Experts(experts=5, hidden_features=6, intermediate_features=4, activation=nn.GELU())
    x, weights = torch.randn(7, 6), torch.rand(7, 2)
    chosen = torch.tensor([[0, 3], [3, 1], [1, 0], [3, 0], [0, 1], [4, 3], [3, 4]])  # nobody chose expert 2
    expected = token_by_token(experts, x, chosen, weights)
    torch.testing.assert_close(experts(x, chosen, weights), expected)
    of_batches = experts(x[:6].reshape(2, 3, 6), chosen[:6].reshape(2, 3, 2), weights[:6].reshape(2, 3, 2))
    torch.testing.assert_close(of_batches, expected[:6].reshape(2, 3, 6))


def test_a_token_without_an_expert_gets_nothing_from_it():
    experts = Experts(experts=2, hidden_features=6, intermediate_features=4)
    x = torch.randn(3, 6)
    chosen = torch.tensor([[0, 2], [2, 2], [1, 0]])  # 2 is past the last expert
    y = experts(x, chosen, torch.ones(3, 2))
    torch.testing.assert_close(y[0], token_by_token(experts, x[:1], chosen[:1, :1], torch.ones(1, 1))[0])
    assert not y[1].any()


def test_the_routing_has_the_first_pair_of_each_expert():
    routing = Routing.of(torch.tensor([[2, 0], [0, 3], [2, 3]]), experts=4)
    assert routing.offsets.tolist() == [0, 2, 2, 4, 6]
    assert routing.order.tolist() == [1, 2, 0, 4, 3, 5]
