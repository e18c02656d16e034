"""Telling a freshly initialised weight from a trained one by the spectrum of its matrix."""

from collections.abc import Iterable
from math import sqrt

import torch
from torch import Tensor

POWER_ITERATIONS = 12
"""Products with the matrix and its transpose; few will do, as what training adds stands well above the rest."""

EDGE_WIDTHS = 5.0
"""Tracy-Widom widths above the edge of the spectrum that a random matrix stays below but for about one in 40,000."""


def are_fresh(matrices: Iterable[Tensor]) -> bool:
    """Whether all the weights ``[out, in]`` of a model look as they were drawn; one trained layer is enough for no.

    Layers of a network learn at very different rates, so a layer without a trace of training may be a trained one.
    """
    return all(is_fresh(matrix) for matrix in matrices)


@torch.no_grad()
def is_fresh(matrix: Tensor) -> bool:
    """Whether ``matrix [out, in]`` has no singular value above those of independent random weights.

    Independent weights of mean square s have singular values up to sqrt(s) * (sqrt(out) + sqrt(in)), the
    Marchenko-Pastur edge, whatever their distribution; orthogonal ones stay below. Gradients add few directions with
    much of the signal, whose singular values leave this range. Ten optimizer steps do not show yet, and some layers do
    not show a hundred.
    """
    if matrix.is_meta:
        return False
    values = matrix.float()
    mean_square = float(values.square().mean())
    if mean_square == 0.0:
        return True
    rows, cols = (sqrt(size) for size in values.shape)
    edge, width = (rows + cols) ** 2, (rows + cols) * (1.0 / rows + 1.0 / cols) ** (1.0 / 3.0)
    return bool(_largest_square(values) / mean_square < edge + EDGE_WIDTHS * width)


def _largest_square(matrix: Tensor) -> float:
    """The square of the largest singular value, from below, by power iteration."""
    random = torch.Generator().manual_seed(0)
    vector = torch.randn(matrix.shape[1], generator=random).to(matrix.device)
    for _ in range(POWER_ITERATIONS):
        vector = torch.nn.functional.normalize(matrix.T @ (matrix @ vector), dim=0)
    return float((matrix @ vector).square().sum())
