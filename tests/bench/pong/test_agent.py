"""The learner: its targets, its target network, checkpoints and traces."""

from pathlib import Path

import numpy as np
import pytest
import torch

import acf
from acf.bench.pong.agent import DqnAgent, copy_network, pong_variant
from acf.bench.pong.replay import Batch
from acf.bench.pong.settings import DqnSettings
from acf.errors import SparsityError

CPU = torch.device("cpu")


def batch(seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    states, after = (torch.randint(0, 256, (4, 4, 84, 84), generator=random, dtype=torch.uint8) for _ in range(2))
    actions = torch.randint(0, 2, (4,), generator=random)
    return Batch(states, actions, torch.randn(4, generator=random), torch.tensor([0.9, 0.0, 0.9, 0.9]), after)


def agent(settings: DqnSettings, variant: str = "dense") -> DqnAgent:
    return DqnAgent(settings, pong_variant(variant), 2, seed=0, device=CPU)


def test_the_target_network_values_the_action_that_the_model_chooses(small: DqnSettings) -> None:
    learner, given = agent(small), batch(0)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.mul_(1.5)
        mine, other = learner.model(given.next_states), learner.target(given.next_states)
        values = torch.stack([other[row, mine[row].argmax()] for row in range(4)])
        expected = given.returns + given.discounts * values
        taken = learner.model(given.states)[torch.arange(4), given.actions]
    loss = learner.train_step(given)
    torch.testing.assert_close(loss, torch.nn.functional.huber_loss(taken, expected))


def test_the_target_network_waits_for_its_turn_and_follows_moved_blocks(small: DqnSettings) -> None:
    learner = agent(small, "rigl-90/block=32/moves=8/fraction=0.5")
    before = acf.nn.block_sparse_layers(learner.target)["values.0"].mask().clone()
    for step in range(3):
        held = [parameter.clone() for parameter in learner.target.parameters()]
        learner.train_step(batch(step))
        same = all(torch.equal(*pair) for pair in zip(held, learner.target.parameters(), strict=True))
        assert same == (step < 2)
    assert learner.moves
    assert not torch.equal(acf.nn.block_sparse_layers(learner.target)["values.0"].mask(), before)
    frames = batch(9).states
    torch.testing.assert_close(learner.target(frames), learner.model(frames))
    learner.close()


def test_random_actions_come_at_their_rate(small: DqnSettings) -> None:
    learner = agent(small)
    with torch.no_grad():
        learner.model.get_parameter("values.2.bias").copy_(torch.tensor([0.0, 100.0]))
    frames = batch(0).states[:1].expand(100, -1, -1, -1)
    assert np.all(learner.act(frames, 0.0) == 1)
    assert np.mean(learner.act(frames, 0.5)) == pytest.approx(0.75, abs=0.12)


@pytest.mark.parametrize("variant", ["dense", "rigl-90/block=32/moves=4"])
def test_a_loaded_agent_goes_on_as_if_nothing_had_happened(small: DqnSettings, tmp_path: Path, variant: str) -> None:
    learner = agent(small, variant)
    for step in range(3):
        learner.train_step(batch(step))
    learner.save(tmp_path / "run.pt", note=7)
    again = agent(small, variant)
    assert again.load(tmp_path / "run.pt") == {"note": 7}
    assert (again.step, again.moves) == (learner.step, learner.moves)
    for step in range(3, 5):
        assert float(learner.train_step(batch(step))) == float(again.train_step(batch(step)))
    assert np.array_equal(learner.act(batch(8).states, 0.5), again.act(batch(8).states, 0.5))
    learner.close()
    again.close()


def test_a_captured_step_has_all_products_and_leaves_the_run_alone(small: DqnSettings) -> None:
    learner = agent(small, "static-90/block=32")
    kept = [tensor.clone() for tensor in learner.model.state_dict().values()]
    trace = learner.capture(batch(0), "step")
    assert len(trace.ops) == 5 + 4 + 5  # forward, input gradients without the first layer's, weight gradients
    assert all(torch.equal(*pair) for pair in zip(kept, learner.model.state_dict().values(), strict=True))
    assert all(parameter.grad is None for parameter in learner.model.parameters())
    learner.close()


def test_a_copy_of_a_network_of_other_topology_computes_the_same(small: DqnSettings) -> None:
    one = DqnAgent(small, pong_variant("static-90/block=32"), 2, seed=0, device=CPU)
    other = DqnAgent(small, pong_variant("static-90/block=32"), 2, seed=1, device=CPU)
    frames = batch(0).states
    assert not torch.allclose(one.model(frames), other.model(frames))
    copy_network(one.model, other.model)
    assert torch.equal(one.model(frames), other.model(frames))
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dst-90", "starts dense and its layers shrink"),
        ("static-90/decay=0.1", "decay in variant .* is the same for all"),
        ("static-90/rate=0", "rate 0 in variant .* trains nothing; use such as rate=5e-4"),
        ("bdwp-2:8", "is neither dense nor block-sparse"),
        ("static-90/distribution=cost", "distribution=cost in variant .* needs a plan"),
    ],
)
def test_variants_that_do_not_fit_are_refused(name: str, message: str) -> None:
    with pytest.raises(SparsityError, match=message):
        pong_variant(name)
