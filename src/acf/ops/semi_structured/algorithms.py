"""Which of cuSPARSELt's algorithms multiplies: the one that the library's own search finds fastest for the shape.

The search multiplies with every algorithm once, on the first product of a shape. Algorithm 0, the library's default,
serves where nothing can or shall be timed (`may_tune`).
"""

import torch
from torch import Tensor

from acf.ops.autotune import may_tune

DEFAULT = 0
_FOUND: dict[tuple[object, ...], int] = {}


def cusparselt_algorithm(packed: Tensor, x: Tensor) -> int:
    """The algorithm for ``x [tokens, cols]`` times a compressed weight; token counts share one per power of two."""
    key = (packed.device, packed.dtype, packed.shape, x.shape[0].bit_length())
    algorithm = _FOUND.get(key)
    if algorithm is not None:
        return algorithm
    if not may_tune():
        return DEFAULT
    try:
        algorithm = int(torch._cslt_sparse_mm_search(packed, x.T, transpose_result=True))
    except RuntimeError:  # a library without the search multiplies all the same
        algorithm = DEFAULT
    _FOUND[key] = algorithm
    return algorithm
