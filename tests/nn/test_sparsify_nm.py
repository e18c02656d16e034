"""Which layers `sparsify_` makes N:M-sparse, what it refuses, and how `densify_` undoes it."""

import copy
import math

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.nn import BlockSparsity, NMConv2d, NMLayer, NMLinear, NMSparsity, densify_, sparsify_, weight_sparsity


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2, padding=1),
        nn.Conv2d(24, 24, 3, padding=1, groups=3),
        nn.Flatten(),
        nn.Linear(24 * 4, 32),
        nn.Linear(32, 10),
    )


def test_the_first_convolution_and_undivided_layers_stay_dense_and_are_listed():
    model = convnet()
    summary = sparsify_(model, NMSparsity(2, 8))
    assert {name: type(module) for name, module in model.named_modules() if isinstance(module, NMLayer)} == {
        "2": NMConv2d,
        "5": NMLinear,
    }
    assert dict(summary.left_dense) == {
        "0": "the first convolution",
        "3": "a grouped convolution (groups=3)",
        "6": "m 8 does not divide its out_features 10",
    }
    assert str(summary).splitlines()[:2] == [
        "2: 2:8 bdwp (75.0% sparse forward), dense products: only linear layers with 2:4 groups have others",
        "5: 2:8 bdwp (75.0% sparse forward), dense products: sparse tensor cores take 2:4, not 2:8",
    ]
    assert summary.sparsity == 0.75
    assert weight_sparsity(model) == 0.0


@pytest.mark.parametrize(("method", "head_is_sparse"), [("bdwp", False), ("sr-ste", True), ("sdgp", False)])
def test_m_need_only_divide_the_dimension_that_the_method_groups(method, head_is_sparse):
    model = convnet()
    sparsify_(model, NMSparsity(2, 8, method=method))
    assert isinstance(model[6], NMLayer) == head_is_sparse


def test_a_dense_forward_pass_is_reported_as_such():
    assert sparsify_(convnet(), NMSparsity(2, 8, method="sdgp")).sparsity == 0.0


def test_filter_fn_may_take_the_first_convolution():
    model = convnet()
    summary = sparsify_(model, NMSparsity(2, 8), filter_fn=lambda module, name: name == "0")
    assert [layer.name for layer in summary.sparse] == ["0"]
    assert dict(summary.left_dense)["2"] == "filter_fn leaves it out"


@pytest.mark.parametrize(
    ("make_layer", "message"),
    [
        (lambda: nn.Linear(12, 8), "m 8 does not divide in_features 12 of layer '1.0'"),
        (lambda: nn.Linear(8, 12), "m 8 does not divide out_features 12 of layer '1.0'"),
        (lambda: nn.Conv2d(12, 8, 1), "m 8 does not divide in_channels 12 of layer '1.0'"),
        (lambda: nn.Conv2d(8, 12, 1), "m 8 does not divide out_channels 12 of layer '1.0'"),
    ],
    ids=["in_features", "out_features", "in_channels", "out_channels"],
)
def test_an_undivided_layer_that_filter_fn_insists_on_is_refused_and_nothing_changes(make_layer, message):
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(make_layer()))
    before = list(model.modules())
    with pytest.raises(SparsityError) as caught:
        sparsify_(model, NMSparsity(2, 8), filter_fn=lambda module, name: True)
    assert str(caught.value) == f"{message}; use an m that does, or leave the layer out with filter_fn"
    assert list(model.modules()) == before


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.ReLU()), r"Sequential has no linear or convolution layer to sparsify"),
        (nn.Sequential(nn.Linear(3, 3)), "no layer can take 2:8 groups: '0' stays dense because m 8 does not divide"),
        (nn.Linear(8, 8), r"the model is itself a Linear, .* put it into a container such as nn\.Sequential"),
    ],
    ids=["no layer", "no divided layer", "a bare layer"],
)
def test_a_model_without_a_layer_to_take_is_refused(model, message):
    with pytest.raises(SparsityError, match=message):
        sparsify_(model, NMSparsity(2, 8))


def test_a_second_sparsify_is_refused_and_points_to_densify():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, NMSparsity(2, 8))
    with pytest.raises(SparsityError, match="N:M-sparse already; call densify_ first"):
        sparsify_(model, NMSparsity(2, 4))


@pytest.mark.parametrize("spec", ["2:8", None, BlockSparsity, 0.9])
def test_what_is_no_specification_is_refused_with_the_kinds_there_are(spec):
    with pytest.raises(SparsityError, match="no kind of sparsity; pass one of BlockSparsity, SparsityPlan, NMSparsity"):
        sparsify_(nn.Sequential(nn.Linear(8, 8)), spec)


@pytest.mark.parametrize(("n", "m"), [(0, 4), (5, 4), (2.0, 4), (2, "4"), (True, 4)])
def test_a_pattern_that_is_none_is_refused_by_value(n, m):
    with pytest.raises(SparsityError, match=rf"n:m {n}:{m} is no group pattern.*pass such as 2:8"):
        NMSparsity(n, m)


@pytest.mark.parametrize("decay", [-1e-4, math.nan, math.inf])
def test_a_decay_that_is_negative_or_not_finite_is_refused(decay):
    with pytest.raises(SparsityError, match="is negative or not finite; pass such as 2e-4"):
        NMSparsity(2, 4, decay=decay)


def test_a_decay_without_weights_to_decay_is_refused():
    with pytest.raises(SparsityError, match=r"decay 0\.1 needs weights that the forward pass leaves out, sdgp"):
        NMSparsity(2, 4, method="sdgp", decay=0.1)


def test_an_unknown_method_is_refused_with_the_names_there_are():
    with pytest.raises(SparsityError, match="method 'bwdp' is not one of bdwp, sr-ste, sdgp; use one of these names"):
        NMSparsity(2, 4, method="bwdp")


@pytest.mark.parametrize("method", ["bdwp", "sr-ste", "sdgp"])
def test_densify_gives_plain_layers_that_compute_the_same(method):
    model = convnet().eval()
    plain = [type(module) for module in model]
    sparsify_(model, NMSparsity(2, 8, method=method))
    x = torch.randn(2, 8, 4, 4)
    expected = model(x)
    assert densify_(model) is model
    assert [type(module) for module in model] == plain
    torch.testing.assert_close(model(x), expected)
    kept = model[5].weight.count_nonzero() / model[5].weight.numel()
    assert kept == (1.0 if method == "sdgp" else 0.25)
    assert not model[5].training


def test_block_and_group_sparsity_share_a_model_layer_by_layer():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(0.5, block=8), filter_fn=lambda module, name: name == "0")
    sparsify_(model, NMSparsity(2, 8), filter_fn=lambda module, name: name == "1")
    x = torch.randn(3, 16)
    expected = model(x)
    torch.testing.assert_close(densify_(model)(x), expected)
    assert [type(module) for module in model] == [nn.Linear, nn.Linear]


def test_parameters_stay_the_same_so_an_optimizer_built_before_stays_valid():
    model = convnet()
    before = dict(model.named_parameters())
    sparsify_(model, NMSparsity(2, 8))
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is parameter for name, parameter in before.items())


def test_a_transformer_encoder_does_not_take_the_fused_path_around_its_masked_weights():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    model = nn.Sequential(encoder)
    sparsify_(model, NMSparsity(2, 8))
    dense = densify_(copy.deepcopy(model))
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(x), dense(x))
