"""Three layers for runs from memory to memory: a linear layer, a 3x3 convolution, and an input gradient."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.workloads import LayerSizes

Values = NDArray[np.float64]


def linear(sizes: LayerSizes, tile: int) -> Product:
    """The forward pass of the linear layer: ``[tokens, features] @ [features, features]``."""
    rng = np.random.default_rng(sizes.seed)
    a = _with_zeros(rng, (sizes.tokens, sizes.features), sizes.zeros)
    return _product(a, _weight(rng, sizes.features, sizes.features, sizes.sparsity, tile))


def input_gradient(sizes: LayerSizes, tile: int) -> Product:
    """The input gradient of the linear layer: its output's gradient times the transposed weight."""
    rng = np.random.default_rng(sizes.seed)
    _with_zeros(rng, (sizes.tokens, sizes.features), sizes.zeros)  # the activations that `linear` draws first
    weight = _weight(rng, sizes.features, sizes.features, sizes.sparsity, tile)
    return _product(rng.standard_normal((sizes.tokens, sizes.features)), np.ascontiguousarray(weight.T))


def convolution(sizes: LayerSizes, tile: int) -> Product:
    """The forward pass of the convolution: im2col ``[pixels, 9 * channels]``, channels innermost, times the weight."""
    rng = np.random.default_rng(sizes.seed)
    maps = _with_zeros(rng, (sizes.images, sizes.side, sizes.side, sizes.channels), sizes.zeros)
    padded = np.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [padded[:, row : row + sizes.side, col : col + sizes.side] for row in range(3) for col in range(3)]
    a = np.concatenate(taps, axis=3).reshape(-1, 9 * sizes.channels)
    return _product(a, _weight(rng, 9 * sizes.channels, sizes.channels, sizes.sparsity, tile))


LAYERS: dict[str, Callable[[LayerSizes, int], Product]] = {
    "linear": linear,
    "convolution": convolution,
    "input gradient": input_gradient,
}
"""The layers by name."""


def _with_zeros(rng: np.random.Generator, shape: tuple[int, ...], zeros: float) -> Values:
    return rng.standard_normal(shape) * (rng.random(shape) >= zeros)


def _weight(rng: np.random.Generator, inputs: int, outputs: int, sparsity: float, tile: int) -> Values:
    """Random weights ``[inputs, outputs]`` with that share of blocks absent, to the nearest block."""
    rows, columns = -(-inputs // tile), -(-outputs // tile)
    kept = np.zeros(rows * columns, dtype=bool)
    kept[rng.permutation(kept.size)[: round(kept.size * (1 - sparsity))]] = True
    present = np.kron(kept.reshape(rows, columns), np.ones((tile, tile)))[:inputs, :outputs]
    return rng.standard_normal((inputs, outputs)) * present


def _product(a: Values, b: Values) -> Product:
    return Product(bf16_bits(a), bf16_bits(b))
