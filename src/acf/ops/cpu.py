"""The custom ops on CPU through the native kernels, with `reference` wherever those do not apply.

Native: float32 and bfloat16, square blocks of 8, 16, 32 and 64, any strides. A linear layer is run as a 1x1
convolution over images one row high: strips of tokens. ``ACF_CPU_KERNELS=0`` in the environment turns it off.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from acf.errors import TopologyError
from acf.ops import conv, linear, reference
from acf.ops.cpu_build import load_library
from acf.sparse import BlockTopology

NATIVE_BLOCKS = (8, 16, 32, 64)
NATIVE_DTYPES = (torch.float32, torch.bfloat16)
INSTRUCTION_SETS = ("portable", "avx2", "avx512")  # in the order of dispatch.cpp
STRIP_TOKENS = 64  # tokens a linear layer packs at a time; fewer only where that leaves threads idle
NORM_CHUNK_ELEMENTS = 1 << 20  # gradient elements that exist at a time while norms are taken


class _Problem(ctypes.Structure):
    """``struct Problem`` of ``native/problem.h``, field by field."""

    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in (
                *("bfloat16", "threads", "block", "batch", "missing_cols"),
                *("input_channels", "input_height", "input_width"),
                *("output_channels", "output_height", "output_width"),
                *("kernel_height", "kernel_width", "stride_y", "stride_x"),
                *("padding_y", "padding_x", "dilation_y", "dilation_x"),
                *("input_image_stride", "input_channel_stride", "input_y_stride", "input_x_stride"),
                *("output_image_stride", "output_channel_stride", "output_y_stride", "output_x_stride"),
            )
        ),
        *((name, ctypes.c_void_p) for name in ("input", "output", "weight")),
        ("blocks", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in BlockTopology._fields),
    ]


def register() -> None:
    """Make these the CPU kernels of the custom ops; nothing is compiled before an op is called."""
    linear._block_linear.register_kernel("cpu")(block_linear)
    linear._block_linear_input_grad.register_kernel("cpu")(block_linear_input_grad)
    linear._block_linear_weight_grad.register_kernel("cpu")(block_linear_weight_grad)
    linear._block_gradient_norms.register_kernel("cpu")(block_gradient_norms)
    conv._block_conv2d.register_kernel("cpu")(block_conv2d)
    conv._block_conv2d_input_grad.register_kernel("cpu")(block_conv2d_input_grad)
    conv._block_conv2d_weight_grad.register_kernel("cpu")(block_conv2d_weight_grad)
    conv._block_conv2d_gradient_norms.register_kernel("cpu")(block_conv2d_gradient_norms)


def instruction_set() -> str | None:
    """The instruction set the kernels run with on this machine; None where they cannot be built."""
    library = load_library()
    return None if library is None else INSTRUCTION_SETS[_instruction_set(library)]


def block_linear(x: Tensor, weight: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear``."""
    topology = BlockTopology(*indices)
    if not _applies(weight.shape[1:], x, weight):
        return reference.linear(x, weight, topology)
    y = x.new_empty(x.shape[0], (topology.row_offsets.numel() - 1) * weight.shape[1])
    _run("acf_forward", _linear_problem(x, y, weight, topology))
    return y


