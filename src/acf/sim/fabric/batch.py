"""Batches of small independent products, such as those of attention, as one product over the whole fabric.

The left operands stand on the diagonal of one matrix, the right operands below each other. Tiles off the diagonal have
no non-zero, so they are never sent, and the clusters work on many products at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from acf.lowering import Gemm

GROUP, LARGEST_GROUP = 64, 256
"""Products side by side: with 64 of 32 x 64 x 32, `acf-512` multiplies in 89 % of its slots; with one, in 11 %. Larger
meshes take as many as they have clusters, up to the largest group: the matrix of a group grows with its square."""


def group_size(clusters: int) -> int:
    """Products that a mesh of so many clusters runs side by side.

    >>> group_size(16), group_size(256), group_size(1024)
    (64, 256, 256)
    """
    return min(max(GROUP, clusters), LARGEST_GROUP)


def groups(gemms: Iterable[Gemm], size: int = GROUP) -> Iterator[list[Gemm]]:
    """At most ``size`` products at a time."""
    remaining = iter(gemms)
    while group := list(islice(remaining, size)):
        yield group


def block_diagonal(group: Sequence[Gemm]) -> Gemm:
    """A group of products of one shape as one product."""
    first = group[0]
    left = np.zeros((len(group) * first.m, len(group) * first.k), dtype=bool)
    for place, gemm in enumerate(group):
        left[place * first.m : (place + 1) * first.m, place * first.k : (place + 1) * first.k] = gemm.a
    right = np.concatenate([gemm.b for gemm in group])
    return Gemm(left, right, phase=first.phase, transposed=first.transposed, weighted=first.weighted)


def pattern(group: Sequence[Gemm]) -> tuple[int | bytes, ...]:
    """Equal for groups that take the same time: shapes and zero patterns."""
    different = {id(gemm): gemm for gemm in group}
    order = np.array([list(different).index(id(gemm)) for gemm in group])
    words = b"".join(rows.words.tobytes() for gemm in different.values() for rows in (gemm.left, gemm.right))
    return len(group), group[0].m, group[0].k, group[0].n, order.tobytes(), words
