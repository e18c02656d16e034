"""Which of cuSPARSELt's algorithms multiplies: the one that the library's own search finds fastest for the shape.

The search multiplies with every algorithm once, on the first product of a shape. Algorithm 0, the library's default,
serves where nothing can be timed: while a CUDA graph is being captured, and with ``ACF_AUTOTUNE=0``.
"""

import os

import torch
from torch import Tensor

DEFAULT = 0
_FOUND: dict[tuple[object, ...], int] = {}


def cusparselt_algorithm(packed: Tensor, x: Tensor) -> int:
    """The algorithm for ``x [tokens, cols]`` times a compressed weight; token counts share one per power of two."""
    key = (packed.device, packed.dtype, packed.shape, x.shape[0].bit_length())
    algorithm = _FOUND.get(key)
    if algorithm is not None:
        return algorithm
    if os.environ.get("ACF_AUTOTUNE", "1") == "0" or torch.cuda.is_current_stream_capturing():
        return DEFAULT
    try:
        algorithm = int(torch._cslt_sparse_mm_search(packed, x.T, transpose_result=True))
    except RuntimeError:  # a library without the search multiplies all the same
        algorithm = DEFAULT
    _FOUND[key] = algorithm
    return algorithm
