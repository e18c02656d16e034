"""Sparsifying the gradient that a layer sends back, `GradientSparsity(at="input")`."""

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.gradients import sparsifier_of, tracking


def input_gradient(model: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    model(x).square().sum().backward()
    assert x.grad is not None
    return x.grad


def test_the_greatest_elements_of_the_input_gradient_stay_and_the_weight_gradient_is_dense():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8)), torch.randn(5, 8)
    dense = input_gradient(model, x)
    dense_weight_grad = model[0].weight.grad.clone()
    model[0].weight.grad = None
    acf.sparsify_(model, acf.GradientSparsity(0.5, "top-k", at="input"))
    sparse = input_gradient(model, x)
    expected = torch.where(dense.abs() >= dense.abs().flatten().sort().values[20], dense, 0.0)
    assert torch.equal(sparse, expected)
    assert torch.equal(model[0].weight.grad, dense_weight_grad)


def test_only_the_layers_own_gradient_is_sparsified_where_others_read_the_same_input():
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + 3.0 * x

    torch.manual_seed(0)
    model, x = Residual(), torch.randn(5, 8)
    acf.sparsify_(model, acf.GradientSparsity(0.5, "top-k", at="input"))
    gradient = input_gradient(model, x)
    assert (gradient != 0).all()  # the other path's gradient is whole
    assert float(sparsifier_of(model.layer).sparsity) == pytest.approx(0.5)


def test_nothing_changes_where_the_input_needs_no_gradient():
    model, x = nn.Sequential(nn.Linear(8, 8)), torch.randn(5, 8)
    acf.sparsify_(model, acf.GradientSparsity(0.5, at="input"))
    model(x).sum().backward()
    assert tracking(model)["0"].step == 0


def test_densify_removes_it():
    model, x = nn.Sequential(nn.Linear(8, 8)), torch.randn(5, 8)
    acf.sparsify_(model, acf.GradientSparsity(0.5, "top-k", at="input"))
    acf.densify_(model)
    assert (input_gradient(model, x) != 0).all()


def test_the_gradient_of_a_normalised_layer_keeps_its_zero_mean():
    """Why it matters: zeros put behind a batch normalisation leave a gradient that changes the mean it removes."""

    def bias_gradient(at: str) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
        acf.sparsify_(model, acf.GradientSparsity(0.7, "top-k", at=at))
        model(torch.randn(64, 8)).square().sum().backward()
        return float(model[0].bias.grad.abs().max())

    assert bias_gradient("input") < 1e-4  # the normalisation takes every bias out again
    assert bias_gradient("output") > 0.1


def test_an_unknown_place_is_refused():
    with pytest.raises(acf.AcfError, match="at 'middle' is not one of output, input"):
        acf.GradientSparsity(at="middle")
