"""What `sparsify_` and its specification refuse, and that a refusal changes nothing."""

import math

import pytest
import torch
from torch import nn

from acf.errors import AcfError, SparsityError
from acf.nn import BlockSparsity, NMSparsity, densify_, sparsify_

HALF = BlockSparsity(sparsity=0.5, block=4)


class Snapshot:
    """The identity of every module and parameter of a model, and the values."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.modules = dict(model.named_modules())
        self.parameters = dict(model.named_parameters())
        self.values = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def assert_unchanged(self) -> None:
        modules, parameters = dict(self.model.named_modules()), dict(self.model.named_parameters())
        assert modules.keys() == self.modules.keys()
        assert all(modules[name] is module for name, module in self.modules.items())
        assert parameters.keys() == self.parameters.keys()
        assert all(parameters[name] is parameter for name, parameter in self.parameters.items())
        assert all(torch.equal(value, self.values[name]) for name, value in self.model.state_dict().items())


@pytest.mark.parametrize(
    ("make_layer", "message"),
    [
        (lambda: nn.Linear(100, 64), "block 48 does not divide in_features 100 of layer '1.0'"),
        (lambda: nn.Linear(96, 100), "block 48 does not divide out_features 100 of layer '1.0'"),
        (lambda: nn.Conv2d(100, 48, 1), "block 48 does not divide in_channels 100 of layer '1.0'"),
        (lambda: nn.Conv2d(48, 100, 1), "block 48 does not divide out_channels 100 of layer '1.0'"),
    ],
    ids=["in_features", "out_features", "in_channels", "out_channels"],
)
def test_a_block_that_does_not_divide_a_layer_is_refused_and_nothing_changes(make_layer, message):
    model = nn.Sequential(nn.Linear(48, 96), nn.Sequential(make_layer()), nn.Linear(48, 48))
    before = Snapshot(model)
    with pytest.raises(SparsityError) as caught:
        sparsify_(model, BlockSparsity(sparsity=0.5, block=48))
    assert str(caught.value) == f"{message}; use a block that does, or leave the layer out with filter_fn"
    before.assert_unchanged()


def test_the_remedy_works_leaving_the_layer_out_with_filter_fn():
    model = nn.Sequential(nn.Linear(48, 96), nn.Linear(100, 64))
    summary = sparsify_(
        model, BlockSparsity(sparsity=0.5, block=48), filter_fn=lambda module, name: module.in_features != 100
    )
    assert [layer.name for layer in summary.sparse] == ["0"]


def test_a_thin_layer_that_filter_fn_insists_on_is_refused():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    before = Snapshot(model)
    with pytest.raises(SparsityError, match="block 4 does not divide out_features 2 of layer '1'"):
        sparsify_(model, HALF, filter_fn=lambda module, name: True)
    before.assert_unchanged()


def test_a_model_without_linear_or_convolution_layers_is_refused():
    model = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4))
    with pytest.raises(SparsityError, match=r"Sequential has no linear or convolution layer to sparsify; pass a model"):
        sparsify_(model, HALF)


def test_a_model_whose_layers_are_all_too_thin_is_refused_with_the_reason_of_one():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3))
    before = Snapshot(model)
    with pytest.raises(SparsityError, match=r"no layer can hold blocks of 4: '0' stays dense because its 2 x 3 "):
        sparsify_(model, HALF)
    before.assert_unchanged()


def test_a_second_sparsify_is_refused_and_points_to_densify():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    sparsify_(model, HALF)
    before = Snapshot(model)
    with pytest.raises(SparsityError, match="block-sparse already; call densify_ first"):
        sparsify_(model, HALF)
    before.assert_unchanged()
    sparsify_(densify_(model), HALF)


@pytest.mark.parametrize("filter_fn", [None, lambda module, name: True], ids=["without filter", "with filter"])
@pytest.mark.parametrize(("kind", "sizes"), [(nn.Linear, (8, 8)), (nn.Conv2d, (8, 8, 1))], ids=["Linear", "Conv2d"])
def test_a_model_that_is_itself_a_layer_is_refused_because_it_has_no_parent(kind, sizes, filter_fn):
    with pytest.raises(SparsityError, match=rf"the model is itself a {kind.__name__}.*nn\.Sequential\(layer\)"):
        sparsify_(kind(*sizes), HALF, filter_fn=filter_fn)


def test_a_model_that_is_itself_a_sparse_layer_is_refused_by_sparsify_and_densify():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    with pytest.raises(SparsityError, match="the model is itself a BlockSparseLinear"):
        sparsify_(model[0], HALF)
    with pytest.raises(SparsityError, match=r"the model is itself a BlockSparseLinear.* call its to_dense\(\)"):
        densify_(model[0])


@pytest.mark.parametrize("sparsity", [1.0, 1.5, -0.1, math.nan, math.inf, -math.inf])
def test_a_sparsity_outside_zero_to_one_is_refused_by_value(sparsity):
    with pytest.raises(SparsityError) as caught:
        BlockSparsity(sparsity=sparsity)
    assert str(caught.value) == (
        f"sparsity {sparsity} is outside [0, 1); it is the fraction of blocks to drop, such as 0.9"
    )


@pytest.mark.parametrize("block", [0, -4, 2.5, True, "16", (16,), (16, 0), (8, 8, 8), (4, 2.0), [4, 4]], ids=repr)
def test_a_block_that_is_no_positive_size_is_refused_by_value(block):
    with pytest.raises(SparsityError) as caught:
        BlockSparsity(sparsity=0.5, block=block)
    assert f"block {block!r} is not a positive integer or a pair of them; pass such as" in str(caught.value)


def test_an_unknown_distribution_is_refused_with_the_names_there_are():
    with pytest.raises(
        SparsityError, match="distribution 'erkk' is not one of uniform, erk, balanced, cost; use one of these names"
    ):
        BlockSparsity(sparsity=0.5, distribution="erkk")


def test_a_refusal_is_both_an_acf_error_and_a_value_error():
    with pytest.raises(AcfError) as caught:
        BlockSparsity(sparsity=2.0)
    assert isinstance(caught.value, ValueError)


HOOKS = {
    "register_hook": lambda weight: weight.register_hook(lambda gradient: gradient * 2),
    "post-accumulate": lambda weight: weight.register_post_accumulate_grad_hook(lambda weight: None),
}


@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS.keys())
def test_a_hook_on_a_weight_that_would_be_replaced_is_refused_and_nothing_changes(register):
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    handle = register(model[1].weight)
    with pytest.raises(SparsityError, match=r"1\.weight has a hook on its gradient .*; register it after sparsify_"):
        sparsify_(model, BlockSparsity(0.5, block=4))
    assert type(model[0]) is nn.Linear
    sparsify_(model, BlockSparsity(0.5, block=4), lambda module, name: name == "0")
    handle.remove()
    register(model[0].weight)
    with pytest.raises(SparsityError, match="has a hook on its gradient, which the dense weight would lose"):
        densify_(model)


def test_hooks_on_parameters_that_stay_are_kept():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    seen: list[int] = []
    model[0].bias.register_hook(lambda gradient: seen.append(0))
    model[1].weight.register_hook(lambda gradient: seen.append(1))
    sparsify_(model, NMSparsity(n=2, m=4), lambda module, name: name == "1")
    sparsify_(model, BlockSparsity(0.5, block=4), lambda module, name: name == "0")
    model(torch.randn(2, 16)).sum().backward()
    assert sorted(seen) == [0, 1]
