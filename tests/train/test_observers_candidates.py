"""Growing from a sample of the absent blocks: which are scored, and how many can move."""

import torch
from torch import Tensor, nn

from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train import attach


def sparse_model(size: int, sparsity: float, block: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(size, size, bias=False))
    sparsify_(model, BlockSparsity(sparsity, block=block))
    return model


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: int) -> None:
    optimizer.zero_grad()
    x = torch.randn(tokens, model[0].in_features, generator=torch.Generator().manual_seed(1))
    model(x).square().sum().backward()
    optimizer.step()


def scored_blocks(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Grows by rows and columns of the blocks whose gradient norms are taken."""
    scored: list[tuple[Tensor, Tensor]] = []
    gradient_norms = model[0].gradient_norms

    def counting(output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        scored.append((rows.clone(), cols.clone()))
        return gradient_norms(output_grad, x, rows, cols)

    model[0].gradient_norms = counting
    return scored


def test_only_the_sample_is_scored_and_only_sampled_blocks_are_grown():
    model = sparse_model(64, sparsity=0.75, block=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach(model, optimizer, BlockDST(total_steps=100, every=1, schedule="constant", candidates=0.25))
    scored, before = scored_blocks(model), model[0].mask()
    train_step(model, optimizer, tokens=8)
    ((rows, cols),) = scored
    assert rows.numel() == 48  # a quarter of the 192 absent ones
    assert not before[rows.long(), cols.long()].any()
    sampled = torch.zeros_like(before)
    sampled[rows.long(), cols.long()] = True
    grown = model[0].mask() & ~before
    assert grown.sum() == 19
    assert not (grown & ~sampled).any()


def test_a_new_sample_is_drawn_at_every_move_from_the_seed_of_the_policy():
    def samples(seed: int) -> list[list[int]]:
        model = sparse_model(32, sparsity=0.5, block=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        policy = BlockDST(100, every=1, fraction=0.01, candidates=5, seed=seed)
        attach(model, optimizer, policy)
        scored = scored_blocks(model)
        torch.manual_seed(seed + 10)
        for _ in range(3):
            train_step(model, optimizer, tokens=4)
        return [(8 * rows + cols).tolist() for rows, cols in scored]

    first = samples(seed=1)
    assert first == samples(seed=1)
    assert first != samples(seed=2)
    assert first[0] != first[1]


def test_a_small_sample_bounds_how_many_blocks_move():
    model = sparse_model(64, sparsity=0.75, block=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, BlockDST(100, every=1, schedule="constant", candidates=3))
    train_step(model, optimizer, tokens=8)
    assert [change.moved_blocks for change in controller.changes] == [3]
