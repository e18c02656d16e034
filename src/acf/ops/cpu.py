"""The custom ops on CPU through the native kernels, with `reference` wherever those do not apply:
other dtypes and blocks, and operands that do not fit each other, where torch's own error is the answer.

Native: float32 and bfloat16, square blocks of 8, 16, 32 and 64, any strides. A linear layer is run as a 1x1
convolution over images one row high: strips of tokens. ``ACF_CPU_KERNELS=0`` in the environment turns it off.
"""

import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from acf.ops import conv, dense, linear, reference
from acf.ops.cpu_build import load_library
from acf.ops.cpu_call import SHAPES_KEPT, instruction_set, run_conv2d, run_linear
from acf.ops.observe import observed
from acf.sparse import BlockTopology

NATIVE_BLOCKS = (8, 16, 32, 64)
NATIVE_DTYPES = (torch.float32, torch.bfloat16)
NATIVE_ALLOWED = os.environ.get("ACF_CPU_KERNELS", "1") != "0"
NORM_CHUNK_ELEMENTS = 1 << 20  # gradient elements that exist at a time while norms are taken


def register() -> None:
    """Make these the CPU kernels of the custom ops; nothing is compiled before an op is called."""
    linear.block_linear_forward.register_kernel("cpu", block_linear)
    linear.block_linear_input_grad.register_kernel("cpu", block_linear_input_grad)
    linear.block_linear_weight_grad.register_kernel("cpu", observed(block_linear_weight_grad))
    linear.linear_gradient_norms.register_kernel("cpu", block_gradient_norms)
    conv.block_conv2d_forward.register_kernel("cpu", block_conv2d)
    conv.block_conv2d_input_grad.register_kernel("cpu", block_conv2d_input_grad)
    conv.block_conv2d_weight_grad.register_kernel("cpu", observed(block_conv2d_weight_grad))
    conv.conv2d_gradient_norms.register_kernel("cpu", block_conv2d_gradient_norms)


