"""Computing the block-sparse ops through dense products, for runs that do not measure speed.

With small blocks or narrow layers the dense library beats every sparse kernel. `dense_products` makes the ops of this
process unpack their weights and gather the gradients of present blocks. Layers, parameters and optimizer state are
those of a sparse run, so accuracy can be measured at dense speed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from acf.ops.geometry import Conv2dGeometry
from acf.ops.reference import dense_conv2d_weight_grad
from acf.sparse import BlockLayout, conv_weight_to_matrix


class _Choice:
    """One choice for the whole process: autograd runs backward passes in threads of its own."""

    dense = False


@contextmanager
def dense_products() -> Iterator[None]:
    """Within it every block-sparse op of this process, compiled or not, computes through dense products."""
    before, _Choice.dense = _Choice.dense, True
    try:
        yield
    finally:
        _Choice.dense = before


def dense_chosen() -> bool:
    """Whether `dense_products` is active."""
    return _Choice.dense


def linear_gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    """`reference.gradient_norms` from the whole dense gradient: faster, and larger in memory."""
    return _norms_of(output_grad.T @ x, candidate_rows, candidate_cols, block_shape)


def conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: list[int],
    geometry: Conv2dGeometry,
) -> Tensor:
    """`reference.conv2d_gradient_norms` from the whole dense gradient."""
    gradient = conv_weight_to_matrix(dense_conv2d_weight_grad(output_grad, x, geometry))
    return _norms_of(gradient, candidate_rows, candidate_cols, block_shape)


def _norms_of(gradient: Tensor, rows: Tensor, cols: Tensor, block_shape: list[int]) -> Tensor:
    height, width = block_shape
    norms = BlockLayout(gradient.shape[0], gradient.shape[1], height, width).block_norms(gradient)
    return norms[rows.long(), cols.long()]
