"""SparTANN on the convolutions of AlexNet and GoogLeNet: traffic, power and savings follow from the shapes."""

from dataclasses import replace

import pytest

import acf
from acf.errors import AcfError
from acf.reproduce.spartann_workloads import alexnet, backward_trace, googlenet
from acf.sim.result import Result

SKIPPING = acf.sim.spec("spartann")
DENSE = replace(SKIPPING, skips_zeros=False)
NETWORKS = {"alexnet": alexnet(), "googlenet": googlenet()}


def played(network: str, density: float) -> tuple[Result, Result]:
    trace = backward_trace(NETWORKS[network], density)
    return acf.simulate(trace, SKIPPING), acf.simulate(trace, DENSE)


@pytest.mark.parametrize(
    ("network", "weights"),
    [
        ("alexnet", 60_965_224 - 58_631_144 - 1_376),  # all parameters less linear layers and biases of convolutions
        ("googlenet", 6_998_552 - 1_025_000 - 7_280),
    ],
)
def test_the_shapes_have_the_weights_of_the_networks(network: str, weights: int) -> None:
    assert sum(layer.weights for layer in NETWORKS[network]) == weights


@pytest.mark.parametrize(
    ("network", "density", "published"),
    [("alexnet", 0.238, 4.20), ("googlenet", 0.113, 8.88), ("alexnet", 0.137, 7.30), ("googlenet", 0.084, 11.87)],
)
def test_borders_of_images_change_the_published_speedups_little(network: str, density: float, published: float) -> None:
    # Windows that reach over the border meet zeros, which the dense machine multiplies: up to 3 % beyond S6.
    skipped, dense = played(network, density)
    assert skipped.speedup_over(dense) == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(
    ("network", "density", "bytes_per_s", "watts"),
    [("alexnet", 0.137, 1.95e9, 0.58), ("googlenet", 0.084, 3.93e9, 0.92)],
)
def test_traffic_and_power_are_near_the_published_estimates(
    network: str, density: float, bytes_per_s: float, watts: float
) -> None:
    # S9 with nothing fed in but shapes and densities. The order of loops is not published, hence the wider margin.
    skipped, _ = played(network, density)
    assert skipped.dram_bytes / skipped.seconds == pytest.approx(bytes_per_s, rel=0.15)
    assert skipped.energy_j / skipped.seconds == pytest.approx(watts, rel=0.15)
    assert skipped.energy_breakdown_j["dram"] > skipped.energy_j / 2  # "more than half of the total power"


@pytest.mark.parametrize(("network", "density"), [("alexnet", 0.137), ("googlenet", 0.084)])
def test_large_networks_save_the_published_share_of_all_energy(network: str, density: float) -> None:
    skipped, dense = played(network, density)
    saved = 1 - skipped.energy_j / dense.energy_j
    assert 0.83 - 0.03 <= saved <= 0.84 + 0.03  # S11
    assert 1 - skipped.dram_bytes / dense.dram_bytes < saved  # DRAM saves less than the chip does


def test_the_first_convolutions_have_their_published_output_sizes() -> None:
    sizes = {name: layers[0].conv.output_map for name, layers in NETWORKS.items() if layers[0].conv}
    assert sizes == {"alexnet": (55, 55), "googlenet": (112, 112)}


def test_only_the_first_convolution_has_no_input_gradient() -> None:
    for layers in NETWORKS.values():
        assert [layer.reads_data for layer in layers] == [True] + [False] * (len(layers) - 1)


def test_every_layer_can_have_a_density_of_its_own() -> None:
    densities = {layer.name: (0.1, 0.9)[place % 2] for place, layer in enumerate(alexnet())}
    trace = backward_trace(alexnet(), densities)
    found = [trace.tensors[f"{place}.gradient"].density for place in range(len(alexnet()))]
    assert found == pytest.approx(list(densities.values()), abs=0.02)


def test_a_density_that_is_no_share_is_refused() -> None:
    with pytest.raises(AcfError, match=r"density 1.5 is not within 0 to 1"):
        backward_trace(alexnet(), 1.5)
