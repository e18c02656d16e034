"""Torch's own transformer modules, whose fused inference path reads raw weights, after `sparsify_`."""

import pytest
import torch
from torch import nn

from acf.nn import BlockSparseMultiheadAttention, BlockSparsity, densify_, sparsify_

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


def attention_alone(module: nn.Module, name: str) -> bool:
    """Take the projections of attention and leave the feed-forward layers dense."""
    return "attn" in name


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True, but self.use_nested_tensor is False")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_sparse_attention_alone_keeps_an_encoder_off_the_fused_path_and_densify_brings_it_back(padded, slow_path):
    encoder = nn.TransformerEncoder(encoder_layer(), num_layers=2).eval()
    sparsify_(encoder, HALF, attention_alone)
    assert type(encoder.layers[0].self_attn) is BlockSparseMultiheadAttention
    assert type(encoder.layers[0].linear1) is nn.Linear
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    x, named = torch.randn(3, 5, 16), {"src_key_padding_mask": padding} if padded else {}
    with torch.no_grad():
        y = encoder(x, **named)
    densify_(encoder)
    assert type(encoder.layers[0].self_attn) is nn.MultiheadAttention
    assert (encoder.use_nested_tensor, encoder.layers[0].activation_relu_or_gelu) == (True, 1)
    seen = ~padding if padded else torch.ones_like(padding)
    torch.testing.assert_close(y[seen], slow_path(encoder, x, **named)[seen])
    with torch.no_grad():  # the fused path, with nested tensors where there is padding
        torch.testing.assert_close(y[seen], encoder(x, **named)[seen])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True, but self.use_nested_tensor is False")
def test_an_encoder_made_of_a_sparse_layer_takes_no_nested_tensors():
    layer = encoder_layer()
    sparsify_(layer, HALF)
    encoder = nn.TransformerEncoder(layer, num_layers=2).eval()
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    with torch.no_grad():
        assert encoder(torch.randn(3, 5, 16), src_key_padding_mask=padding).shape == (3, 5, 16)


def test_a_decoder_layer_has_two_sparse_attentions_and_computes_what_its_dense_form_does():
    layer = nn.TransformerDecoderLayer(16, nhead=2, dim_feedforward=32).eval()
    summary = sparsify_(layer, HALF)
    assert len(summary.sparse) == 10
    assert not summary.left_dense
    target, memory = torch.randn(4, 3, 16), torch.randn(5, 3, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    y = layer(target, memory, tgt_mask=causal, tgt_is_causal=True)
    torch.testing.assert_close(densify_(layer)(target, memory, tgt_mask=causal, tgt_is_causal=True), y)


def test_a_sparse_encoder_layer_trains():
    layer = encoder_layer().train()
    sparsify_(layer, HALF)
    layer(torch.randn(3, 5, 16)).square().sum().backward()
    assert layer.linear1.weight.grad.ne(0).any()
    assert layer.linear2.weight.grad.ne(0).any()
