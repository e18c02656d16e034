"""Every op in plain torch: the definition that faster kernels are tested against.

Weights are unpacked to a dense matrix first, so these run at the speed of the dense product.
"""

import torch
from torch import Tensor
from torch.nn import grad as conv_grad

from acf.ops.geometry import Conv2dGeometry
from acf.sparse import BlockLayout, BlockTopology, conv_weight_to_matrix, frobenius_norms, matrix_to_conv_weight
from acf.sparse.topology import check_pairs


def layout_of(block_shape: tuple[int, int], topology: BlockTopology) -> BlockLayout:
    """The layout that a topology's offsets and a block shape ``(height, width)`` imply."""
    height, width = block_shape
    return BlockLayout(
        rows=grid_rows(topology) * height,
        cols=grid_cols(topology) * width,
        block_height=height,
        block_width=width,
    )


def unpack(weight: Tensor, topology: BlockTopology) -> Tensor:
    """Packed ``[nnz, block_height, block_width]`` as dense ``[rows, cols]``."""
    check_pairs(topology.block_rows, topology.block_cols)
    layout = layout_of((weight.shape[1], weight.shape[2]), topology)
    return layout.unpack(weight, topology.block_rows, topology.block_cols)


def linear(x: Tensor, weight: Tensor, topology: BlockTopology, bias: Tensor | None = None) -> Tensor:
    """``x [tokens, in]`` times the transposed weight, plus ``bias [out]`` of any dtype: ``[tokens, out]``."""
    y = x @ unpack(weight, topology).T
    return y if bias is None else (y + bias).to(y.dtype)


def linear_input_grad(output_grad: Tensor, weight: Tensor, topology: BlockTopology) -> Tensor:
    """``output_grad [tokens, out]`` times the weight: ``[tokens, in]``."""
    return output_grad @ unpack(weight, topology)


def linear_weight_grad(output_grad: Tensor, x: Tensor, topology: BlockTopology) -> Tensor:
    """The present blocks of ``output_grad.T @ x``: ``[nnz, block_height, block_width]``."""
    block_shape = (output_grad.shape[1] // grid_rows(topology), x.shape[1] // grid_cols(topology))
    layout = layout_of(block_shape, topology)
    return layout.pack(output_grad.T @ x, topology.block_rows, topology.block_cols)


def gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: tuple[int, int],
) -> Tensor:
    """Frobenius norms of the named blocks of ``output_grad.T @ x``, float32 ``[candidates]``.

    One block row of the gradient exists at a time, so memory grows with ``block_height * in``, not ``out * in``.
    """
    height, width = block_shape
    norms = torch.zeros(candidate_rows.numel(), dtype=torch.float32, device=x.device)
    order = torch.argsort(candidate_rows, stable=True)
    rows, counts = torch.unique_consecutive(candidate_rows[order], return_counts=True)
    for row, wanted in zip(rows.tolist(), torch.split(order, counts.tolist()), strict=True):
        strip = output_grad[:, row * height : (row + 1) * height].T @ x
        strip_norms = frobenius_norms(strip.reshape(height, -1, width), dim=(0, 2))
        norms[wanted] = strip_norms[candidate_cols[wanted].long()]
    return norms


def bias_grad(output_grad: Tensor, dtype: torch.dtype) -> Tensor:
    """Gradient of a bias: ``output_grad [tokens, out]`` or ``[batch, out, h, w]`` summed to ``[out]`` as ``dtype``."""
    axes = [axis for axis in range(output_grad.dim()) if axis != 1]
    return output_grad.sum(axes, dtype=torch.promote_types(output_grad.dtype, torch.float32)).to(dtype)


def conv2d(
    x: Tensor, weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry, bias: Tensor | None = None
) -> Tensor:
    """2-D cross-correlation of ``x [batch, in, h, w]``: ``[batch, out, oh, ow]`` in the memory format of ``x``."""
    dense = _conv_weight(weight, topology, geometry, memory_format_of(x))
    y = torch.nn.functional.conv2d(x, dense, None, geometry.stride, geometry.padding, geometry.dilation)
    if bias is not None:
        y = (y + bias[:, None, None]).to(y.dtype)
    return y.contiguous(memory_format=memory_format_of(x))


