"""What N:M training saves on whole networks: the figures of seed 001."""

import pytest

import acf.sim
from acf.errors import AcfError
from acf.reproduce.nm_training import dense_training, training_cycles, training_operations
from acf.zoo.shapes import NETWORK_SHAPES, LayerShape

SAT = acf.sim.spec("sat")
DENSE = dense_training(SAT)


@pytest.mark.parametrize(
    ("name", "parameters", "not_weights"),
    [
        ("resnet50", 25_557_032, 53_120 + 1_000),  # batch norms, bias of the classifier
        ("vgg16", 138_357_544, 4_224 + 9_192),  # biases of convolutions and linear layers
        ("vit-base", 86_567_656, 768 + 12 * (4 * 768 + 6_912) + 1_536 + 1_000 + 768 + 197 * 768),
    ],
)
def test_the_shapes_have_the_weights_of_the_networks(name: str, parameters: int, not_weights: int) -> None:
    layers = [layer for layer in NETWORK_SHAPES[name]() if isinstance(layer, LayerShape)]
    assert sum(layer.weights for layer in layers) == parameters - not_weights


@pytest.mark.parametrize("name", NETWORK_SHAPES)
def test_two_of_eight_weights_save_nearly_half_of_the_operations(name: str) -> None:
    network = NETWORK_SHAPES[name]()
    saved = 1 - training_operations(network, SAT) / training_operations(network, DENSE)
    assert 0.47 <= saved <= 0.50  # B1: FF and BP at 2/8, weight gradients, stems and attention dense


def test_training_is_faster_by_the_published_average_and_never_beyond_the_bound() -> None:
    speedups = [
        training_cycles(shape(), 32, DENSE) / training_cycles(shape(), 32, SAT) for shape in NETWORK_SHAPES.values()
    ]
    assert 1.6 <= sum(speedups) / len(speedups) <= 1.95  # B2: 1.75 in the paper
    assert max(speedups) <= 2.0  # two of three passes at a quarter


def test_a_step_of_no_examples_is_refused() -> None:
    with pytest.raises(AcfError, match="batch 0 is below 1"):
        training_cycles(NETWORK_SHAPES["vgg16"](), 0, SAT)
