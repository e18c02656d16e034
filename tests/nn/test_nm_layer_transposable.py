"""Transposable masks in N:M layers: one mask for the forward product and the input gradient."""

import copy

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.nn import NMSparsity, sparsify_
from acf.sparse import transposable_mask

LAYERS = {
    "linear": (lambda: nn.Linear(16, 8), (5, 16)),
    "convolution": (lambda: nn.Conv2d(8, 16, 3, padding=1), (2, 8, 5, 6)),
}


def transposable(method: str = "sr-ste", **options: object) -> NMSparsity:
    return NMSparsity(2, 4, method=method, transposable=True, **options)


@pytest.mark.parametrize("method", ["bdwp", "sr-ste"])
@pytest.mark.parametrize(("make_layer", "shape"), LAYERS.values(), ids=LAYERS.keys())
def test_both_products_use_one_mask_and_the_weight_gradient_is_dense(make_layer, shape, method):
    dense = make_layer().double()
    model = nn.Sequential(copy.deepcopy(dense))
    sparsify_(model, transposable(method, decay=0.0), filter_fn=lambda module, name: True)
    mask = transposable_mask(dense.weight, 2, 4)
    with torch.no_grad():
        dense.weight.mul_(mask)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(model(x), dense(x))
    output_grad = torch.randn_like(dense(x))
    found = torch.autograd.grad(model(x), [x, *model.parameters()], output_grad)
    expected = torch.autograd.grad(dense(x), [x, *dense.parameters()], output_grad)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(model[0].forward_mask, mask)
    assert torch.equal(model[0].backward_weight(), model[0].forward_weight())


def test_the_decay_pulls_what_the_transposable_mask_leaves_out():
    model = nn.Sequential(nn.Linear(8, 8, bias=False))
    sparsify_(model, transposable(decay=0.5))
    layer = model[0]
    (gradient,) = torch.autograd.grad(model(torch.zeros(1, 8)).sum(), [layer.weight])
    torch.testing.assert_close(gradient, 0.5 * torch.where(layer.forward_mask, 0.0, layer.weight.detach()))


def test_masks_follow_the_optimizer():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, transposable())
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    before = model[0].masks().forward.clone()
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    assert torch.equal(model[0].masks().forward, transposable_mask(model[0].weight, 2, 4))
    assert not torch.equal(model[0].masks().forward, before)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own doing
def test_a_compiled_model_is_one_graph_that_follows_the_weight():
    torch._dynamo.reset()
    model, x = nn.Sequential(nn.Linear(8, 8)), torch.randn(4, 8)
    sparsify_(model, transposable())
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        found, expected = (torch.autograd.grad(f(x).square().sum(), [*model.parameters()]) for f in (compiled, model))
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs)
        nn.init.normal_(model[0].weight)
    torch._dynamo.reset()


def test_a_model_on_the_meta_device_is_made_sparse_before_it_has_values():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, transposable())
    model.to_empty(device="cpu")
    nn.init.normal_(model[0].weight)
    assert torch.equal(model[0].masks().forward, transposable_mask(model[0].weight, 2, 4))


def test_layers_of_which_m_divides_one_dimension_stay_dense_and_a_printed_layer_says_transposable():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 6))
    summary = sparsify_(model, transposable())
    assert dict(summary.left_dense) == {"1": "m 4 does not divide its out_features 6"}
    assert repr(model[0]) == "NMLinear(8x8, 2:4, method=sr-ste, transposable=True, bias=True)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 2, "m": 8}, "2:8 has no transposable mask here"),
        ({"n": 2, "m": 4, "method": "sdgp"}, "sdgp masks the input gradient alone; pass transposable=False"),
    ],
)
def test_what_cannot_be_transposable_is_refused_where_it_is_specified(arguments, message):
    with pytest.raises(SparsityError, match=message):
        NMSparsity(**arguments, transposable=True)


def test_transposable_is_yes_or_no():
    with pytest.raises(SparsityError, match="transposable 1 is no bool; pass True or False"):
        NMSparsity(2, 4, transposable=1)