def conv2d_statistics(
    x: Tensor, weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`conv2d`, and the mean and biased variance ``[out]`` of its channels, in float32 or wider."""
    y = conv2d(x, weight, topology, geometry, bias)
    return y, *channel_statistics(y)


def channel_statistics(y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel of ``y [batch, channels, h, w]``, in float32 or wider."""
    wide = y.to(torch.promote_types(y.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, dim=(0, 2, 3), correction=0)
    return mean, variance


def conv2d_input_grad(
    output_grad: Tensor, weight: Tensor, topology: BlockTopology, input_size: list[int], geometry: Conv2dGeometry
) -> Tensor:
    """Gradient of `conv2d` with respect to ``x [batch, in, h, w]``, in the memory format of ``output_grad``."""
    dense = _conv_weight(weight, topology, geometry, memory_format_of(output_grad))
    input_grad: Tensor = conv_grad.conv2d_input(  # type: ignore[no-untyped-call]
        input_size, dense, output_grad, geometry.stride, geometry.padding, geometry.dilation
    )
    return input_grad.contiguous(memory_format=memory_format_of(output_grad))


def conv2d_weight_grad(output_grad: Tensor, x: Tensor, topology: BlockTopology, geometry: Conv2dGeometry) -> Tensor:
    """Gradient of `conv2d` with respect to the packed weight: ``[nnz, block_height, block_width]``."""
    matrix = conv_weight_to_matrix(dense_conv2d_weight_grad(output_grad, x, geometry))
    block_shape = (matrix.shape[0] // grid_rows(topology), matrix.shape[1] // grid_cols(topology))
    return layout_of(block_shape, topology).pack(matrix, topology.block_rows, topology.block_cols)


def dense_conv2d_weight_grad(output_grad: Tensor, x: Tensor, geometry: Conv2dGeometry) -> Tensor:
    """The gradient of every weight of the convolution, present or absent: ``[out, in, kh, kw]``."""
    shape = [output_grad.shape[1], x.shape[1], *geometry.kernel_size]
    gradient: Tensor = conv_grad.conv2d_weight(  # type: ignore[no-untyped-call]
        x, shape, output_grad, geometry.stride, geometry.padding, geometry.dilation
    )
    return gradient


def conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: tuple[int, int],
    geometry: Conv2dGeometry,
) -> Tensor:
    """`gradient_norms` for a convolution; one kernel tap of the gradient exists at a time."""
    in_channels, stride, padding, dilation = x.shape[1], geometry.stride, geometry.padding, geometry.dilation
    tap_width = in_channels // block_shape[1]  # block columns per kernel tap
    padded = torch.nn.functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    tokens_grad = output_grad.permute(0, 2, 3, 1).reshape(-1, output_grad.shape[1])
    norms = torch.zeros(candidate_rows.numel(), dtype=torch.float32, device=x.device)
    taps = torch.div(candidate_cols, tap_width, rounding_mode="floor")
    for tap in torch.unique(taps).tolist():
        row, col = divmod(tap, geometry.kernel_size[1])
        window = padded[
            :,
            :,
            row * dilation[0] : row * dilation[0] + (output_grad.shape[2] - 1) * stride[0] + 1 : stride[0],
            col * dilation[1] : col * dilation[1] + (output_grad.shape[3] - 1) * stride[1] + 1 : stride[1],
        ]
        wanted = torch.nonzero(taps == tap).flatten()
        norms[wanted] = gradient_norms(
            tokens_grad,
            window.permute(0, 2, 3, 1).reshape(-1, in_channels),
            candidate_rows[wanted],
            candidate_cols[wanted] - tap * tap_width,
            block_shape,
        )
    return norms


def memory_format_of(images: Tensor) -> torch.memory_format:
    """Channels last where ``images [batch, channels, h, w]`` lie in memory that way and no other; else contiguous."""
    channels_last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if channels_last else torch.contiguous_format


def grid_rows(topology: BlockTopology) -> int:
    """Number of block rows."""
    return topology.row_offsets.shape[0] - 1


def grid_cols(topology: BlockTopology) -> int:
    """Number of block columns."""
    return topology.col_offsets.shape[0] - 1


def _conv_weight(
    weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry, memory_format: torch.memory_format
) -> Tensor:
    """The dense weight in the memory format of the images it meets, or the dense library would convert one of them."""
    return matrix_to_conv_weight(unpack(weight, topology), geometry.kernel_size, memory_format)