def block_linear_input_grad(output_grad: Tensor, weight: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear_input_grad``."""
    topology = BlockTopology(*indices)
    if not _applies(weight.shape[1:], output_grad, weight):
        return reference.linear_input_grad(output_grad, weight, topology)
    in_features = (topology.col_offsets.numel() - 1) * weight.shape[2]
    input_grad = output_grad.new_empty(output_grad.shape[0], in_features)
    _run("acf_input_gradient", _linear_problem(input_grad, output_grad, weight, topology))
    return input_grad


def block_linear_weight_grad(output_grad: Tensor, x: Tensor, *indices: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_linear_weight_grad``."""
    topology = BlockTopology(*indices)
    height = output_grad.shape[1] // (topology.row_offsets.numel() - 1)
    width = x.shape[1] // (topology.col_offsets.numel() - 1)
    if not _applies((height, width), output_grad, x):
        return reference.linear_weight_grad(output_grad, x, topology)
    weight_grad = x.new_empty(topology.block_rows.numel(), height, width)
    _run("acf_weight_gradient", _linear_problem(x, output_grad, weight_grad, topology))
    return weight_grad


def block_gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    """CPU kernel of ``acf::block_gradient_norms``."""
    height, width = block_shape
    if not _applies((height, width), output_grad, x):
        return reference.gradient_norms(output_grad, x, candidate_rows, candidate_cols, (height, width))

    def write_gradient(gradient: Tensor, topology: BlockTopology) -> None:
        _run("acf_weight_gradient", _linear_problem(x, output_grad, gradient, topology))

    grid_rows, grid_cols = output_grad.shape[1] // height, x.shape[1] // width
    return _norms(write_gradient, x, candidate_rows, candidate_cols, height, grid_rows, grid_cols)


def block_conv2d(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d``."""
    topology, geometry = BlockTopology(*rest[:6]), rest[6:]
    out_size = conv.Conv2dGeometry(*(tuple(pair) for pair in geometry)).output_size(x.shape[2], x.shape[3])
    if min(out_size) < 1 or not _applies(weight.shape[1:], x, weight):
        return reference.conv2d(x, weight, topology, *geometry)  # an image too small: torch says so
    out_channels = (topology.row_offsets.numel() - 1) * weight.shape[1]
    y = torch.empty(
        (x.shape[0], out_channels, *out_size), dtype=x.dtype, memory_format=conv._memory_format(x)
    )
    _run("acf_forward", _conv_problem(x, y, weight, topology, geometry))
    return y


def block_conv2d_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_input_grad``."""
    topology, input_size, geometry = BlockTopology(*rest[:6]), rest[6], rest[7:]
    if not _applies(weight.shape[1:], output_grad, weight):
        return reference.conv2d_input_grad(output_grad, weight, topology, input_size, *geometry)
    input_grad = torch.empty(
        input_size, dtype=output_grad.dtype, memory_format=conv._memory_format(output_grad)
    )
    _run("acf_input_gradient", _conv_problem(input_grad, output_grad, weight, topology, geometry))
    return input_grad


def block_conv2d_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_conv2d_weight_grad``."""
    topology, geometry = BlockTopology(*rest[:6]), rest[6:]
    height = output_grad.shape[1] // (topology.row_offsets.numel() - 1)
    width = x.shape[1] * geometry[0][0] * geometry[0][1] // (topology.col_offsets.numel() - 1)
    if not _applies((height, width), output_grad, x):
        return reference.conv2d_weight_grad(output_grad, x, topology, *geometry)
    weight_grad = x.new_empty(topology.block_rows.numel(), height, width)
    _run("acf_weight_gradient", _conv_problem(x, output_grad, weight_grad, topology, geometry))
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
    height, width = block_shape
    if not _applies((height, width), output_grad, x):
        return reference.conv2d_gradient_norms(
            output_grad, x, candidate_rows, candidate_cols, (height, width), *geometry
        )

    def write_gradient(gradient: Tensor, topology: BlockTopology) -> None:
        _run("acf_weight_gradient", _conv_problem(x, output_grad, gradient, topology, geometry))

    grid_rows = output_grad.shape[1] // height
    grid_cols = x.shape[1] // width * geometry[0][0] * geometry[0][1]
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
    """Norms of the candidates' gradients, a bounded chunk of blocks at a time, neighbours of a row together."""
    order = torch.argsort(candidate_rows.long() * grid_cols + candidate_cols.long())
    norms = torch.empty(order.numel(), dtype=torch.float32)
    for chosen in order.split(max(1, NORM_CHUNK_ELEMENTS // block**2)):
        topology = _row_topology(candidate_rows[chosen], candidate_cols[chosen], grid_rows)
        gradient = x.new_empty(chosen.numel(), block, block)
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


def _applies(block_shape: Any, first: Tensor, second: Tensor) -> bool:
    """Whether the native kernels can take these operands; builds them at the first call that could use them."""
    height, width = block_shape
    return (
        height == width
        and height in NATIVE_BLOCKS
        and first.dtype == second.dtype
        and first.dtype in NATIVE_DTYPES
        and os.environ.get("ACF_CPU_KERNELS", "1") != "0"
        and load_library() is not None
    )


class _Call:
    """A filled `_Problem`, together with the tensors whose memory it points to."""

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor, topology: BlockTopology, **sizes: int) -> None:
        weight, indices = weight.contiguous(), [tensor.contiguous() for tensor in topology]
        self.tensors = (x, y, weight, *indices)
        pointers = {name: tensor.data_ptr() for name, tensor in zip(BlockTopology._fields, indices, strict=True)}
        self.problem = _Problem(
            bfloat16=int(x.dtype == torch.bfloat16),
            threads=torch.get_num_threads(),
            block=weight.shape[1],
            input=x.data_ptr(),
            output=y.data_ptr(),
            weight=weight.data_ptr(),
            blocks=weight.shape[0],
            **sizes,
            **pointers,
        )


def _linear_problem(x: Tensor, y: Tensor, weight: Tensor, topology: BlockTopology) -> _Call:
    """``x [tokens, in]`` and ``y [tokens, out]`` as strips of tokens; whichever is the result is contiguous."""
    tokens = x.shape[0]
    strip = _strip_tokens(tokens)
    return _Call(
        x,
        y,
        weight,
        topology,
        batch=-(-tokens // strip),
        missing_cols=-tokens % strip,
        **dict(input_channels=x.shape[1], input_height=1, input_width=strip),
        **dict(output_channels=y.shape[1], output_height=1, output_width=strip),
        **dict(kernel_height=1, kernel_width=1, stride_y=1, stride_x=1),
        **dict(padding_y=0, padding_x=0, dilation_y=1, dilation_x=1),
        **dict(input_image_stride=strip * x.stride(0), input_channel_stride=x.stride(1)),
        **dict(input_y_stride=0, input_x_stride=x.stride(0)),
        **dict(output_image_stride=strip * y.stride(0), output_channel_stride=y.stride(1)),
        **dict(output_y_stride=0, output_x_stride=y.stride(0)),
    )


def _strip_tokens(tokens: int) -> int:
    """Tokens per strip: at least two strips per thread, in multiples of 8, where there are that many tokens."""
    share = -(-tokens // (2 * torch.get_num_threads()))
    return min(STRIP_TOKENS, max(8, -(-share // 8) * 8))


def _conv_problem(x: Tensor, y: Tensor, weight: Tensor, topology: BlockTopology, geometry: Any) -> _Call:
    """``x [batch, in, h, w]`` and ``y [batch, out, oh, ow]`` in any memory format."""
    kernel_size, stride, padding, dilation = geometry
    return _Call(
        x,
        y,
        weight,
        topology,
        batch=x.shape[0],
        missing_cols=0,
        **dict(input_channels=x.shape[1], input_height=x.shape[2], input_width=x.shape[3]),
        **dict(output_channels=y.shape[1], output_height=y.shape[2], output_width=y.shape[3]),
        **dict(kernel_height=kernel_size[0], kernel_width=kernel_size[1], stride_y=stride[0], stride_x=stride[1]),
        **dict(padding_y=padding[0], padding_x=padding[1], dilation_y=dilation[0], dilation_x=dilation[1]),
        **dict(zip(_stride_names("input"), x.stride(), strict=True)),
        **dict(zip(_stride_names("output"), y.stride(), strict=True)),
    )


def _stride_names(image: str) -> tuple[str, ...]:
    return tuple(f"{image}_{axis}_stride" for axis in ("image", "channel", "y", "x"))


def _instruction_set(library: ctypes.CDLL) -> int:
    best: int = library.acf_best_instruction_set()
    wanted = os.environ.get("ACF_CPU_ISA", "")
    return min(best, INSTRUCTION_SETS.index(wanted)) if wanted in INSTRUCTION_SETS else best


def _run(name: str, call: _Call) -> None:
    library = load_library()
    assert library is not None  # _applies has asked
    status = getattr(library, name)(ctypes.byref(call.problem), _instruction_set(library))
    if status == 1:
        raise MemoryError(f"{name} found no memory for its packed operands; use a smaller batch")
    if status != 0:
        raise TopologyError(
            f"{name} met a topology that does not fit its operands (status {status}); rebuild it with BlockTopology.build"
        )
