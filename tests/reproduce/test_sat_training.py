"""What N:M training saves on whole networks: the figures of seed 001."""

import pytest

import acf.sim
from acf.errors import AcfError
from acf.reproduce.sat import SAT_NETWORKS
from acf.reproduce.sat_training import dense_training, training_cycles, training_operations
from acf.zoo.shapes import AttentionShape, NetworkShapes, network_shapes

SAT = acf.sim.spec("sat")
DENSE = dense_training(SAT)


@pytest.mark.parametrize("name", SAT_NETWORKS)
def test_two_of_eight_weights_save_nearly_half_of_the_operations(name: str) -> None:
    network = network_shapes(name)
    saved = 1 - training_operations(network, SAT) / training_operations(network, DENSE)
    assert 0.47 <= saved <= 0.50  # B1: FF and BP at 2/8, weight gradients, stems and attention dense


def test_training_is_faster_by_the_published_average_and_never_beyond_the_bound() -> None:
    speedups = [
        training_cycles(shapes, 32, DENSE) / training_cycles(shapes, 32, SAT)
        for shapes in map(network_shapes, SAT_NETWORKS)
    ]
    assert 1.6 <= sum(speedups) / len(speedups) <= 1.95  # B2: 1.75 in the paper
    assert max(speedups) <= 2.0  # two of three passes at a quarter


def test_a_step_of_no_examples_is_refused() -> None:
    with pytest.raises(AcfError, match="batch 0 is below 1"):
        training_cycles(network_shapes("vgg16"), 0, SAT)


def test_all_six_products_of_attention_multiply_queries_keys_and_channels() -> None:
    cross = NetworkShapes((), (AttentionShape("cross", heads=3, queries=5, keys=7, head_channels=4),))
    assert training_operations(cross, SAT) == 6 * 3 * 5 * 7 * 4
