"""One call of a native pass: filling ``struct Problem`` of ``native/problem.h``, and running it.

For a small layer the interpreter's own time counts, so the sizes are assembled once per layer shape and a call packs
them with its pointers in one step.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from acf.errors import MissingDependencyError, TopologyError
from acf.ops.cpu.build import load_library
from acf.ops.geometry import Conv2dGeometry
from acf.sparse import BlockTopology

INSTRUCTION_SETS = ("portable", "avx2", "avx512", "avx512bf16", "amx")  # in the order of dispatch.cpp
STRIP_TOKENS = 64  # tokens a linear layer packs at a time; fewer only where that leaves threads idle
SHAPES_KEPT = 1024  # layer shapes whose sizes are kept
SIZE_FIELDS = (
    *("bfloat16", "threads", "block", "batch", "missing_cols"),
    *("input_channels", "input_height", "input_width"),
    *("output_channels", "output_height", "output_width"),
    *("kernel_height", "kernel_width", "stride_y", "stride_x"),
    *("padding_y", "padding_x", "dilation_y", "dilation_x"),
    *("input_image_stride", "input_channel_stride", "input_y_stride", "input_x_stride"),
    *("output_image_stride", "output_channel_stride", "output_y_stride", "output_x_stride"),
)
# The sizes; input, output and weight; the number of blocks; the topology's arrays; the bias; epilogue and its operand;
# the statistics.
PROBLEM = struct.Struct(f"{len(SIZE_FIELDS)}q3Pq{len(BlockTopology._fields)}PPqPP")
EPILOGUES = {"": 0, "scale": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4, "relu": 5}  # as in problem.h


class Walk(NamedTuple):
    """The arrays that a pass follows, by their places in a topology."""

    offsets: int
    slots: int
    indices: int


BY_ROWS, BY_COLUMNS = (
    Walk(*(BlockTopology._fields.index(name) for name in names))
    for names in (("row_offsets", "row_slots", "block_cols"), ("col_offsets", "col_slots", "block_rows"))
)

Sizes = tuple[int, ...]


class _Cap:
    """The best instruction set allowed, for the whole process: autograd runs backward passes in threads of its own."""

    name = os.environ.get("ACF_CPU_ISA", "")


def instruction_set() -> str | None:
    """The instruction set the kernels run with on this machine; None where they cannot be built."""
    index = _instruction_set()
    return None if index is None else INSTRUCTION_SETS[index]


@contextmanager
def with_instruction_set(name: str) -> Iterator[None]:
    """Within it the kernels of this process run with these instructions, where the machine has better ones too."""
    before, _Cap.name = _Cap.name, name
    try:
        if instruction_set() != name:
            raise MissingDependencyError(
                f"instructions {name!r} are not at hand; use one of {', '.join(INSTRUCTION_SETS)}, "
                f"at most {instruction_set()}"
            )
        yield
    finally:
        _Cap.name = before


class Setting(NamedTuple):
    """How a pass computes: number format, block size and threads."""

    dtype: torch.dtype
    block: int
    threads: int


class Operands(NamedTuple):
    """Input, output and weight of a layer, of which a pass writes one, and the bias that a forward pass adds.

    ``epilogue`` is a name of `EPILOGUES`. ``second`` has shape and dtype of what the pass writes: the slope that an
    activation stores beside its value, or the scale that multiplies the result. ``statistics``, float32 ``[2, out]``,
    gets mean and biased variance of the channels that a forward pass writes; only where ``y`` has them innermost.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    bias: Tensor | None = None
    epilogue: str = ""
    second: Tensor | None = None
    statistics: Tensor | None = None


class TensorLayout(NamedTuple):
    """Shape and strides of an operand, in elements."""

    shape: Sizes
    strides: Sizes


def run_linear(name: str, operands: Operands, topology: BlockTopology) -> None:
    """Run pass ``name`` for ``x [tokens, in]`` and ``y [tokens, out]``; the operand that it writes is contiguous."""
    _run(name, _linear_sizes(*_shapes(operands)), operands, topology)


def run_conv2d(name: str, operands: Operands, topology: BlockTopology, geometry: Conv2dGeometry) -> None:
    """Run pass ``name`` for ``x [batch, in, h, w]`` and ``y [batch, out, oh, ow]`` in any memory format."""
    _run(name, _conv_sizes(*_shapes(operands), geometry), operands, topology)


def _shapes(operands: Operands) -> tuple[Setting, TensorLayout, TensorLayout]:
    x, y = operands.x, operands.y
    setting = Setting(x.dtype, operands.weight.shape[1], torch.get_num_threads())
    return setting, TensorLayout(x.shape, x.stride()), TensorLayout(y.shape, y.stride())


