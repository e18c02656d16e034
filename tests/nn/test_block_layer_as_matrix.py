"""Code that takes the packed weight of a sparse layer for a matrix is refused, or served a matrix."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from acf.errors import TopologyError
from acf.nn import BlockSparsity, NMSparsity, densify_, sparsify_

HALF = BlockSparsity(sparsity=0.5, block=4)


def sparse_linear(spec: object = HALF) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, spec)
    return model


def test_fusing_a_batch_normalisation_into_a_sparse_convolution_is_refused_and_after_densify_it_is_right():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=2))
    model(torch.randn(8, 8, 4, 4))
    model.eval()
    assert model[0].weight.shape[0] == 8  # as many blocks as channels, so shapes alone would not refuse it
    with pytest.raises(TopologyError, match=r"weight of a BlockSparseConv2d cannot be replaced.*densify_ the model"):
        fuse_conv_bn_eval(*model)
    x = torch.randn(2, 8, 4, 4)
    expected = model(x)
    densify_(model)
    torch.testing.assert_close(fuse_conv_bn_eval(*model)(x), expected)


@pytest.mark.parametrize("norm", ["spectral_norm", "weight_norm"])
def test_a_parametrization_of_a_packed_weight_is_refused_and_changes_nothing(norm):
    model = sparse_linear()
    x = torch.randn(3, 16)
    expected = model(x)
    with pytest.raises(TopologyError, match="weight of a BlockSparseLinear cannot be replaced"):
        getattr(nn.utils.parametrizations, norm)(model[0])
    assert torch.equal(model(x), expected)


def test_tying_the_packed_weights_of_two_topologies_is_refused():
    first, second = sparse_linear(), sparse_linear()
    with pytest.raises(TopologyError, match="cannot be replaced"):
        first[0].weight = second[0].weight


def test_a_topology_assigned_from_outside_is_refused():
    model = sparse_linear()
    with pytest.raises(TopologyError, match="block_rows of a BlockSparseLinear cannot be replaced"):
        model[0].block_rows = model[0].block_rows.flip(0)


def test_a_packed_weight_that_a_sum_has_broadcast_is_refused_at_the_next_forward_pass():
    model = sparse_linear(BlockSparsity(sparsity=0.5, block=1))
    model[0].weight.data = model[0].weight.data + torch.randn(16, 16)
    with pytest.raises(TopologyError, match=r"packed weight is \[128, 16, 16\], this layer packs \[128, 1, 1\]"):
        model(torch.randn(3, 16))


def test_the_packed_weight_as_a_matrix_of_a_product_is_an_error():
    model = sparse_linear()
    with pytest.raises(RuntimeError):
        nn.functional.linear(torch.randn(3, 4), model[0].weight)


@pytest.mark.parametrize("spec", [BlockSparsity(sparsity=0.5, block=4), NMSparsity(2, 8), NMSparsity(2, 8, "sr-ste")])
def test_the_weight_matrix_of_every_sparse_layer_computes_what_the_layer_does_and_has_a_gradient(spec):
    layer = sparse_linear(spec)[0]
    x = torch.randn(3, 16)
    matrix = layer.weight_matrix()
    torch.testing.assert_close(nn.functional.linear(x, matrix, layer.bias), layer(x))
    matrix.sum().backward()
    assert layer.weight.grad is not None


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("block", [4, 1, (1, 16), (16, 1)])
def test_merging_an_adapter_of_peft_into_a_sparse_layer_is_an_error_and_after_densify_it_is_right(block):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    torch.manual_seed(0)
    config = peft.LoraConfig(target_modules=["0"], r=4, init_lora_weights=False)
    model = peft.get_peft_model(nn.Sequential(nn.Linear(16, 16)), config).eval()
    summary = sparsify_(model, BlockSparsity(sparsity=0.5, block=block))
    assert [layer.name.rpartition(".")[2] for layer in summary.sparse] == ["base_layer"]
    x = torch.randn(3, 16)
    expected = model(x)
    with pytest.raises(RuntimeError):
        copy.deepcopy(model).merge_and_unload()
    densify_(model)
    torch.testing.assert_close(model.merge_and_unload()(x), expected)


def test_the_adapters_that_peft_puts_beside_a_layer_stay_dense():
    class TunerLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_layer = nn.Linear(16, 16)
            self.lora_A = nn.ModuleDict({"default": nn.Linear(16, 4, bias=False)})
            self.lora_B = nn.ModuleDict({"default": nn.Linear(4, 16, bias=False)})

    TunerLayer.__module__ = "peft.tuners.lora.layer"
    summary = sparsify_(nn.Sequential(TunerLayer()), BlockSparsity(sparsity=0.5, block=4))
    assert [layer.name for layer in summary.sparse] == ["0.base_layer"]
    reason = "an adapter of peft, which multiplies its weight as a matrix"
    assert dict(summary.left_dense) == {"0.lora_A.default": reason, "0.lora_B.default": reason}
