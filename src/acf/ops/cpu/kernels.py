"""CPU kernels of the custom ops: native code where it applies, else `reference`.

Native kernels take float32 and bfloat16, square blocks of 8, 16, 32 and 64, and any strides. A linear layer runs as a
1x1 convolution over images one row high (strips of tokens). Operands whose shapes do not match go to the reference, so
that torch raises its own error. ``ACF_CPU_KERNELS=0`` in the environment turns the native kernels off.
"""

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from acf.ops import dense, mlp, reference, statistics
from acf.ops.activation import ACTIVATIONS
from acf.ops.conv import split_arguments
from acf.ops.cpu.build import load_library
from acf.ops.cpu.call import Operands, instruction_set, run_conv2d, run_linear
from acf.ops.geometry import Conv2dGeometry
from acf.ops.operands import check_block_count
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockLayout, BlockTopology
from acf.sparse.topology import check_inside

NATIVE_BLOCKS = (8, 16, 32, 64)
NATIVE_DTYPES = (torch.float32, torch.bfloat16)
NATIVE_ALLOWED = os.environ.get("ACF_CPU_KERNELS", "1") != "0"
NORM_CHUNK_ELEMENTS = 1 << 20  # gradient elements that exist at a time while norms are taken


def block_linear(x: Tensor, weight: Tensor, bias: Tensor | None, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear_forward``."""
    topology = BlockTopology(*indices)
    fits = x.shape[1] == grid_cols(topology) * weight.shape[2] and _operands_fit(bias, weight, topology)
    if not fits or not applies(weight.shape[1:], x, weight, topology):
        return reference.linear(x, weight, topology, bias)
    y = x.new_empty(x.shape[0], grid_rows(topology) * weight.shape[1])
    run_linear("acf_forward", Operands(x, y, weight, bias), topology)
    return y


def block_linear_input_grad(output_grad: Tensor, weight: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear_input_grad``."""
    topology = BlockTopology(*indices)
    fits = output_grad.shape[1] == grid_rows(topology) * weight.shape[1] and _operands_fit(None, weight, topology)
    if not fits or not applies(weight.shape[1:], output_grad, weight, topology):
        return reference.linear_input_grad(output_grad, weight, topology)
    in_features = grid_cols(topology) * weight.shape[2]
    input_grad = output_grad.new_empty(output_grad.shape[0], in_features)
    run_linear("acf_input_gradient", Operands(input_grad, output_grad, weight), topology)
    return input_grad


def block_linear_activation(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, packed: bool, *indices: Tensor
) -> tuple[Tensor, Tensor]:
    """CPU kernel of ``acf::block_linear_activation``."""
    topology = BlockTopology(*indices)
    fits = x.shape[1] == grid_cols(topology) * weight.shape[2] and _operands_fit(bias, weight, topology)
    fits &= activation in ACTIVATIONS
    if packed or not fits or not applies(weight.shape[1:], x, weight, topology):
        return mlp.linear_then_activation(x, weight, bias, activation, packed, *indices)
    value, slope = (x.new_empty(x.shape[0], grid_rows(topology) * weight.shape[1]) for _ in range(2))
    run_linear("acf_forward", Operands(x, value, weight, bias, activation, slope), topology)
    return value, slope


def block_linear_scaled_input_grad(output_grad: Tensor, weight: Tensor, scale: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear_scaled_input_grad``."""
    topology = BlockTopology(*indices)
    shape = (output_grad.shape[0], grid_cols(topology) * weight.shape[2])
    fits = output_grad.shape[1] == grid_rows(topology) * weight.shape[1] and scale.shape == shape
    fits &= _operands_fit(None, weight, topology)
    same_dtype = scale.dtype == output_grad.dtype
    if not fits or not same_dtype or not applies(weight.shape[1:], output_grad, weight, topology):
        return mlp.input_grad_then_scale(output_grad, weight, scale, *indices)
    input_grad, scale = output_grad.new_empty(shape), scale.contiguous()
    run_linear("acf_input_gradient", Operands(input_grad, output_grad, weight, None, "scale", scale), topology)
    return input_grad


def block_linear_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_linear_weight_grad``."""
    topology, dtype = BlockTopology(*rest[:6]), rest[6]
    height = output_grad.shape[1] // grid_rows(topology)
    width = x.shape[1] // grid_cols(topology)
    fits = x.shape[0] == output_grad.shape[0] and (
        (output_grad.shape[1], x.shape[1]) == (height * grid_rows(topology), width * grid_cols(topology))
    )
    if not fits or not applies((height, width), output_grad, x, topology):
        return reference.linear_weight_grad(output_grad, x, topology).to(dtype)
    weight_grad = x.new_empty(topology.block_rows.numel(), height, width)
    run_linear("acf_weight_gradient", Operands(x, output_grad, weight_grad), topology)
    return weight_grad.to(dtype)


def block_gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    """CPU kernel of ``acf::block_gradient_norms``."""
    if dense.dense_chosen():
        return dense.linear_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape)
    height, width = block_shape
    if x.shape[0] != output_grad.shape[0] or not applies((height, width), output_grad, x):
        return reference.gradient_norms(output_grad, x, candidate_rows, candidate_cols, (height, width))

    def write_gradient(gradient: Tensor, topology: BlockTopology) -> None:
        run_linear("acf_weight_gradient", Operands(x, output_grad, gradient), topology)

    layout = BlockLayout(output_grad.shape[1], x.shape[1], height, width)
    return _norms(write_gradient, x, candidate_rows, candidate_cols, layout)


def block_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_forward``."""
    y = _conv_output(x, weight, bias, rest)
    if y is None:
        return reference.conv2d(x, weight, *split_arguments(rest), bias)
    run_conv2d("acf_forward", Operands(x, y, weight, bias), *split_arguments(rest))
    return y


def block_conv2d_statistics(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> statistics.Results:
    """CPU kernel of ``acf::block_conv2d_statistics``; taken in the product where channels are innermost."""
    y = _conv_output(x, weight, bias, rest)
    if y is None or y.stride(1) != 1 or not y.numel():
        return statistics.convolve_then_read(x, weight, bias, *rest)
    found = torch.empty(2, y.shape[1])
    run_conv2d("acf_forward", Operands(x, y, weight, bias, statistics=found), *split_arguments(rest))
    return y, found[0].clone(), found[1].clone()


def _conv_output(x: Tensor, weight: Tensor, bias: Tensor | None, rest: Sequence[Any]) -> Tensor | None:
    """Memory for the output of a convolution; None where the native kernel cannot compute it."""
    topology, geometry = split_arguments(rest)
    out_size = geometry.output_size(x.shape[2], x.shape[3])
    y_size = (x.shape[0], grid_rows(topology) * weight.shape[1], *out_size)
    fits = (
        _conv_fits(x.shape, y_size, geometry, weight.shape[1])
        and _in_columns(x.shape, geometry) == grid_cols(topology) * weight.shape[2]
        and _operands_fit(bias, weight, topology)
    )
    if not fits or not applies(weight.shape[1:], x, weight, topology):
        return None
    return torch.empty(y_size, dtype=x.dtype, memory_format=reference.memory_format_of(x))


def block_conv2d_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_input_grad``."""
    input_size, (topology, geometry) = rest[6], split_arguments((*rest[:6], *rest[7:]))
    fits = (
        _conv_fits(input_size, output_grad.shape, geometry, weight.shape[1])
        and _in_columns(input_size, geometry) == grid_cols(topology) * weight.shape[2]
        and output_grad.shape[1] == grid_rows(topology) * weight.shape[1]
        and _operands_fit(None, weight, topology)
    )
    if not fits or not applies(weight.shape[1:], output_grad, weight, topology):
        return reference.conv2d_input_grad(output_grad, weight, topology, input_size, geometry)
    input_grad = torch.empty(input_size, dtype=output_grad.dtype, memory_format=reference.memory_format_of(output_grad))
    run_conv2d("acf_input_gradient", Operands(input_grad, output_grad, weight), topology, geometry)
    return input_grad


def block_conv2d_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_weight_grad``."""
    (topology, geometry), dtype = split_arguments(rest[:10]), rest[10]
    height = output_grad.shape[1] // grid_rows(topology)
    width = _in_columns(x.shape, geometry) // grid_cols(topology)
    fits = (
        _conv_fits(x.shape, output_grad.shape, geometry, height)
        and output_grad.shape[1] == height * grid_rows(topology)
        and _in_columns(x.shape, geometry) == width * grid_cols(topology)
    )
    if not fits or not applies((height, width), output_grad, x, topology):
        return reference.conv2d_weight_grad(output_grad, x, topology, geometry).to(dtype)
    weight_grad = x.new_empty(topology.block_rows.numel(), height, width)
    run_conv2d("acf_weight_gradient", Operands(x, output_grad, weight_grad), topology, geometry)
    return weight_grad.to(dtype)


def block_conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: list[int],
    *pairs: list[int],
) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_gradient_norms``."""
    geometry = Conv2dGeometry.from_lists(*pairs)
    if dense.dense_chosen():
        return dense.conv2d_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape, geometry)
    height, width = block_shape
    fits = _conv_fits(x.shape, output_grad.shape, geometry, height)
    if not fits or not applies((height, width), output_grad, x):
        return reference.conv2d_gradient_norms(
            output_grad, x, candidate_rows, candidate_cols, (height, width), geometry
        )

    def write_gradient(gradient: Tensor, topology: BlockTopology) -> None:
        run_conv2d("acf_weight_gradient", Operands(x, output_grad, gradient), topology, geometry)

    layout = BlockLayout(output_grad.shape[1], _in_columns(x.shape, geometry), height, width)
    return _norms(write_gradient, x, candidate_rows, candidate_cols, layout)