def block_linear(x: Tensor, weight: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear``."""
    topology = BlockTopology(*indices)
    fits = x.shape[1] == _grid_cols(topology) * weight.shape[2]
    if not fits or not _applies(weight.shape[1:], x, weight, topology):
        return reference.linear(x, weight, topology)
    y = x.new_empty(x.shape[0], _grid_rows(topology) * weight.shape[1])
    run_linear("acf_forward", x, y, weight, topology)
    return y


def block_linear_input_grad(output_grad: Tensor, weight: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear_input_grad``."""
    topology = BlockTopology(*indices)
    fits = output_grad.shape[1] == _grid_rows(topology) * weight.shape[1]
    if not fits or not _applies(weight.shape[1:], output_grad, weight, topology):
        return reference.linear_input_grad(output_grad, weight, topology)
    in_features = _grid_cols(topology) * weight.shape[2]
    input_grad = output_grad.new_empty(output_grad.shape[0], in_features)
    run_linear("acf_input_gradient", input_grad, output_grad, weight, topology)
    return input_grad


def block_linear_weight_grad(output_grad: Tensor, x: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear_weight_grad``."""
    topology = BlockTopology(*indices)
    height = output_grad.shape[1] // _grid_rows(topology)
    width = x.shape[1] // _grid_cols(topology)
    if x.shape[0] != output_grad.shape[0] or not _applies((height, width), output_grad, x, topology):
        return reference.linear_weight_grad(output_grad, x, topology)
    weight_grad = x.new_empty(topology.block_rows.numel(), height, width)
    run_linear("acf_weight_gradient", x, output_grad, weight_grad, topology)
    return weight_grad


def block_gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    """CPU kernel of ``acf::block_gradient_norms``."""
    if dense.dense_chosen():
        return dense.linear_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape)
    height, width = block_shape
    if x.shape[0] != output_grad.shape[0] or not _applies((height, width), output_grad, x):
        return reference.gradient_norms(output_grad, x, candidate_rows, candidate_cols, (height, width))

    def write_gradient(gradient: Tensor, topology: BlockTopology) -> None:
        run_linear("acf_weight_gradient", x, output_grad, gradient, topology)

    grid_rows, grid_cols = output_grad.shape[1] // height, x.shape[1] // width
    return _norms(write_gradient, x, candidate_rows, candidate_cols, height, grid_rows, grid_cols)


def block_conv2d(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d``."""
    topology, geometry = BlockTopology(*rest[:6]), rest[6:]
    out_size = _output_size(x.shape[2], x.shape[3], *map(tuple, geometry))
    y_size = (x.shape[0], _grid_rows(topology) * weight.shape[1], *out_size)
    fits = (
        _conv_fits(x.shape, y_size, geometry)
        and _in_columns(x.shape, geometry) == _grid_cols(topology) * weight.shape[2]
    )
    if not fits or not _applies(weight.shape[1:], x, weight, topology):
        return reference.conv2d(x, weight, topology, *geometry)
    y = torch.empty(y_size, dtype=x.dtype, memory_format=reference.memory_format_of(x))
    run_conv2d("acf_forward", x, y, weight, topology, geometry)
    return y


def block_conv2d_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_input_grad``."""
    topology, input_size, geometry = BlockTopology(*rest[:6]), rest[6], rest[7:]
    fits = (
        _conv_fits(input_size, output_grad.shape, geometry)
        and _in_columns(input_size, geometry) == _grid_cols(topology) * weight.shape[2]
        and output_grad.shape[1] == _grid_rows(topology) * weight.shape[1]
    )
    if not fits or not _applies(weight.shape[1:], output_grad, weight, topology):
        return reference.conv2d_input_grad(output_grad, weight, topology, input_size, *geometry)
    input_grad = torch.empty(input_size, dtype=output_grad.dtype, memory_format=reference.memory_format_of(output_grad))
    run_conv2d("acf_input_gradient", input_grad, output_grad, weight, topology, geometry)
    return input_grad


def block_conv2d_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_weight_grad``."""
    topology, geometry = BlockTopology(*rest[:6]), rest[6:]
    height = output_grad.shape[1] // _grid_rows(topology)
    width = _in_columns(x.shape, geometry) // _grid_cols(topology)
    fits = _conv_fits(x.shape, output_grad.shape, geometry)
    if not fits or not _applies((height, width), output_grad, x, topology):
        return reference.conv2d_weight_grad(output_grad, x, topology, *geometry)
    weight_grad = x.new_empty(topology.block_rows.numel(), height, width)
    run_conv2d("acf_weight_gradient", x, output_grad, weight_grad, topology, geometry)
    return weight_grad


def block_conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: list[int],
    *geometry: list[int],
) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_gradient_norms``."""
    if dense.dense_chosen():
        return dense.conv2d_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape, *geometry)
    height, width = block_shape
    fits = _conv_fits(x.shape, output_grad.shape, geometry)
    if not fits or not _applies((height, width), output_grad, x):
        return reference.conv2d_gradient_norms(
            output_grad, x, candidate_rows, candidate_cols, (height, width), *geometry
        )

    def write_gradient(gradient: Tensor, topology: BlockTopology) -> None:
        run_conv2d("acf_weight_gradient", x, output_grad, gradient, topology, geometry)

    grid_rows = output_grad.shape[1] // height
    grid_cols = _in_columns(x.shape, geometry) // width
    return _norms(write_gradient, x, candidate_rows, candidate_cols, height, grid_rows, grid_cols)


def _norms(
    write_gradient: Callable[[Tensor, BlockTopology], None],
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block: int,
    grid_rows: int,
    grid_cols: int,
) -> Tensor:
    """Norms of the candidates' gradients, a bounded chunk of blocks at a time, those of a row together."""
    order = torch.argsort(candidate_rows.long() * grid_cols + candidate_cols)
    norms = torch.empty(order.numel(), dtype=torch.float32)
    blocks_at_once = max(1, NORM_CHUNK_ELEMENTS // block**2)
    buffer = x.new_empty(min(blocks_at_once, order.numel()), block, block)
    for chosen in torch.split(order, blocks_at_once):
        topology = _row_topology(candidate_rows[chosen], candidate_cols[chosen], grid_rows)
        gradient = buffer[: chosen.numel()]
        write_gradient(gradient, topology)
        norms[chosen] = torch.linalg.vector_norm(gradient, dim=(1, 2), dtype=torch.float32)
    return norms


def _row_topology(rows: Tensor, cols: Tensor, grid_rows: int) -> BlockTopology:
    """What the weight gradient needs to know of blocks sorted by row; a block may be named twice here."""
    offsets = torch.zeros(grid_rows + 1, dtype=torch.int32)
    offsets[1:] = torch.bincount(rows.long(), minlength=grid_rows).cumsum(0)
    slots = torch.arange(rows.numel(), dtype=torch.int32)
    nothing = torch.empty(0, dtype=torch.int32)
    return BlockTopology(rows.int(), cols.int(), offsets, slots, nothing, nothing)


def _pays(block: int, dtype: torch.dtype, topology: BlockTopology) -> bool:
    """Whether the native kernels beat the dense product at this density, by `docs/results/kernels-cpu.md`.

    They match it at density 1 (blocks of 8: at 0.7), unless the processor multiplies bfloat16 itself and these
    kernels, built by an old compiler or told not to, do not: then they compute in float32, at half its rate.
    """
    density = topology.block_rows.numel() / (_grid_rows(topology) * _grid_cols(topology))
    limit = 0.7 if block == 8 else 1.0
    if dtype == torch.bfloat16 and _multiplies_bfloat16() and instruction_set() != "avx512bf16":
        limit *= 0.5
    return density <= limit


@cache
def _multiplies_bfloat16() -> bool:
    return bool(torch.cpu._is_avx512_bf16_supported())


def _grid_rows(topology: BlockTopology) -> int:
    return topology.row_offsets.numel() - 1


def _grid_cols(topology: BlockTopology) -> int:
    return topology.col_offsets.numel() - 1


def _in_columns(input_size: Sequence[int], geometry: Sequence[Sequence[int]]) -> int:
    """Columns of the weight matrix of a convolution: kernel taps times input channels."""
    return input_size[1] * geometry[0][0] * geometry[0][1]


@lru_cache(maxsize=SHAPES_KEPT)
def _output_size(height: int, width: int, *geometry: tuple[int, int]) -> tuple[int, int]:
    return conv.Conv2dGeometry(*geometry).output_size(height, width)


def _conv_fits(x_size: Sequence[int], y_size: Sequence[int], geometry: Sequence[Sequence[int]]) -> bool:
    """Whether a convolution of this geometry makes ``y_size`` of ``x_size``, and at least one pixel of it."""
    out_size = _output_size(x_size[2], x_size[3], *map(tuple, geometry))
    return min(*x_size[2:], *out_size) >= 1 and x_size[0] == y_size[0] and out_size == tuple(y_size[2:])


def _applies(block_shape: Sequence[int], first: Tensor, second: Tensor, topology: BlockTopology | None = None) -> bool:
    """Whether the native kernels can take these operands and are worth it; the first time, builds them."""
    height, width = block_shape
    return (
        not dense.dense_chosen()
        and height == width
        and height in NATIVE_BLOCKS
        and first.dtype == second.dtype
        and first.dtype in NATIVE_DTYPES
        and (topology is None or _pays(height, first.dtype, topology))
        and NATIVE_ALLOWED
        and load_library() is not None
    )
