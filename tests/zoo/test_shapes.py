"""Shapes read from the modules: the weights, products and first layers of the published networks."""

import pytest
import torch
from torch import nn

from acf.errors import TraceError
from acf.zoo.networks import NETWORKS
from acf.zoo.shapes import AttentionShape, layer_shapes, network_shapes


@pytest.mark.parametrize(
    ("name", "parameters", "not_weights"),
    [
        ("resnet50", 25_557_032, 53_120 + 1_000),  # batch norms, bias of the classifier
        ("vgg16", 138_357_544, 4_224 + 9_192),  # biases of convolutions and linear layers
        ("vit-b16", 86_567_656, 768 + 12 * (4 * 768 + 6_912) + 1_536 + 1_000 + 768 + 197 * 768),
        ("transformer-base", 63_082_496, 37_000 * 512 + 6 * (6_656 + 9_728)),  # embeddings, biases and norms
    ],
)
def test_the_shapes_have_the_weights_of_the_networks(name: str, parameters: int, not_weights: int) -> None:
    assert sum(layer.weights for layer in network_shapes(name).layers) == parameters - not_weights


@pytest.mark.parametrize(("name", "macs"), [("resnet50", 4_089_184_256), ("vgg16", 15_470_264_320)])
def test_the_shapes_have_the_published_multiply_accumulates(name: str, macs: int) -> None:
    assert sum(layer.macs for layer in network_shapes(name).layers) == macs


@pytest.mark.parametrize("name", NETWORKS)
def test_only_layers_on_data_need_no_input_gradient(name: str) -> None:
    layers = network_shapes(name).layers
    first = [layer.name for layer in layers if layer.reads_data]
    assert first == ([layers[0].name] if layers[0].conv else [])  # embeddings have gradients


def test_attention_is_seen_with_its_queries_and_keys() -> None:
    attentions = {shape.name: shape for shape in network_shapes("transformer-base").attentions}
    assert len(attentions) == 6 + 2 * 6
    assert attentions["decoder.0.cross_attention"] == AttentionShape("decoder.0.cross_attention", 8, 64, 64, 64)
    vit = network_shapes("vit-b16").attentions
    assert {(shape.heads, shape.queries, shape.keys, shape.head_channels) for shape in vit} == {(12, 197, 197, 64)}


def test_a_grouped_strided_convolution_keeps_its_geometry() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(4, 6, (3, 5), stride=2, padding=(1, 2), groups=2))
        (layer,) = layer_shapes(model, torch.ones(1, 4, 9, 8)).layers
    assert layer.conv is not None
    assert (layer.conv.output_map, layer.weight_shape, layer.positions) == ((5, 4), (6, 30), 20)


def test_a_padding_by_name_is_refused() -> None:
    with torch.device("meta"), pytest.raises(TraceError, match="padding 'same' of a convolution is a name"):
        layer_shapes(nn.Conv2d(1, 1, 3, padding="same"), torch.ones(1, 1, 4, 4))


def test_shapes_do_not_depend_on_whether_gradients_are_recorded() -> None:
    with torch.device("meta"), torch.no_grad():
        shapes = layer_shapes(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), torch.ones(1, 3))
    assert [layer.reads_data for layer in shapes.layers] == [True, False]


def test_the_module_is_left_as_it_was() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 2), nn.Dropout()).train()
        layer_shapes(model, torch.ones(1, 3))
    assert model.training
    assert not model[0]._forward_hooks
