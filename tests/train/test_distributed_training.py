"""Two processes under DistributedDataParallel, each with its own data, keep one topology and one set of weights."""

from pathlib import Path

import torch
from torch import nn

from acf.masks import BlockDST
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.train import attach
from tests.train.two_ranks import WORLD_SIZE, assert_same, outcomes_of_two_ranks

STEPS = 12


def sparse_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    sparsify_(model, BlockSparsity(sparsity=0.75, block=4))
    return model


def train(rank: int) -> dict[str, object]:
    """Train with data and initial weights of this rank's own."""
    model = nn.parallel.DistributedDataParallel(sparse_model(seed=rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    controller = attach(model, optimizer, BlockDST(total_steps=STEPS, every=3, stop_at=1.0, schedule="constant"))
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        x = torch.randn(8, 16, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), (1.0 + rank) * x.flip(1)).backward()
        optimizer.step()
    return {
        "model": model.module.state_dict(),
        "derived": {name: list(layer.topology) for name, layer in block_sparse_layers(model.module).items()},
        "momentum": [state["momentum_buffer"] for state in optimizer.state.values()],
        "moved": [change.moved_blocks for change in controller.changes],
    }


def train_alone() -> nn.Module:
    """One process that passes the data of both ranks before every step: blocks are chosen by all of it.

    Choices made from one rank's gradients and broadcast, or made before gradients are reduced, would be others.
    """
    model = sparse_model(seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    attach(model, optimizer, BlockDST(total_steps=STEPS, every=3, stop_at=1.0, schedule="constant"))
    generators = [torch.Generator().manual_seed(100 + rank) for rank in range(WORLD_SIZE)]
    for _ in range(STEPS):
        optimizer.zero_grad()
        for rank, generator in enumerate(generators):
            x = torch.randn(8, 16, generator=generator)
            (nn.functional.mse_loss(model(x), (1.0 + rank) * x.flip(1)) / WORLD_SIZE).backward()
        optimizer.step()
    return model


def work(rank: int, _: Path) -> dict[str, object]:
    """The body of one process."""
    return train(rank)


def test_ranks_with_different_data_keep_identical_topologies_weights_and_optimizer_state(tmp_path):
    first, second = outcomes_of_two_ranks(work, tmp_path)
    assert first.keys() == second.keys()
    assert_same(first, second)
    alone = train_alone()
    for name, value in alone.state_dict().items():
        assert torch.equal(first["model"][name], value), name
    assert sum(first["moved"]) > 0
    initial = sparse_model(seed=0)
    assert not torch.equal(first["model"]["0.block_rows"], initial[0].block_rows)
