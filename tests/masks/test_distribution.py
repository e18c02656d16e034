"""How a sparsity ratio is shared out among layers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.errors import SparsityError
from acf.masks import DISTRIBUTIONS, LayerShape, kept_blocks

BLOCK = 16
sizes = st.integers(1, 20).map(lambda blocks: blocks * BLOCK)
linear_shapes = st.tuples(sizes, sizes)
conv_shapes = st.tuples(sizes, sizes, st.sampled_from([1, 3, 5]), st.sampled_from([1, 3]))
models = st.lists(linear_shapes | conv_shapes, min_size=1, max_size=6).map(
    lambda shapes: [layer(f"layer{index}", *shape) for index, shape in enumerate(shapes)]
)
densities = st.floats(0.01, 1.0)


def layer(name: str, *shape: int) -> LayerShape:
    unsized = LayerShape(name, shape, block_count=0)
    return LayerShape(name, shape, unsized.weights // BLOCK**2)


def mean_density(layers: list[LayerShape], shares: list[float]) -> float:
    stored = sum(share * layer.weights for share, layer in zip(shares, layers, strict=True))
    return stored / sum(layer.weights for layer in layers)


@pytest.mark.parametrize("name", ["uniform", "erk"])
@given(layers=models, density=densities)
def test_the_mean_density_weighted_by_layer_size_is_the_target(name, layers, density):
    shares = DISTRIBUTIONS[name](layers, density)
    assert mean_density(layers, shares) == pytest.approx(density, rel=1e-9)


@pytest.mark.parametrize("name", ["uniform", "erk"])
@given(layers=models, density=densities)
def test_no_layer_is_denser_than_dense_or_emptier_than_empty(name, layers, density):
    assert all(0.0 < share <= 1.0 for share in DISTRIBUTIONS[name](layers, density))


@given(layers=models, density=densities)
def test_uniform_gives_every_layer_the_target(layers, density):
    assert DISTRIBUTIONS["uniform"](layers, density) == [density] * len(layers)


@given(layers=models, density=densities)
def test_erk_keeps_the_layers_that_are_thin_for_their_size_denser(layers, density):
    shares = DISTRIBUTIONS["erk"](layers, density)
    thinness = [sum(layer.weight_shape) / layer.weights for layer in layers]
    order = sorted(range(len(layers)), key=thinness.__getitem__)
    assert all(shares[a] <= shares[b] for a, b in pairwise(order))


def test_erk_of_two_layers_is_what_the_formula_gives_by_hand():
    # Shares are (64+64)/4096 = 1/32 and (16+64)/1024 = 5/64, times a scale c with
    # c (1/32 * 4096 + 5/64 * 1024) = 0.1 * 5120, so c = 512/208 = 32/13.
    layers = [layer("square", 64, 64), layer("thin", 16, 64)]
    assert DISTRIBUTIONS["erk"](layers, 0.1) == pytest.approx([1 / 13, 5 / 26])


def test_erk_counts_the_sides_of_a_convolution_kernel():
    # Shares are (32+32+3+3)/9216 and (32+32)/1024, and c (70 + 64) = 0.05 * 10240, so c = 512/134.
    layers = [layer("conv", 32, 32, 3, 3), layer("linear", 32, 32)]
    assert DISTRIBUTIONS["erk"](layers, 0.05) == pytest.approx([512 / 134 * 70 / 9216, 512 / 134 * 64 / 1024])


def test_a_layer_that_erk_would_overfill_stays_dense_and_the_rest_absorb_the_difference():
    # At density 0.5 the thin layer's share would be 12.3 * 5/64 = 0.96; at 0.6 it is 1.15, so it is dense and
    # the square one keeps 0.6 * 5120 - 1024 = 2048 of its 4096 weights.
    layers = [layer("square", 64, 64), layer("thin", 16, 64)]
    assert DISTRIBUTIONS["erk"](layers, 0.6) == [pytest.approx(0.5), 1.0]


@pytest.mark.parametrize("name", ["uniform", "erk"])
def test_density_one_is_dense_everywhere(name):
    layers = [layer("square", 64, 64), layer("thin", 16, 64), layer("conv", 32, 32, 3, 3)]
    assert DISTRIBUTIONS[name](layers, 1.0) == pytest.approx([1.0, 1.0, 1.0])
    assert kept_blocks(layers, 0.0, name) == [layer.block_count for layer in layers]


@given(layers=models, sparsity=st.floats(0.0, 0.99))
def test_uniform_keeps_the_ratio_of_every_layer_within_half_a_block_but_never_less_than_one_block(layers, sparsity):
    for kept, shape in zip(kept_blocks(layers, sparsity, "uniform"), layers, strict=True):
        assert kept == 1 or abs(kept - (1.0 - sparsity) * shape.block_count) <= 0.5 + 1e-9
        assert 1 <= kept <= shape.block_count


def test_a_layer_whose_share_rounds_to_nothing_keeps_one_block():
    assert kept_blocks([layer("fc", 64, 64), layer("small", 16, 16)], 0.97, "uniform") == [1, 1]


@given(layers=models, sparsity=st.floats(0.0, 0.99))
def test_erk_keeps_between_one_block_and_all_of_them(layers, sparsity):
    for kept, shape in zip(kept_blocks(layers, sparsity, "erk"), layers, strict=True):
        assert 1 <= kept <= shape.block_count


def test_an_unknown_distribution_is_refused_with_the_names_there_are():
    with pytest.raises(
        SparsityError, match=r"distribution 'erdos' is not one of uniform, erk, balanced, cost; use one of these"
    ):
        kept_blocks([layer("fc", 64, 64)], 0.5, "erdos")
