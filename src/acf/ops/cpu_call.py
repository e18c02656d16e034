"""One call of a native pass: describing the layer as ``struct Problem`` of ``native/problem.h``, and running it.

A pass of a small layer takes as long as a few hundred cache misses of the interpreter, which large products leave
cold: so the sizes are put together once per layer shape, and a call packs them and its pointers in one step.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor

from acf.errors import MissingDependencyError, TopologyError
from acf.ops.cpu_build import load_library
from acf.sparse import BlockTopology

INSTRUCTION_SETS = ("portable", "avx2", "avx512", "avx512bf16")  # in the order of dispatch.cpp
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
# The sizes; input, output and weight; the number of blocks; the topology's arrays.
PROBLEM = struct.Struct(f"{len(SIZE_FIELDS)}q3Pq{len(BlockTopology._fields)}P")

Sizes = tuple[int, ...]


class _Cap:
    """The best instruction set that may be used, for the whole process: backward passes run in threads of their own."""

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


def run_linear(name: str, x: Tensor, y: Tensor, weight: Tensor, topology: BlockTopology) -> None:
    """Run pass ``name`` for ``x [tokens, in]`` and ``y [tokens, out]``; the result among the three is contiguous."""
    sizes = _linear_sizes(x.dtype, weight.shape[1], torch.get_num_threads(), x.shape, x.stride(), y.shape, y.stride())
    _run(name, sizes, x, y, weight, topology)


def run_conv2d(
    name: str, x: Tensor, y: Tensor, weight: Tensor, topology: BlockTopology, geometry: Sequence[Sequence[int]]
) -> None:
    """Run pass ``name`` for ``x [batch, in, h, w]`` and ``y [batch, out, oh, ow]`` in any memory format."""
    pairs = tuple((pair[0], pair[1]) for pair in geometry)
    threads = torch.get_num_threads()
    sizes = _conv_sizes(x.dtype, weight.shape[1], threads, x.shape, x.stride(), y.shape, y.stride(), pairs)
    _run(name, sizes, x, y, weight, topology)


@lru_cache(maxsize=SHAPES_KEPT)
def _linear_sizes(
    dtype: torch.dtype, block: int, threads: int, x_size: Sizes, x_strides: Sizes, y_size: Sizes, y_strides: Sizes
) -> Sizes:
    """A 1x1 convolution over images one row high: strips of tokens."""
    tokens = x_size[0]
    strip = strip_tokens(tokens, threads)
    sizes = dict.fromkeys(("kernel_height", "kernel_width", "stride_y", "stride_x", "dilation_y", "dilation_x"), 1)
    sizes |= {"padding_y": 0, "padding_x": 0, "batch": -(-tokens // strip), "missing_cols": -tokens % strip}
    for image, size, (token_stride, channel_stride) in (("input", x_size, x_strides), ("output", y_size, y_strides)):
        sizes |= _image_sizes(image, (size[1], 1, strip))
        sizes |= _image_strides(image, (strip * token_stride, channel_stride, 0, token_stride))
    return _in_order(sizes, dtype, block, threads)


def strip_tokens(tokens: int, threads: int) -> int:
    """Tokens per strip, a multiple of 8: two strips per thread where there are tokens enough for that.

    Kernels that multiply pairs take strips two by two, so few strips had better be an even number.
    """
    strips = max(2 * threads, -(-tokens // STRIP_TOKENS))
    share = -(-tokens // (strips + strips % 2))
    return max(8, -(-share // 8) * 8)


@lru_cache(maxsize=SHAPES_KEPT)
def _conv_sizes(
    dtype: torch.dtype,
    block: int,
    threads: int,
    x_size: Sizes,
    x_strides: Sizes,
    y_size: Sizes,
    y_strides: Sizes,
    geometry: tuple[tuple[int, int], ...],
) -> Sizes:
    sizes = {"batch": x_size[0], "missing_cols": 0}
    sizes["kernel_height"], sizes["kernel_width"] = geometry[0]
    for name, pair in zip(("stride", "padding", "dilation"), geometry[1:], strict=True):
        sizes |= {f"{name}_y": pair[0], f"{name}_x": pair[1]}
    for image, size, strides in (("input", x_size, x_strides), ("output", y_size, y_strides)):
        sizes |= _image_sizes(image, size[1:]) | _image_strides(image, strides)
    return _in_order(sizes, dtype, block, threads)


def _image_sizes(image: str, sizes: Sequence[int]) -> dict[str, int]:
    return {f"{image}_{axis}": size for axis, size in zip(("channels", "height", "width"), sizes, strict=True)}


def _image_strides(image: str, strides: Sequence[int]) -> dict[str, int]:
    axes = ("image", "channel", "y", "x")
    return {f"{image}_{axis}_stride": stride for axis, stride in zip(axes, strides, strict=True)}


def _in_order(sizes: dict[str, int], dtype: torch.dtype, block: int, threads: int) -> Sizes:
    sizes |= {"bfloat16": int(dtype == torch.bfloat16), "threads": threads, "block": block}
    return tuple(sizes[name] for name in SIZE_FIELDS)


def _instruction_set() -> int | None:
    library = load_library()
    if library is None:
        return None
    best: int = library.acf_best_instruction_set()
    return min(best, INSTRUCTION_SETS.index(_Cap.name)) if _Cap.name in INSTRUCTION_SETS else best


def _run(name: str, sizes: Sizes, x: Tensor, y: Tensor, weight: Tensor, topology: BlockTopology) -> None:
    weight, indices = weight.contiguous(), [tensor.contiguous() for tensor in topology]
    pointers = (x.data_ptr(), y.data_ptr(), weight.data_ptr(), weight.shape[0])
    problem = PROBLEM.pack(*sizes, *pointers, *(tensor.data_ptr() for tensor in indices))
    status = getattr(load_library(), name)(problem, _instruction_set())
    if status == 1:
        raise MemoryError(f"{name} found no memory for its packed operands; use a smaller batch")
    if status != 0:
        raise TopologyError(
            f"{name} met a topology that does not fit its operands (status {status}); "
            "rebuild it with BlockTopology.build"
        )
