"""A freshly initialised model keeps the variance of its outputs when its weights are rescaled."""

import pytest
import torch
from torch import nn

from acf.nn import BlockSparsity, block_sparse_layers, sparsify_


def deep_model(depth: int = 4) -> nn.Module:
    """Linear layers and ReLU without normalisation, initialised to keep the variance from layer to layer."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(512, 512, bias=False), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(*layers)


@pytest.mark.parametrize("block", [16, 1, (4, 32)])
def test_a_rescaled_model_without_normalisation_keeps_its_variance_and_without_rescaling_signals_fade(block):
    x = torch.randn(256, 512)
    with torch.no_grad():
        expected = deep_model()(x).var()
        rescaled, faded = deep_model(), deep_model()
        sparsify_(rescaled, BlockSparsity(0.9, block=block))
        sparsify_(faded, BlockSparsity(0.9, block=block, rescale=False))
        assert 0.5 < rescaled(x).var() / expected < 2.0
        assert faded(x).var() / expected < 0.05


def test_a_convolution_keeps_its_variance():
    torch.manual_seed(0)
    x, model = torch.randn(4, 64, 8, 8), nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False))
    with torch.no_grad():
        expected = model(x).var()
        sparsify_(model, BlockSparsity(0.75, block=8, rescale=True))
        assert model(x).var() / expected == pytest.approx(1.0, abs=0.1)


def test_the_squares_of_the_weights_sum_to_what_they_did():
    model = deep_model(depth=1)
    expected = model[0].weight.double().square().sum()
    sparsify_(model, BlockSparsity(0.9, block=16, rescale=True))
    torch.testing.assert_close(model[0].weight.double().square().sum(), expected, rtol=1e-5, atol=0.0)
    assert model[0].density == pytest.approx(0.1, abs=0.001)


def train(model: nn.Module, steps: int, lr: float = 0.05) -> list[float]:
    """The losses of a small regression of 512 features whose inputs have a mean, as the outputs of a ReLU do."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(64, 512, generator=random).relu()
    y = torch.randn(64, 512, generator=random)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = 512 * nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_trained_weights_keep_their_values_by_default():
    model = deep_model(depth=2)
    train(model, steps=20, lr=0.002)
    dense = model[0].weight.detach().clone()
    sparsify_(model, BlockSparsity(0.9, block=16))
    mask = model[0].weight_matrix() != 0
    assert torch.equal(model[0].weight_matrix(), dense * mask)


def test_a_fresh_layer_is_not_rescaled_beside_a_trained_one_that_stays_dense():
    model = deep_model(depth=2)
    with torch.no_grad():
        model[2].weight += 0.05  # one direction far above the others, as training adds it
    summary = sparsify_(model, BlockSparsity(0.9, block=16), filter_fn=lambda _, name: name == "0")
    assert summary.sparse[0].scale == 1.0


def test_a_dense_start_keeps_the_values():
    model = deep_model(depth=1)
    dense = model[0].weight.detach().clone()
    sparsify_(model, BlockSparsity(0.9, block=16, init="dense", rescale=True))
    assert torch.equal(model[0].weight_matrix(), dense)


def test_the_summary_says_by_how_much_weights_were_scaled():
    fresh, kept = deep_model(depth=1), deep_model(depth=1)
    assert "90.0% sparse, weights x 2.94)" in str(sparsify_(fresh, BlockSparsity(0.9, block=16)))
    assert " x " not in str(sparsify_(kept, BlockSparsity(0.9, block=16, rescale=False)))


def test_a_sparsity_of_zero_keeps_the_values_bit_for_bit():
    model = deep_model(depth=1)
    dense = model[0].weight.detach().clone()
    sparsify_(model, BlockSparsity(0.0, block=16))
    assert torch.equal(model[0].weight_matrix(), dense)


def test_ten_layers_without_normalisation_train_because_signals_arrive():
    losses = {}
    for rescale in (None, False):
        model = deep_model(depth=10)
        sparsify_(model, BlockSparsity(0.9, block=16, rescale=rescale))
        losses[rescale] = train(model, steps=15, lr=0.002)
    assert losses[None][-1] < 0.97 * losses[None][0]
    assert losses[False][-1] > 0.999 * losses[False][0]


def test_a_layer_of_zeros_stays_zero():
    model = nn.Sequential(nn.Linear(16, 16))
    nn.init.zeros_(model[0].weight)
    sparsify_(model, BlockSparsity(0.5, block=4, rescale=True))
    assert all(not layer.weight.any() for layer in block_sparse_layers(model).values())
