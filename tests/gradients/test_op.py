"""Derivatives through sparsified gradients: of second order, in forward mode and under `torch.func`."""

import pytest
import torch
from torch import Tensor, nn

from acf.errors import AcfError
from acf.gradients import GradientSparsity
from acf.nn import sparsify_


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).double()
    sparsify_(layers, GradientSparsity(0.5, method="top-k"))
    return layers


def test_second_derivatives_pass_the_kept_elements_alone():
    y = torch.randn(6, dtype=torch.float64, requires_grad=True)
    sparsifier = nn.Sequential(nn.Linear(1, 1))
    sparsify_(sparsifier, GradientSparsity(0.5, method="top-k"))
    passed = sparsifier[0].gradient_sparsifier(y * 1.0)
    (gradient,) = torch.autograd.grad(passed.pow(3).sum(), y, create_graph=True)
    kept = gradient != 0
    assert int(kept.sum()) == 3
    (second,) = torch.autograd.grad(gradient.sum(), y)
    torch.testing.assert_close(second, torch.where(kept, 6 * y, 0.0).detach())


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev], ids=lambda transform: transform.__name__)
def test_transforms_that_would_need_the_gradient_are_refused_by_name(transform):
    layers = model()
    with pytest.raises(AcfError, match=r"gradients sparsified by 'top-k' have no rule for torch\.func"):
        transform(lambda x: layers(x).sum())(torch.randn(4, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
def test_a_tangent_passes_whole_since_only_gradients_are_sparsified():
    layers = model().requires_grad_(False)
    x, tangent = torch.randn(2, 4, dtype=torch.float64).unbind()

    def plain(x: Tensor) -> Tensor:
        return layers[2].weight @ torch.tanh(layers[0].weight @ x + layers[0].bias) + layers[2].bias

    for ours, theirs in zip(*(torch.func.jvp(f, (x,), (tangent,)) for f in (layers, plain)), strict=True):
        torch.testing.assert_close(ours, theirs)
