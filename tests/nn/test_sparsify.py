"""What `sparsify_` puts into a model, and what it leaves alone."""

import copy

import pytest
import torch
from torch import nn

from acf.nn import (
    BlockSparseConv2d,
    BlockSparseLinear,
    BlockSparsity,
    block_sparse_layers,
    sparsify_,
    weight_sparsity,
)
from acf.sparse import conv_weight_to_matrix

HALF = BlockSparsity(sparsity=0.5, block=4, rescale=False)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def small_convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 16, 8),
    )


@pytest.mark.parametrize(
    ("make_model", "input_shape"),
    [
        (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)), (5, 8)),
        (small_convnet, (2, 3, 8, 8)),
        (lambda: nn.Sequential(Residual(), nn.ModuleDict({"head": nn.Linear(8, 4)})["head"]), (2, 3, 8)),
    ],
    ids=["linear", "convolution", "nested"],
)
def test_a_sparse_model_computes_what_the_dense_one_does_with_the_absent_blocks_zero(
    make_model, input_shape, masked_dense
):
    model = make_model()
    dense = copy.deepcopy(model)
    sparsify_(model, HALF)
    assert block_sparse_layers(model)
    model, expected = model.double(), masked_dense(dense, model).double()
    x = torch.randn(*input_shape, dtype=torch.float64)
    torch.testing.assert_close(model(x), expected(x), rtol=1e-12, atol=1e-12)


def test_linear_and_convolution_layers_are_replaced_in_place_at_every_depth():
    model = nn.Sequential(small_convnet(), nn.Sequential(nn.Sequential(nn.Linear(8, 8))))
    assert sparsify_(model, HALF).sparse
    kinds = {name: type(layer) for name, layer in block_sparse_layers(model).items()}
    assert kinds == {"0.2": BlockSparseConv2d, "0.5": BlockSparseLinear, "1.0.0": BlockSparseLinear}


@pytest.mark.parametrize("block", [4, (2, 8), (8, 2)], ids=str)
def test_the_blocks_of_a_linear_layer_that_stay_are_those_of_greatest_norm_with_their_values(block):
    model = nn.Sequential(nn.Linear(16, 24))
    weight = model[0].weight.detach().clone()
    spec = BlockSparsity(sparsity=0.75, block=block, rescale=False)
    sparsify_(model, spec)
    layer, (height, width) = model[0], spec.block_shape
    tiles = weight.unfold(0, height, height).unfold(1, width, width)
    norms = tiles.square().sum((2, 3)).sqrt()
    threshold = norms.flatten().sort().values[-layer.present_blocks]
    assert layer.present_blocks == norms.numel() // 4
    assert torch.equal(layer.mask(), norms >= threshold)
    for slot, (row, col) in enumerate(zip(layer.block_rows, layer.block_cols, strict=True)):
        assert torch.equal(layer.weight[slot], tiles[row, col])


def test_the_blocks_of_a_convolution_that_stay_are_those_of_greatest_norm():
    model = nn.Sequential(nn.Conv2d(8, 8, 3))
    matrix = conv_weight_to_matrix(model[0].weight.detach())
    sparsify_(model, BlockSparsity(sparsity=0.75, block=4, rescale=False))
    norms = matrix.unfold(0, 4, 4).unfold(1, 4, 4).square().sum((2, 3))
    threshold = norms.flatten().sort().values[-9]
    assert torch.equal(model[0].mask(), norms >= threshold)


def test_blocks_of_equal_norm_stay_in_order_of_their_index():
    model = nn.Sequential(nn.Linear(128, 128))
    nn.init.ones_(model[0].weight)
    sparsify_(model, HALF)
    assert torch.equal(model[0].mask().flatten(), torch.arange(1024) < 512)


def test_erk_leaves_a_thin_layer_denser_than_a_square_one():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 16))
    sparsify_(model, BlockSparsity(sparsity=0.9, block=4, distribution="erk"))
    assert [layer.present_blocks for layer in block_sparse_layers(model).values()] == [
        round(256 / 13),
        round(64 * 5 / 26),
    ]


def test_sparsity_zero_keeps_every_block():
    model = nn.Sequential(nn.Linear(8, 8))
    summary = sparsify_(model, BlockSparsity(sparsity=0.0, block=4))
    assert model[0].density == 1.0
    assert summary.sparsity == 0.0


def test_a_module_used_under_two_names_becomes_one_sparse_layer_under_both():
    shared = nn.Linear(8, 8)
    model = nn.ModuleDict({"first": shared, "second": nn.Sequential(shared)})
    summary = sparsify_(model, HALF)
    assert model["first"] is model["second"][0]
    assert isinstance(model["first"], BlockSparseLinear)
    assert [layer.name for layer in summary.sparse] == ["first"]


class Tied(nn.Module):
    """A decoder whose weight the embedding owns too, and a free linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.free = nn.Linear(8, 8)
        self.decoder = nn.Linear(8, 16, bias=False)
        self.decoder.weight = self.embedding.weight


class TiedUnderAnotherName(nn.Module):
    """A linear layer whose weight its parent holds too, as ``table``."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(8, 16)
        self.table = self.decoder.weight
        self.free = nn.Linear(8, 8)