def _norms(
    write_gradient: Callable[[Tensor, BlockTopology], None],
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    layout: BlockLayout,
) -> Tensor:
    """Norms of the candidates' gradients, a bounded chunk of blocks at a time, those of a row together."""
    check_inside(layout, candidate_rows, candidate_cols)
    block = layout.block_height
    order = torch.argsort(candidate_rows.long() * layout.grid_cols + candidate_cols)
    norms = torch.empty(order.numel(), dtype=torch.float32)
    blocks_at_once = max(1, NORM_CHUNK_ELEMENTS // block**2)
    buffer = x.new_empty(min(blocks_at_once, order.numel()), block, block)
    for chosen in torch.split(order, blocks_at_once):
        topology = _row_topology(candidate_rows[chosen], candidate_cols[chosen], layout.grid_rows)
        gradient = buffer[: chosen.numel()]
        write_gradient(gradient, topology)
        norms[chosen] = torch.linalg.vector_norm(gradient, dim=(1, 2), dtype=torch.float32)
    return norms


def _row_topology(rows: Tensor, cols: Tensor, row_count: int) -> BlockTopology:
    """The part of a topology that the weight gradient reads, of blocks sorted by row; a block may occur twice."""
    offsets = torch.zeros(row_count + 1, dtype=torch.int32)
    offsets[1:] = torch.bincount(rows.long(), minlength=row_count).cumsum(0)
    slots = torch.arange(rows.numel(), dtype=torch.int32)
    nothing = torch.empty(0, dtype=torch.int32)
    return BlockTopology(rows.int(), cols.int(), offsets, slots, nothing, nothing)


def _pays(block: int, dtype: torch.dtype, topology: BlockTopology) -> bool:
    """Whether the native kernels beat the dense product at this density, by `docs/results/kernels-cpu.md`.

    They match it at density 1 (blocks of 8: at 0.7), unless the processor multiplies bfloat16 faster than they do:
    built by an old compiler, told not to, or in blocks too small for tile registers.
    """
    density = topology.block_rows.numel() / (grid_rows(topology) * grid_cols(topology))
    limit = 0.7 if block == 8 else 1.0
    if dtype == torch.bfloat16:
        limit *= min(1.0, BFLOAT16_RATES[_instructions_for(block)] / BFLOAT16_RATES[_dense_instructions()])
    return density <= limit


BFLOAT16_RATES = {"avx512": 1, "avx512bf16": 2, "amx": 16}
"""Products of bfloat16 in a time, by what multiplies them; as float32 with AVX-512: 1.

With AMX torch's dense products took an eighth of the time that pairs take (two cores of an Intel Xeon, no record kept).
"""


def _instructions_for(block: int) -> str:
    """What these kernels multiply bfloat16 with; the weight gradient of blocks of 16 and all of 8 make no tiles."""
    chosen = instruction_set() or "avx512"
    if chosen == "amx" and block < 32:
        return "avx512bf16"
    return chosen if chosen in BFLOAT16_RATES else "avx512"


@cache
def _dense_instructions() -> str:
    """What torch's dense products of bfloat16 use."""
    if torch.cpu._is_amx_tile_supported():
        return "amx"
    return "avx512bf16" if torch.cpu._is_avx512_bf16_supported() else "avx512"


def _in_columns(input_size: Sequence[int], geometry: Conv2dGeometry) -> int:
    """Columns of the weight matrix of a convolution: kernel taps times input channels."""
    return input_size[1] * geometry.taps


def _conv_fits(x_size: Sequence[int], y_size: Sequence[int], geometry: Conv2dGeometry, block: int) -> bool:
    """Whether a convolution of this geometry makes ``y_size`` of ``x_size``, and at least one pixel of it.

    Kernels also need whole blocks of channels at every tap.
    """
    out_size = geometry.output_size(x_size[2], x_size[3])
    sizes_fit = min(*x_size[2:], *out_size) >= 1 and x_size[0] == y_size[0] and out_size == tuple(y_size[2:])
    return sizes_fit and block >= 1 and x_size[1] % block == 0


def _operands_fit(bias: Tensor | None, weight: Tensor, topology: BlockTopology) -> bool:
    """Whether the bias has a value for every output; packed blocks that are not those of the topology are refused."""
    check_block_count(weight, topology)
    return bias is None or bias.shape == (grid_rows(topology) * weight.shape[1],)


def applies(block_shape: Sequence[int], first: Tensor, second: Tensor, topology: BlockTopology | None = None) -> bool:
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
