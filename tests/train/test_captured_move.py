"""Moves as a CUDA graph records them: sizes on the device, fixed capacities. On a CPU they run at once."""

import pytest
import torch
from torch import nn

import acf
from acf.masks import SET, BlockDST, GradualPruning


def model_and_optimizer(distribution: str = "uniform") -> tuple[nn.Sequential, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=8, distribution=distribution))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def backward(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    optimizer.zero_grad()
    x, y = torch.randn(32, 64, generator=generator), torch.randn(32, 64, generator=generator)
    nn.functional.mse_loss(model(x), y).backward()


@pytest.mark.parametrize("distribution", ["uniform", "balanced"])
@pytest.mark.parametrize("grace_moves", [0, 1])
def test_a_recorded_move_is_the_move_that_the_controller_makes(distribution: str, grace_moves: int) -> None:
    policy = BlockDST(total_steps=40, every=4, fraction=0.4, grace_moves=grace_moves)
    (eager, eager_optimizer), (graphed, graphed_optimizer) = (model_and_optimizer(distribution) for _ in range(2))
    plain = acf.attach(eager, eager_optimizer, policy)
    topology = acf.attach(graphed, graphed_optimizer, policy)
    move = topology.captured_move()
    assert move is not None
    for step in range(1, 31):
        backward(eager, eager_optimizer, step)
        eager_optimizer.step()
        backward(graphed, graphed_optimizer, step)
        if topology.moves_next:
            move.prepare(step)
            with topology.paused():
                graphed_optimizer.step()
            move.record()
            topology.count_captured_move(move)
        else:
            graphed_optimizer.step()
    assert topology.step == plain.step == 30
    assert topology.changes == plain.changes
    assert len(topology.changes) == 2 * 7
    for name, value in eager.state_dict().items():
        assert torch.equal(value, graphed.state_dict()[name]), name
    for first, second in zip(eager.parameters(), graphed.parameters(), strict=True):
        ours, theirs = eager_optimizer.state[first], graphed_optimizer.state[second]
        assert torch.equal(ours["momentum_buffer"], theirs["momentum_buffer"])
    assert plain.figures() == topology.figures()


@pytest.mark.parametrize(
    "policy",
    [
        SET(total_steps=40, every=4),
        BlockDST(total_steps=40, every=4, candidates=0.5),
        BlockDST(total_steps=40, every=4, score_steps=2),
        BlockDST(total_steps=40, every=4, score="input_aware"),
    ],
)
def test_a_policy_that_needs_the_host_has_no_recorded_move(policy: acf.masks.TopologyPolicy) -> None:
    assert acf.attach(*model_and_optimizer(), policy).captured_move() is None


def test_a_layer_that_is_still_to_shrink_has_no_recorded_move() -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8, init="dense"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert acf.attach(model, optimizer, GradualPruning(total_steps=40, every=4)).captured_move() is None


def test_a_rehearsal_changes_neither_weights_nor_topology_nor_scores() -> None:
    (rehearsed, first), (plain, second) = model_and_optimizer(), model_and_optimizer()
    for model, optimizer in ((rehearsed, first), (plain, second)):
        topology = acf.attach(model, optimizer, BlockDST(total_steps=40, every=4))
        for step in range(1, 6):
            if model is rehearsed and step == 2:
                topology.rehearse()
            backward(model, optimizer, step)
            optimizer.step()
    for name, value in plain.state_dict().items():
        assert torch.equal(value, rehearsed.state_dict()[name]), name


def test_a_recorded_move_keeps_its_index_tensors_when_the_controller_drops_them() -> None:
    topology = acf.attach(*model_and_optimizer(), BlockDST(total_steps=40, every=4))
    move = topology.captured_move()
    assert move is not None
    prepared = move.moves.prepare()
    move.moves._batches.clear()
    assert [id(batch) for batch in move._batches] == [id(batch) for batch in prepared]
