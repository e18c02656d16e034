"""The libraries of 2:4 products behind one interface: compress a weight, multiply by a compressed weight.

A compressed weight is one tensor ``[rows, 9/16 cols]`` in the weight's dtype: half of the values, and two bits of index
for each. Only the library that wrote it can read it.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from acf.ops.semi_structured.algorithms import cusparselt_algorithm

TOKEN_MULTIPLE = 8  # 16 bytes of a 16-bit type: what the libraries take as the size of a dense operand


class Library(NamedTuple):
    """``compress`` takes a contiguous 2:4 weight ``[rows, cols]`` with zeros where it is pruned.

    ``multiply(x, packed)`` is ``x [tokens, cols] @ weight.T``, contiguous ``[tokens, rows]``; ``x`` is contiguous and
    its tokens a multiple of `TOKEN_MULTIPLE`.
    """

    compress: Callable[[Tensor], Tensor]
    multiply: Callable[[Tensor, Tensor], Tensor]


def packed_columns(columns: int) -> int:
    """Columns of a compressed weight of ``columns``.

    >>> packed_columns(128)
    72
    """
    return columns * 9 // 16


def multiply(library: str, x: Tensor, packed: Tensor) -> Tensor:
    """``x [tokens, cols]`` times the transpose of a compressed weight: contiguous ``[tokens, rows]``."""
    tokens = x.shape[0]
    if tokens == 0:
        return x.new_empty(0, packed.shape[0])
    padding = -tokens % TOKEN_MULTIPLE
    operand = torch.nn.functional.pad(x, (0, 0, 0, padding)) if padding else x.contiguous()
    y = LIBRARIES[library].multiply(operand, packed)
    return y[:tokens].clone() if padding else y


def _cusparselt_multiply(x: Tensor, packed: Tensor) -> Tensor:
    # The weight is the library's left operand and the result is stored column-major: [tokens, rows] in memory.
    algorithm = cusparselt_algorithm(packed, x)
    return torch._cslt_sparse_mm(packed, x.T, transpose_result=True, alg_id=algorithm)


def cutlass_compress(pruned: Tensor) -> Tensor:
    """Values, then metadata in CUTLASS's order, as one tensor."""
    from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

    values, metadata = sparse_semi_structured_from_dense_cutlass(pruned)  # type: ignore[no-untyped-call]
    flat = torch.cat((values.reshape(-1), metadata.reshape(-1).view(pruned.dtype)))
    return flat.view(pruned.shape[0], -1)


def cutlass_parts(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Values ``[rows, cols / 2]`` and int16 metadata ``[rows, cols / 16]`` of a weight of `cutlass_compress`."""
    rows, values = packed.shape[0], packed.numel() * 8 // 9
    flat = packed.view(-1)
    return flat[:values].view(rows, -1), flat[values:].view(torch.int16).view(rows, -1)


def _cutlass_multiply(x: Tensor, packed: Tensor) -> Tensor:
    return torch._sparse_semi_structured_mm(*cutlass_parts(packed), x.T).T.contiguous()


LIBRARIES = {
    "cusparselt": Library(torch._cslt_compress, _cusparselt_multiply),
    "cutlass": Library(cutlass_compress, _cutlass_multiply),
}
"""The libraries by the names of `acf.ops.semi_structured.choice.LIMITS`."""