@pytest.mark.parametrize("make_model", [Tied, TiedUnderAnotherName])
def test_a_layer_whose_weight_is_shared_is_left_alone_and_listed(make_model):
    model = make_model()
    decoder, weight = model.decoder, model.decoder.weight
    summary = sparsify_(model, HALF)
    assert model.decoder is decoder
    assert decoder.weight is weight
    assert dict(summary.left_dense) == {"decoder": "its weight is shared with another module"}
    assert isinstance(model.free, BlockSparseLinear)


def test_two_linear_layers_that_share_a_weight_are_both_left_alone():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    summary = sparsify_(model, HALF)
    assert [name for name, _ in summary.left_dense] == ["0", "1"]
    assert model[0].weight is model[1].weight


def test_grouped_convolutions_are_left_dense_and_listed_with_the_number_of_groups():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1))
    summary = sparsify_(model, HALF)
    assert type(model[0]) is nn.Conv2d
    assert summary.left_dense == (("0", "a grouped convolution (groups=8)"),)


def test_layers_thinner_than_a_block_are_left_dense_and_listed_with_both_sizes():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 2))
    stem, head = model[0], model[3]
    summary = sparsify_(model, HALF)
    assert (model[0], model[3]) == (stem, head)
    assert summary.left_dense == (
        ("0", "its 8 x 3 outputs x inputs are thinner than a 4 x 4 block"),
        ("3", "its 2 x 8 outputs x inputs are thinner than a 4 x 4 block"),
    )


@pytest.mark.parametrize(
    ("wrap", "reason"),
    [
        (nn.utils.parametrizations.weight_norm, "ParametrizedLinear"),
        (nn.utils.spectral_norm, "computed by a hook"),
    ],
    ids=["parametrization", "hook"],
)
def test_a_layer_with_a_computed_weight_is_left_alone(wrap, reason):
    model = nn.Sequential(wrap(nn.Linear(8, 8)), nn.Linear(8, 8))
    wrapped = model[0]
    summary = sparsify_(model, HALF)
    assert model[0] is wrapped
    assert [name for name, _ in summary.left_dense] == ["0"]
    assert reason in summary.left_dense[0][1]


def test_a_subclass_of_linear_is_left_alone_because_its_behaviour_would_be_lost():
    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = nn.Sequential(Doubled(8, 8), nn.Linear(8, 8))
    summary = sparsify_(model, HALF)
    assert type(model[0]) is Doubled
    assert "Doubled" in dict(summary.left_dense)["0"]


def test_filter_fn_sees_every_layer_with_its_name_and_decides():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8)), nn.Conv2d(8, 8, 1))
    layers = {"0": model[0], "1.0": model[1][0], "2": model[2]}
    seen = {}

    def only_the_nested(module: nn.Module, name: str) -> bool:
        seen[name] = module
        return name == "1.0"

    summary = sparsify_(model, HALF, filter_fn=only_the_nested)
    assert seen == layers
    assert [layer.name for layer in summary.sparse] == ["1.0"]
    assert dict(summary.left_dense) == {"0": "filter_fn leaves it out", "2": "filter_fn leaves it out"}
    assert model[0] is layers["0"]


def test_filter_fn_cannot_force_a_grouped_convolution():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=2), nn.Linear(8, 8))
    summary = sparsify_(model, HALF, filter_fn=lambda module, name: True)
    assert type(model[0]) is nn.Conv2d
    assert dict(summary.left_dense) == {"0": "a grouped convolution (groups=2)"}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_training_mode_and_requires_grad_stay_as_they_were(training):
    model = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(8, 8, 1)).train(training)
    model[0].weight.requires_grad_(False)
    model[1].bias.requires_grad_(False)
    sparsify_(model, HALF)
    assert [layer.training for layer in model] == [training, training]
    assert [layer.weight.requires_grad for layer in model] == [False, True]
    assert [layer.bias.requires_grad for layer in model] == [True, False]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_a_model_of_another_dtype_keeps_it(dtype):
    model = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(8, 8, 1)).to(dtype)
    sparsify_(model, HALF)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_the_summary_and_weight_sparsity_say_what_is_stored():
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3))
    assert weight_sparsity(model) == 0.0
    summary = sparsify_(model, BlockSparsity(sparsity=0.75, block=4, rescale=False))
    (fc,) = summary.sparse
    assert (fc.name, fc.present_blocks, fc.block_count, fc.weights) == ("0", 2, 8, 128)
    assert summary.sparsity == 0.75
    assert weight_sparsity(model) == pytest.approx(1 - (32 + 48) / (128 + 48))
    assert str(summary).splitlines() == [
        "0: 2 of 8 blocks (75.0% sparse)",
        "1: dense, its 3 x 16 outputs x inputs are thinner than a 4 x 4 block",
        "48 of 176 weights (27.3%) are in dense layers",
    ]


def test_printing_a_model_shows_blocks_and_density():
    model = nn.Sequential(nn.Linear(8, 16), nn.Conv2d(8, 8, 3, stride=2, padding=1))
    sparsify_(model, HALF)
    assert "in_features=8, out_features=16, block=4x4, blocks=4/8, bias=True" in repr(model)
    assert "8, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), block=4x4, blocks=18/36" in repr(model)


def test_a_layer_with_hooks_is_left_dense_because_they_would_be_lost():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    model[0].register_forward_hook(lambda module, args, output: None)
    summary = sparsify_(model, BlockSparsity(0.5, block=4))
    assert summary.left_dense == (("0", "it has hooks, which its sparse successor would lose"),)
    assert type(model[0]) is nn.Linear
