"""Torch's own transformer modules, whose fused inference path reads raw weights, after `sparsify_`."""

import pytest
import torch
from torch import nn

from acf.nn import BlockSparseLinear, BlockSparsity, densify_, sparsify_

HALF = BlockSparsity(sparsity=0.5, block=8, rescale=False)


@pytest.fixture
def slow_path():
    """Torch's fused inference path is off while a test asks for the expected values."""

    def compute(module: nn.Module, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.inference_mode():
                return module(*args, **kwargs)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)

    return compute


def encoder_layer(**settings) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, batch_first=True, **settings).eval()


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_inference_after_sparsify_gives_what_the_slow_path_of_the_masked_layer_gives(
    activation, norm_first, slow_path, masked_dense
):
    layer = encoder_layer(activation=activation, norm_first=norm_first)
    dense = encoder_layer(activation=activation, norm_first=norm_first)
    dense.load_state_dict(layer.state_dict())
    sparsify_(layer, HALF)
    x = torch.randn(3, 5, 16)
    with torch.inference_mode():
        y = layer(x)
    torch.testing.assert_close(y, slow_path(masked_dense(dense, layer), x))


@pytest.mark.parametrize(
    "activation",
    ["relu", "gelu", nn.ReLU(), nn.GELU(), nn.functional.silu],
    ids=["relu", "gelu", "ReLU()", "GELU()", "silu"],
)
def test_densify_restores_the_flag_of_the_fast_path_and_the_outputs(activation):
    layer = encoder_layer(activation=activation)
    flag = layer.activation_relu_or_gelu
    sparsify_(layer, HALF)
    assert layer.activation_relu_or_gelu == 0
    x = torch.randn(3, 5, 16)
    with torch.inference_mode():
        expected = layer(x)
        densify_(layer)
        assert layer.activation_relu_or_gelu == flag
        torch.testing.assert_close(layer(x), expected)


def test_a_layer_whose_linears_are_left_out_keeps_its_fast_path():
    model = nn.Sequential(encoder_layer(), nn.Linear(16, 16))
    sparsify_(model, HALF, filter_fn=lambda module, name: name == "1")
    assert model[0].activation_relu_or_gelu == 1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_an_encoder_with_a_padding_mask_infers_after_sparsify_as_before_on_the_slow_path(slow_path, masked_dense):
    encoder = nn.TransformerEncoder(encoder_layer(), num_layers=2).eval()
    dense = nn.TransformerEncoder(encoder_layer(), num_layers=2).eval()
    dense.load_state_dict(encoder.state_dict())
    sparsify_(encoder, HALF)
    x, padding = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    with torch.inference_mode():
        y = encoder(x, src_key_padding_mask=padding)
    expected = slow_path(masked_dense(dense, encoder), x, src_key_padding_mask=padding)
    torch.testing.assert_close(y[~padding], expected[~padding])


def test_densify_gives_an_encoder_its_nested_tensors_back():
    encoder = nn.TransformerEncoder(encoder_layer(), num_layers=1).eval()
    sparsify_(encoder, HALF)
    densify_(encoder)
    assert encoder.use_nested_tensor


def test_a_second_round_of_sparsify_and_densify_ends_with_the_fast_path_on_again():
    encoder = nn.TransformerEncoder(encoder_layer(), num_layers=1).eval()
    for _ in range(2):
        sparsify_(encoder, HALF)
        assert (encoder.use_nested_tensor, encoder.layers[0].activation_relu_or_gelu) == (False, 0)
        densify_(encoder)
        assert (encoder.use_nested_tensor, encoder.layers[0].activation_relu_or_gelu) == (True, 1)


def test_the_projections_of_multihead_attention_are_left_alone_and_listed():
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    model = nn.ModuleDict({"attention": attention, "feedforward": nn.Linear(16, 16)})
    projection, in_projection = attention.out_proj, attention.in_proj_weight
    summary = sparsify_(model, HALF)
    assert attention.out_proj is projection
    assert attention.in_proj_weight is in_projection
    assert isinstance(model["feedforward"], BlockSparseLinear)
    assert [name for name, _ in summary.left_dense] == ["attention.out_proj", "attention.in_proj_weight"]
    assert "NonDynamicallyQuantizableLinear" in dict(summary.left_dense)["attention.out_proj"]


def test_a_sparse_encoder_layer_trains():
    layer = encoder_layer().train()
    sparsify_(layer, HALF)
    layer(torch.randn(3, 5, 16)).square().sum().backward()
    assert layer.linear1.weight.grad.ne(0).any()
    assert layer.linear2.weight.grad.ne(0).any()
