"""An MLP across the tokens of a batch, whose input is the transpose of what lies in memory, without a training step."""

import torch

from acf.ops import MlpLayer, block_mlp
from acf.sparse import BlockLayout, BlockTopology


def layer(rows: int, cols: int, generator: torch.Generator) -> MlpLayer:
    mask = torch.rand(rows, cols, generator=generator) < 0.6
    topology = BlockTopology.from_mask(BlockLayout(8 * rows, 8 * cols, 8, 8), mask)
    weight = torch.randn(topology.block_rows.numel(), 8, 8, generator=generator)
    return MlpLayer(weight, topology, torch.randn(8 * rows, generator=generator))


def test_inference_across_tokens_is_that_of_a_copy() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = layer(4, 3, generator), layer(3, 4, generator)
    channels = torch.randn(2, 24, 5, generator=generator)
    y = block_mlp(channels.transpose(1, 2), first, second)
    assert y.shape == (2, 5, 24)
    torch.testing.assert_close(y, block_mlp(channels.transpose(1, 2).contiguous(), first, second))
    rows = torch.stack([block_mlp(row, first, second) for row in channels.transpose(1, 2).flatten(0, 1)])
    torch.testing.assert_close(y, rows.view_as(y))