@lru_cache(maxsize=SHAPES_KEPT)
def _linear_sizes(setting: Setting, x: TensorLayout, y: TensorLayout) -> Sizes:
    """A 1x1 convolution over images one row high: strips of tokens."""
    tokens = x.shape[0]
    strip = strip_tokens(tokens, setting.threads)
    sizes = dict.fromkeys(("kernel_height", "kernel_width", "stride_y", "stride_x", "dilation_y", "dilation_x"), 1)
    sizes |= {"padding_y": 0, "padding_x": 0, "batch": -(-tokens // strip), "missing_cols": -tokens % strip}
    for image, operand in (("input", x), ("output", y)):
        token_stride, channel_stride = operand.strides
        sizes |= _image_sizes(image, (operand.shape[1], 1, strip))
        sizes |= _image_strides(image, (strip * token_stride, channel_stride, 0, token_stride))
    return _in_order(sizes, setting)


def strip_tokens(tokens: int, threads: int) -> int:
    """Tokens per strip, a multiple of 8: two strips per thread where there are tokens enough for that.

    Kernels that multiply pairs take strips two by two, so a small number of strips is made even.
    """
    strips = max(2 * threads, -(-tokens // STRIP_TOKENS))
    share = -(-tokens // (strips + strips % 2))
    return max(8, -(-share // 8) * 8)


@lru_cache(maxsize=SHAPES_KEPT)
def _conv_sizes(setting: Setting, x: TensorLayout, y: TensorLayout, geometry: Conv2dGeometry) -> Sizes:
    sizes = {"batch": x.shape[0], "missing_cols": 0}
    sizes["kernel_height"], sizes["kernel_width"] = geometry.kernel_size
    for name in ("stride", "padding", "dilation"):
        sizes[f"{name}_y"], sizes[f"{name}_x"] = getattr(geometry, name)
    for image, operand in (("input", x), ("output", y)):
        sizes |= _image_sizes(image, operand.shape[1:]) | _image_strides(image, operand.strides)
    return _in_order(sizes, setting)


def _image_sizes(image: str, sizes: Sequence[int]) -> dict[str, int]:
    return {f"{image}_{axis}": size for axis, size in zip(("channels", "height", "width"), sizes, strict=True)}


def _image_strides(image: str, strides: Sequence[int]) -> dict[str, int]:
    axes = ("image", "channel", "y", "x")
    return {f"{image}_{axis}_stride": stride for axis, stride in zip(axes, strides, strict=True)}


def _in_order(sizes: dict[str, int], setting: Setting) -> Sizes:
    bfloat16 = int(setting.dtype == torch.bfloat16)
    sizes |= {"bfloat16": bfloat16, "threads": setting.threads, "block": setting.block}
    return tuple(sizes[name] for name in SIZE_FIELDS)


def _instruction_set() -> int | None:
    library = load_library()
    if library is None:
        return None
    best: int = library.acf_best_instruction_set()
    if not _Cap.name:
        return best
    if _Cap.name not in INSTRUCTION_SETS:
        raise MissingDependencyError(
            f"ACF_CPU_ISA {_Cap.name!r} is no instruction set of the CPU kernels; use one of "
            f"{', '.join(INSTRUCTION_SETS)}, or unset it"
        )
    return min(best, INSTRUCTION_SETS.index(_Cap.name))


def readable_indices(topology: BlockTopology, walk: Walk, blocks: int) -> list[Tensor]:
    """The arrays of a topology as native code reads them; refused if those of the walk are not int32, or too short.

    What they say is checked in native code. The number of offsets is no question: sizes of operands come from it.
    """
    offsets, slots, indices = topology[walk.offsets], topology[walk.slots], topology[walk.indices]
    same_dtype = offsets.dtype is slots.dtype is indices.dtype is torch.int32
    if not (same_dtype and slots.numel() == indices.numel() == blocks):
        found = ", ".join(f"{_short(each.dtype)} {list(each.shape)}" for each in (offsets, slots, indices))
        raise TopologyError(
            f"offsets, slots and indices of a topology are {found} for {blocks} blocks, and should be int32 with one "
            "slot and one index for each; rebuild it with BlockTopology.build"
        )
    return [tensor.contiguous() for tensor in topology]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _run(name: str, sizes: Sizes, operands: Operands, topology: BlockTopology) -> None:
    weight = operands.weight.contiguous()
    indices = readable_indices(topology, BY_COLUMNS if name == "acf_input_gradient" else BY_ROWS, weight.shape[0])
    bias = None if operands.bias is None else operands.bias.float().contiguous()
    pointers = (operands.x.data_ptr(), operands.y.data_ptr(), weight.data_ptr(), weight.shape[0])
    bias_pointer = 0 if bias is None else bias.data_ptr()
    second_pointer = 0 if operands.second is None else operands.second.data_ptr()
    statistics_pointer = 0 if operands.statistics is None else operands.statistics.data_ptr()
    end = (bias_pointer, EPILOGUES[operands.epilogue], second_pointer, statistics_pointer)
    problem = PROBLEM.pack(*sizes, *pointers, *(tensor.data_ptr() for tensor in indices), *end)
    run_pass(name, problem)


def run_pass(name: str, problem: bytes) -> None:
    """Call the native pass ``name`` with its argument, a packed struct of ``native/problem.h``."""
    status = getattr(load_library(), name)(problem, _instruction_set())
    if status == 1:
        raise MemoryError(f"{name} found no memory for its packed operands; use a smaller batch")
    if status != 0:
        raise TopologyError(
            f"{name} met a topology that does not fit its operands (status {status}); "
            "rebuild it with BlockTopology.build"
        )
