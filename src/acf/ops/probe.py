"""Scoring blocks inside a compiled graph: their squared gradient norms are the gradient of a probe.

An observer (`acf.ops.observe`) is called while the weight-gradient op runs, so the replay of a CUDA graph calls none. A
probe is a tensor ``[grid_rows, grid_cols]`` that adds nothing to a layer's output, and whose gradient is defined as the
squared Frobenius norms of the blocks of the layer's dense weight gradient. As a gradient it is part of a compiled
backward pass like any other: where a layer has a probe the graph is another one, and that one scores at every replay.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acf.ops.conv import conv2d_gradient_norms
from acf.ops.geometry import Conv2dGeometry
from acf.ops.library import Op, differentiable
from acf.ops.linear import linear_gradient_norms
from acf.ops.statistics import pass_on_statistics


def _scores(
    output_grad: Tensor,
    x: Tensor,
    grid: Sequence[int],
    block_shape: Sequence[int],
    geometry: Sequence[int],
    transposed: bool,
) -> Tensor:
    rows, cols = grid
    if transposed:
        output_grad, x = x, output_grad
    places = torch.arange(rows * cols, dtype=torch.int32, device=x.device)
    where = places // cols, places % cols
    if geometry:
        pairs = [list(geometry[index : index + 2]) for index in range(0, len(geometry), 2)]
        norms = conv2d_gradient_norms(output_grad, x, *where, list(block_shape), *pairs)
    else:
        flat_grad, flat_x = output_grad.reshape(-1, output_grad.shape[-1]), x.reshape(-1, x.shape[-1])
        norms = linear_gradient_norms(flat_grad.contiguous(), flat_x, *where, list(block_shape))
    # Norms that overflowed, in a pass that a loss scaler will skip, count for nothing.
    return norms.nan_to_num_(0.0, 0.0, 0.0).square_().reshape(rows, cols)


def _fake_scores(output_grad: Tensor, x: Tensor, grid: Sequence[int], *_: Any) -> Tensor:
    return x.new_empty(tuple(grid), dtype=torch.float32)


block_scores = Op(
    "block_scores",
    "(Tensor output_grad, Tensor x, SymInt[] grid, SymInt[] block_shape, SymInt[] geometry, bool transposed) -> Tensor",
    _scores,
    _fake_scores,
)


class _Probed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, x: Tensor, probe: Tensor, block_shape: list[int], geometry: list[int], transposed: bool
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.settings = list(probe.shape), list(block_shape), list(geometry), transposed
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        return output_grad, None, block_scores(output_grad, x, *ctx.settings), None, None, None


def _apply(
    y: Tensor, x: Tensor, probe: Tensor, block_shape: list[int], geometry: list[int], transposed: bool
) -> Tensor:
    result: Tensor = _Probed.apply(y, x, probe, block_shape, geometry, transposed)  # type: ignore[no-untyped-call]
    pass_on_statistics(y, result)
    return result


_probed = differentiable(
    "probed",
    "(Tensor(a) y, Tensor x, Tensor probe, SymInt[] block_shape, SymInt[] geometry, bool transposed) -> Tensor(a)",
    _apply,
)


def probed(
    y: Tensor,
    x: Tensor,
    probe: Tensor,
    block_shape: tuple[int, int],
    geometry: Conv2dGeometry | None = None,
    transposed: bool = False,
) -> Tensor:
    """``y``, the output of a layer for the input ``x``; a backward pass through it gives ``probe`` its gradient.

    ``probe`` is float32 ``[grid_rows, grid_cols]``, ``block_shape`` height and width of a block, ``geometry`` that of a
    convolution, which a ``transposed`` layer is the input gradient of.
    """
    pairs = [] if geometry is None else geometry.as_lists()
    return _probed(y, x, probe, list(block_shape), [size for pair in pairs for size in pair], transposed)
