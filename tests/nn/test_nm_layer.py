"""What N:M layers compute: each method's forward product and both gradients, against dense layers masked by hand."""

import copy

import pytest
import torch
from torch import nn

from acf.nn import NMConv2d, NMLinear, NMSparsity, sparsify_

LAYERS = {
    "linear": (lambda: nn.Linear(16, 16), (5, 16)),
    "linear without bias": (lambda: nn.Linear(16, 16, bias=False), (2, 3, 16)),
    "convolution": (lambda: nn.Conv2d(16, 16, 3, stride=2, padding=1), (2, 16, 5, 6)),
    "same padding": (lambda: nn.Conv2d(16, 16, (2, 3), padding="same", bias=False), (2, 16, 5, 6)),
    "reflected padding": (lambda: nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"), (2, 16, 5, 6)),
    "unbatched": (lambda: nn.Conv2d(16, 16, 3, dilation=2), (16, 7, 6)),
}
PATTERNS = [(2, 4), (2, 8), (1, 4), (4, 8), (2, 16), (3, 8)]


def top_n(weight: torch.Tensor, n: int, m: int, dim: int) -> torch.Tensor:
    """``weight`` with all but the n greatest of every m along ``dim`` zero."""
    groups = weight.detach().movedim(dim, -1).unflatten(-1, (-1, m))
    kept = torch.zeros_like(groups).scatter(-1, groups.abs().topk(n).indices, 1.0)
    return (groups * kept).flatten(-2).movedim(-1, dim)


def with_weight(dense: nn.Module, weight: torch.Tensor) -> nn.Module:
    layer = copy.deepcopy(dense)
    with torch.no_grad():
        layer.weight.copy_(weight)
    return layer


def gradients(layer: nn.Module, x: torch.Tensor, output_grad: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    return list(torch.autograd.grad(layer(x), [x, *layer.parameters()], output_grad))


def sparse_of(dense: nn.Module, spec: NMSparsity) -> nn.Module:
    model = nn.Sequential(copy.deepcopy(dense))
    sparsify_(model, spec, filter_fn=lambda module, name: True)
    return model[0]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # of torch's own layer
@pytest.mark.parametrize(("n", "m"), PATTERNS)
@pytest.mark.parametrize("method", ["bdwp", "sr-ste", "sdgp"])
@pytest.mark.parametrize(("make_layer", "shape"), LAYERS.values(), ids=LAYERS.keys())
def test_every_pass_uses_the_weights_of_the_method(make_layer, shape, method, n, m):
    dense = make_layer().double()
    layer = sparse_of(dense, NMSparsity(n, m, method=method, decay=0.0))
    assert type(layer) is (NMLinear if isinstance(dense, nn.Linear) else NMConv2d)
    by_inputs, by_outputs = top_n(dense.weight, n, m, dim=1), top_n(dense.weight, n, m, dim=0)
    forward_weight = dense.weight if method == "sdgp" else by_inputs
    backward_weight = by_inputs if method == "sr-ste" else by_outputs
    forward, backward = with_weight(dense, forward_weight), with_weight(dense, backward_weight)

    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(layer(x), forward(x))
    output_grad = torch.randn_like(forward(x))
    input_grad, *parameter_grads = gradients(layer, x, output_grad)
    torch.testing.assert_close(input_grad, gradients(backward, x, output_grad)[0])
    for found, expected in zip(parameter_grads, gradients(forward, x, output_grad)[1:], strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(layer.forward_weight(), forward_weight.detach())
    torch.testing.assert_close(layer.backward_weight(), backward_weight)


@pytest.mark.parametrize(
    ("method", "decay", "factor"), [("sr-ste", None, 2e-4), ("sr-ste", 0.1, 0.1), ("bdwp", 0.1, 0.1)]
)
def test_the_decay_term_pulls_weights_left_out_towards_zero_and_no_others(method, decay, factor):
    dense = nn.Linear(16, 8).double()
    layer = sparse_of(dense, NMSparsity(2, 8, method=method, decay=decay))
    plain = sparse_of(dense, NMSparsity(2, 8, method=method, decay=0.0))
    x, output_grad = torch.randn(5, 16, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)
    difference = gradients(layer, x, output_grad)[1] - gradients(plain, x, output_grad)[1]
    left_out = torch.where(layer.forward_mask, 0.0, dense.weight)
    torch.testing.assert_close(difference, factor * left_out.detach())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # of torch's own layer
@pytest.mark.parametrize("method", ["bdwp", "sr-ste", "sdgp"])
@pytest.mark.parametrize(("make_layer", "shape"), LAYERS.values(), ids=LAYERS.keys())
def test_autocast_computes_in_the_low_precision_and_keeps_the_master_gradient_in_the_high(make_layer, shape, method):
    layer = sparse_of(make_layer(), NMSparsity(2, 8, method=method))
    x = torch.randn(shape, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype is torch.bfloat16
    y.float().square().sum().backward()
    assert layer.weight.grad.dtype is x.grad.dtype is torch.float32
    torch.testing.assert_close(y.float(), layer(x), rtol=0.05, atol=0.05)


def test_a_frozen_weight_and_an_input_without_gradient_get_none():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    sparsify_(model, NMSparsity(2, 4))
    model[0].weight.requires_grad_(False)
    model(torch.randn(3, 8)).sum().backward()
    assert model[0].weight.grad is None
    assert model[0].bias.grad is not None
    assert model[1].weight.grad is not None


def test_a_printed_layer_names_its_shape_pattern_and_method():
    assert repr(sparse_of(nn.Linear(16, 8), NMSparsity(2, 8))) == "NMLinear(8x16, 2:8, method=bdwp, bias=True)"
