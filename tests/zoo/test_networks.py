"""The networks: as many parameters as published, and gradients for all of them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.zoo.networks import MODELS, SMALL_NETWORKS

PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "squeezenet": 1_235_496,
    "googlenet": 13_004_888,  # with both auxiliary heads
    "resnet50": 25_557_032,
    "vit-b16": 86_567_656,
    "bert-base": 109_483_778,  # 109,482,240 of the encoder and its pooler, 1,538 of a two-class head
    "ncf": 392_601,  # NeuMF over 6,040 users and 3,706 items, 8 factors
}
OUTPUTS = dict.fromkeys(MODELS, (2, 1000)) | {"bert-base": (2, 2), "ncf": (2,)}


def tiny_input(name: str) -> Tensor:
    if name == "bert-base":
        return torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]])
    if name == "ncf":
        return torch.tensor([[1, 2], [3, 4]])
    return torch.rand(2, 3, 64, 64)


@pytest.mark.parametrize("name", MODELS)
def test_a_network_has_its_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name]()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", MODELS)
def test_one_backward_pass_reaches_every_parameter(name: str) -> None:
    with torch.device("meta"):
        model, inputs = MODELS[name](), tiny_input(name).to("meta")
        heads = model(inputs)
        heads = heads if isinstance(heads, tuple) else (heads,)
        sum(scores.sum() for scores in heads).backward()
    assert {tuple(scores.shape) for scores in heads} == {OUTPUTS[name]}
    assert [label for label, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(("name", "convolutions"), [("vgg16", 14_714_688), ("vgg16-bn", 14_714_688 + 2 * 4224)])
def test_a_small_vgg_has_the_convolutions_of_the_large_one(name: str, convolutions: int) -> None:
    with torch.device("meta"):
        model = SMALL_NETWORKS[name]()
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    parameters = {label: parameter.numel() for label, parameter in model.named_parameters()}
    assert sum(size for label, size in parameters.items() if label.startswith("features")) == convolutions


def test_the_reference_names_every_network() -> None:
    reference = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    assert [name for name in [*MODELS, *SMALL_NETWORKS] if name not in reference] == []


@pytest.mark.parametrize("name", ["squeezenet", "ncf"])
def test_every_layer_with_weights_is_in_the_trace(name: str) -> None:
    model = MODELS[name]()
    with acf.capture(model, name) as trace:
        model(tiny_input(name)).sum().backward()
    layers = [label for label, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert {op.name for op in trace.ops} == set(layers)


def test_vit_takes_images_of_its_own_size_and_of_others() -> None:
    with torch.device("meta"):
        model = MODELS["vit-b16"]()
        assert model(torch.rand(1, 3, 224, 224)).shape == model(torch.rand(1, 3, 96, 64)).shape == (1, 1000)
