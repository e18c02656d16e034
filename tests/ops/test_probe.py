"""The gradient of a probe is the squared norms of all blocks of the dense weight gradient."""

import pytest
import torch
from torch import nn

from acf.nn import BlockSparsity, sparsify_
from acf.ops.probe import probed
from acf.sparse import BlockLayout, conv_weight_to_matrix


@pytest.mark.parametrize("shape", [(6, 8), (2, 3, 8)])
def test_a_linear_layers_probe_gets_the_squared_norms_of_its_gradient_blocks(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 12, bias=False), torch.randn(shape)
    probe = torch.zeros(3, 2, requires_grad=True)
    probed(layer(x), x, probe, (4, 4)).square().sum().backward()
    expected = BlockLayout(12, 8, 4, 4).block_norms(layer.weight.grad).square()
    torch.testing.assert_close(probe.grad, expected)


def test_a_convolutions_probe_gets_them_tap_by_tap_and_adds_up_over_passes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 4, 3, stride=2, padding=1, bias=False))
    dense = model[0]
    images = [torch.randn(2, 8, 5, 5) for _ in range(2)]
    expected = torch.zeros(1, 18)
    for x in images:
        dense.weight.grad = None
        dense(x).square().sum().backward()
        expected += BlockLayout(4, 72, 4, 4).block_norms(conv_weight_to_matrix(dense.weight.grad)).square()
    sparsify_(model, BlockSparsity(0.0, block=4))
    probe = torch.zeros(1, 18, requires_grad=True)
    for x in images:
        y = probed(model(x), x, probe, (4, 4), model[0].settings.geometry)
        y.square().sum().backward()
    torch.testing.assert_close(probe.grad, expected)


def test_scores_that_overflow_count_for_nothing() -> None:
    x = torch.full((2, 4), torch.inf)
    probe = torch.zeros(1, 1, requires_grad=True)
    probed(torch.ones(2, 4, requires_grad=True) * 1.0, x, probe, (4, 4)).sum().backward()
    assert probe.grad is not None
    assert probe.grad.tolist() == [[0.0]]
