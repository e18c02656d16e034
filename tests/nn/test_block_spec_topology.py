"""`BlockSparsity.topology`: layers start from the topology asked for and train on from there."""

import pytest
import torch
from torch import nn

import acf
from acf.errors import SparsityError
from acf.masks import TOPOLOGIES
from acf.nn import BlockSparseConv2d, BlockSparseLinear

STRUCTURED = [name for name in TOPOLOGIES if name != "norm"]


def conv_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten(), nn.Linear(32 * 4, 32)
    )


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("distribution", ["uniform", "erk"])
def test_densities_do_not_depend_on_the_topology(topology, distribution):
    model, plain = conv_net(), conv_net()
    acf.sparsify_(model, acf.BlockSparsity(0.75, 8, distribution, topology=topology))
    acf.sparsify_(plain, acf.BlockSparsity(0.75, 8, distribution))
    layers = [
        (layer, other)
        for layer, other in zip(model, plain, strict=True)
        if isinstance(layer, BlockSparseConv2d | BlockSparseLinear)
    ]
    assert len(layers) == 3
    assert [layer.present_blocks for layer, _ in layers] == [other.present_blocks for _, other in layers]


def test_a_convolution_starts_with_constant_fan_in_and_fan_out():
    model = conv_net()
    acf.sparsify_(model, acf.BlockSparsity(0.75, 8, topology="spread"))
    for layer in (model[0], model[2], model[4]):
        for dim in (0, 1):
            filled = layer.mask().sum(dim)
            assert filled.max() - filled.min() <= 1


@pytest.mark.parametrize("topology", STRUCTURED)
def test_moves_go_on_from_a_structured_start(topology):
    model = conv_net()
    acf.sparsify_(model, acf.BlockSparsity(0.75, 8, topology=topology))
    before = [layer.mask() for layer in (model[0], model[2], model[4])]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    controller = acf.attach(model, optimizer, acf.BlockDST(total_steps=8, every=2))
    for _ in range(8):
        model(torch.randn(4, 16, 4, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    after = [layer.mask() for layer in (model[0], model[2], model[4])]
    assert [int(mask.sum()) for mask in after] == [int(mask.sum()) for mask in before]
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert controller.sparsity == pytest.approx(0.75, abs=0.01)


def test_a_layer_of_the_meta_device_draws_the_topology_asked_for():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(64, 64, bias=False))
    acf.sparsify_(model, acf.BlockSparsity(0.75, 8, topology="diagonal"))
    model.to_empty(device="cpu")
    model[0].reset_parameters()
    rows, cols = torch.nonzero(model[0].mask()).T
    assert torch.bincount((cols - rows) % 8, minlength=8).sort().values.tolist() == [0] * 6 + [8, 8]


def test_an_unknown_topology_is_refused_when_the_spec_is_built():
    with pytest.raises(SparsityError, match="topology 'ring' is not one of norm, spread, butterfly, diagonal"):
        acf.BlockSparsity(0.9, topology="ring")


def test_a_topology_for_a_dense_start_is_refused():
    with pytest.raises(SparsityError, match="a dense start holds them all"):
        acf.BlockSparsity(0.9, init="dense", topology="butterfly")


def test_balanced_densities_refuse_a_topology_without_equal_rows():
    with pytest.raises(SparsityError, match="topology 'diagonal' does not hold the same number of blocks"):
        acf.BlockSparsity(0.9, distribution="balanced", topology="diagonal")
    assert acf.BlockSparsity(0.9, distribution="balanced", topology="spread").topology == "spread"
