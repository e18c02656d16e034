"""A mixture of experts gives every token the one MLP that its router scores best, and evens out the loads."""

import torch
import torch.nn.functional as F

import acf
from acf.zoo.networks.gpt import Gpt, GptSpec
from acf.zoo.networks.mixture import BALANCE_RATE, MixtureOfExperts


def small_mixture() -> MixtureOfExperts:
    torch.manual_seed(0)
    return MixtureOfExperts(width=6, hidden=10, experts=4)


def test_every_token_goes_through_its_best_expert_and_is_scaled_by_its_score() -> None:
    mixture, x = small_mixture(), torch.randn(3, 5, 6)
    y = mixture(x)
    for token, output in zip(x.flatten(0, 1), y.flatten(0, 1), strict=True):
        score, expert = torch.sigmoid(mixture.router.weight @ token).max(0)
        hidden = F.gelu(mixture.up.weight[expert] @ token)
        torch.testing.assert_close(output, score * (mixture.down.weight[expert] @ hidden))


def test_the_router_learns_from_the_loss() -> None:
    mixture = small_mixture()
    mixture(torch.randn(7, 6)).square().sum().backward()
    assert mixture.router.weight.grad.abs().max() > 0


def test_an_expert_with_too_many_tokens_is_chosen_less_readily_while_training() -> None:
    mixture = small_mixture().train()
    with torch.no_grad():
        mixture.router.weight.zero_()
        mixture.router.weight[2] = 1.0
    x = torch.rand(8, 6)  # positive: all tokens take expert 2
    mixture(x)
    assert torch.equal(mixture.balance_bias, BALANCE_RATE * torch.tensor([1.0, 1.0, -1.0, 1.0]))
    mixture.eval()(x)
    assert mixture.balance_bias[2] == -BALANCE_RATE


def test_loads_even_out_over_many_steps() -> None:
    mixture, x = small_mixture().train(), torch.randn(400, 6) + 0.5

    def greatest_load() -> int:
        scores = torch.sigmoid(mixture.router(x)) + mixture.balance_bias
        return int(scores.argmax(1).bincount(minlength=4).max())

    before = greatest_load()
    for _ in range(400):
        mixture(x)
    assert greatest_load() < 130 < before


def test_a_compiled_gpt_of_experts_computes_what_the_eager_one_does_in_one_graph() -> None:
    torch.manual_seed(0)
    spec = GptSpec(64, layers=2, vocabulary=96, context=16, head_width=32, experts=4)
    model = Gpt(spec).eval()
    tokens = torch.randint(96, (2, 16))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens), model(tokens))
    expected = 2 * (4 * 64 * 64 + 4 * 64 + 4 * 8 * 64 * 64) + 5 * 64 + (96 + 16) * 64
    assert sum(each.numel() for each in model.parameters()) == expected


def test_experts_of_a_gpt_become_block_sparse() -> None:
    torch.manual_seed(0)
    model = Gpt(GptSpec(64, layers=1, vocabulary=96, context=16, head_width=32, experts=4))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=16), lambda module, name: "mlp" in name and "router" not in name)
    assert [layer.present_blocks for layer in (model.blocks[0].mlp.up, model.blocks[0].mlp.down)] == [64, 64]
    model(torch.randint(96, (2, 16))).sum().backward()
    assert model.blocks[0].mlp.up.weight.grad.abs().max() > 0
