"""Computing the block-sparse ops through dense products, for runs whose subject is not speed.

Where blocks are small or layers thin, the dense library beats every sparse kernel. `dense_products` makes the ops of
this process take that path: weights are unpacked, gradients of present blocks gathered. The layers, their parameters
and what the optimizer sees are the same, so accuracy can be measured at dense speed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.nn import grad as conv_grad

from acf.sparse import BlockLayout, conv_weight_to_matrix


class _Choice:
    """For the whole process: backward passes run in threads of their own."""

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
    """Whether the ops are to leave their sparse kernels alone."""
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
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    """`reference.conv2d_gradient_norms` from the whole dense gradient."""
    shape = [output_grad.shape[1], x.shape[1], *kernel_size]
    gradient = conv_grad.conv2d_weight(x, shape, output_grad, stride, padding, dilation)  # type: ignore[no-untyped-call]
    return _norms_of(conv_weight_to_matrix(gradient), candidate_rows, candidate_cols, block_shape)


def _norms_of(gradient: Tensor, rows: Tensor, cols: Tensor, block_shape: list[int]) -> Tensor:
    height, width = block_shape
    norms = BlockLayout(gradient.shape[0], gradient.shape[1], height, width).block_norms(gradient)
    return norms[rows.long(), cols.long()]
