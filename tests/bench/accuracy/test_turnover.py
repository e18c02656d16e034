"""Turnover of blocks: density over the run, and regrown blocks that are dropped at the next update."""

import pytest
import torch
from torch import Tensor, nn

from acf.bench.accuracy import turnover
from acf.bench.accuracy.turnover import BlockTurnover


class FourBlocks:
    """A layer of four blocks whose mask the test sets."""

    def __init__(self, *present: int) -> None:
        self.present = present

    def mask(self) -> Tensor:
        return torch.tensor([block in self.present for block in range(4)])


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> FourBlocks:
    layer = FourBlocks(0, 1)
    monkeypatch.setattr(turnover, "block_sparse_layers", lambda model: {"fc": layer})
    return layer


def test_a_block_regrown_at_one_update_and_dropped_at_the_next_counts_as_dropped_again(layer: FourBlocks) -> None:
    followed = BlockTurnover(nn.Identity())
    for step, present in ((10, (0, 2)), (20, (0, 3)), (30, (1, 3))):
        layer.present = present
        followed(step, ())
    assert (followed.moves, followed.dropped, followed.dropped_again) == (3, 3, 1)  # only block 2 was new
    assert followed.dropped_again_share == pytest.approx(1 / 3)


def test_density_is_averaged_over_the_steps(layer: FourBlocks) -> None:
    followed = BlockTurnover(nn.Identity())
    layer.present = (0,)
    followed(6, ())
    assert followed.mean_density(10) == pytest.approx((6 * 0.5 + 4 * 0.25) / 10)
    assert followed.dropped_again_share == 0.0


def test_without_a_drop_there_is_no_share(layer: FourBlocks) -> None:
    assert BlockTurnover(nn.Identity()).dropped_again_share is None
