"""Blocks that have just been regrown: how they are chosen, and how long they are left in peace."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train import attach


def sparse_layer() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32, bias=False))
    sparsify_(model, BlockSparsity(sparsity=0.75, block=4))
    return model


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def masks_after_moves(policy: BlockDST, moves: int) -> list[Tensor]:
    """The mask at the start and after each of the moves, at a learning rate so small that new blocks stay small."""
    model = sparse_layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    attach(model, optimizer, policy)
    masks = [model[0].mask()]
    for step in range(moves * policy.every):
        train_step(model, optimizer, torch.randn(8, 32, generator=torch.Generator().manual_seed(step)))
        if (step + 1) % policy.every == 0:
            masks.append(model[0].mask())
    return masks


def dropped_again(masks: list[Tensor]) -> int:
    """Blocks that were grown by one move and dropped by the next."""
    return sum(int((~a & b & ~c).sum()) for a, b, c in zip(masks, masks[1:], masks[2:], strict=False))


def test_without_grace_a_move_drops_the_blocks_that_the_move_before_has_grown():
    policy = BlockDST(total_steps=100, every=1, fraction=0.25, schedule="constant")
    assert dropped_again(masks_after_moves(policy, moves=3)) == 8  # all 4 of the first move, and of the second


def test_grace_moves_keep_new_blocks_for_that_many_moves_and_no_longer():
    policy = BlockDST(total_steps=100, every=1, fraction=0.25, schedule="constant", grace_moves=2)
    masks = masks_after_moves(policy, moves=4)
    first_grown = masks[1] & ~masks[0]
    assert first_grown.sum() == 4
    assert (first_grown & masks[2] & masks[3]).sum() == 4
    assert not (first_grown & masks[4]).any()  # the smallest again once the grace is over


def test_no_more_blocks_move_than_have_no_grace():
    policy = BlockDST(total_steps=100, every=1, fraction=0.75, schedule="constant", grace_moves=5)
    masks = masks_after_moves(policy, moves=3)
    assert [int((b & ~a).sum()) for a, b in pairwise(masks)] == [12, 4, 0]


def test_score_steps_sum_the_squared_gradient_norms_of_the_steps_before_a_move():
    model = sparse_layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    attach(model, optimizer, BlockDST(total_steps=100, every=3, fraction=0.25, schedule="constant", score_steps=2))
    before = model[0].mask()
    expected = torch.zeros(8, 8)
    for step in range(3):
        x = torch.randn(8, 32, generator=torch.Generator().manual_seed(step))
        gradient = 2 * model(x).detach().T @ x
        if step > 0:  # the last two steps before the move
            expected += gradient.reshape(8, 4, 8, 4).square().sum((1, 3))
        train_step(model, optimizer, x)
    best = torch.where(before, 0.0, expected).flatten().topk(4).indices
    assert torch.equal((model[0].mask() & ~before).flatten().nonzero().flatten(), best.sort().values)
