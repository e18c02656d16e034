"""What a program computes: one pass of a linear or convolution layer whose weight holds some of its blocks."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.runtime import numbers
from acf.runtime.errors import InvalidValueError, NotSupportedError
from acf.trace.op import PHASES, TracedConv

Coordinates = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class WeightBlocks:
    """The present blocks of a weight ``[rows, columns]``, as memory holds them: ``[blocks, height, width]``.

    Block ``s`` in memory stands at block row ``block_rows[s]`` and block column ``block_columns[s]``, in any order. A
    dense weight is one block.

    >>> WeightBlocks.from_mask([[True, False], [False, True]], (8, 4)).shape
    (2, 8, 4)
    """

    rows: int
    columns: int
    block_shape: tuple[int, int]
    block_rows: Coordinates
    block_columns: Coordinates

    def __post_init__(self) -> None:
        height, width = self.block_shape
        sizes = (self.rows, self.columns, height, width)
        are_counts = all(isinstance(size, int | np.integer) and size >= 1 for size in sizes)
        if not are_counts or self.rows % height or self.columns % width:
            raise InvalidValueError(
                f"blocks of {height} x {width} do not divide a weight of {self.rows} x {self.columns}; use a block "
                "that does"
            )
        for name in ("block_rows", "block_columns"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int32))
        if self.block_rows.ndim != 1 or self.block_rows.shape != self.block_columns.shape:
            raise InvalidValueError(
                f"{self.block_rows.shape} block rows and {self.block_columns.shape} block columns are not two vectors "
                "of one length; give both coordinates of every block"
            )
        grid_rows, grid_columns = self.rows // height, self.columns // width
        places = self.block_rows.astype(np.int64) * grid_columns + self.block_columns
        outside = (self.block_rows < 0) | (self.block_rows >= grid_rows)
        outside |= (self.block_columns < 0) | (self.block_columns >= grid_columns)
        if outside.any() or np.unique(places).size != places.size:
            raise InvalidValueError(
                f"the coordinates of {places.size} blocks repeat or leave the grid of {grid_rows} x {grid_columns}; "
                "name every present block once"
            )

    @classmethod
    def dense(cls, rows: int, columns: int) -> "WeightBlocks":
        """A weight without absent blocks, ``[rows, columns]`` in memory."""
        zero = np.zeros(1, dtype=np.int32)
        return cls(rows, columns, (rows, columns), zero, zero)

    @classmethod
    def from_mask(cls, mask: ArrayLike, block_shape: tuple[int, int]) -> "WeightBlocks":
        """The blocks where a bool ``[block rows, block columns]`` mask is True, row by row."""
        present = np.asarray(mask, dtype=bool)
        block_rows, block_columns = (axis.astype(np.int32) for axis in np.nonzero(present))
        rows, columns = (count * side for count, side in zip(present.shape, block_shape, strict=True))
        return cls(rows, columns, block_shape, block_rows, block_columns)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Blocks, height, width: the shape in memory."""
        return int(self.block_rows.size), *self.block_shape

    @property
    def is_dense(self) -> bool:
        """Whether no block is absent."""
        return self.shape[0] * prod(self.block_shape) == self.rows * self.columns

    def to_matrix(self, blocks: numbers.Values) -> numbers.Values:
        """``[blocks, height, width]`` as the matrix ``[rows, columns]``, zero where a block is absent."""
        height, width = self.block_shape
        grid = np.zeros((self.rows // height, self.columns // width, height, width), dtype=blocks.dtype)
        grid[self.block_rows, self.block_columns] = blocks.reshape(self.shape)
        return grid.transpose(0, 2, 1, 3).reshape(self.rows, self.columns)

    def from_matrix(self, matrix: numbers.Values) -> numbers.Values:
        """The present blocks of a matrix ``[rows, columns]``, ``[blocks, height, width]``."""
        height, width = self.block_shape
        grid = matrix.reshape(self.rows // height, height, self.columns // width, width).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(grid[self.block_rows, self.block_columns])

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """Elements that are present, bool ``[rows, columns]``."""
        return self.to_matrix(np.ones(self.shape, dtype=np.float32)) > 0


@dataclass(frozen=True)
class Argument:
    """An operand or the result of a program: its name, shape and number format."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes in device memory."""
        return prod(self.shape) * numbers.number_format(self.dtype).itemsize

    def encode(self, values: ArrayLike) -> numbers.Bytes:
        """The bytes of an array of this shape."""
        array = np.asarray(values)
        if array.size != prod(self.shape):
            raise InvalidValueError(f"{self.name} has shape {list(array.shape)}, not {list(self.shape)}; pass that one")
        return numbers.encode(array, self.dtype)

    def decode(self, raw: numbers.Bytes) -> numbers.Values:
        """The array that bytes stand for, float32."""
        return numbers.decode(raw, self.dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {list(self.shape)}"


ARGUMENT_NAMES = {
    "forward": ("x", "weight", "output"),
    "input_grad": ("output_grad", "weight", "input_grad"),
    "weight_grad": ("output_grad", "x", "weight_grad"),
}
"""Operands and result of each phase, in the order in which `launch` takes their buffers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Product:
    """One pass of a layer over ``rows`` tokens, or over ``rows`` images where ``conv`` gives the geometry.

    Linear layers: x ``[rows, in]``, output ``[rows, out]``, weight ``[out, in]``:
    output = x W^T, input_grad = output_grad W, weight_grad = output_grad^T x in the present blocks. Convolutions: x
    ``[rows, channels, h, w]``, output ``[rows, out, oh, ow]``, weight ``[out, kh*kw*channels]``, channels innermost.
    Operands lie in memory as ``operand_dtype``, the result as ``result_dtype``; "fp32" or "bf16".
    """

    phase: str
    rows: int
    weight: WeightBlocks
    conv: TracedConv | None = None
    operand_dtype: str = "bf16"
    result_dtype: str = "fp32"
    name: str = ""

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise InvalidValueError(f"phase {self.phase!r} is not one of {', '.join(PHASES)}; use one of these")
        if not isinstance(self.rows, int | np.integer) or self.rows < 1:
            raise InvalidValueError(f"rows {self.rows!r} is no integer from 1; give the number of tokens or images")
        if not isinstance(self.weight, WeightBlocks) or not isinstance(self.name, str):
            raise InvalidValueError(
                f"weight {type(self.weight).__name__} and name {self.name!r} are no WeightBlocks and text; pass "
                "WeightBlocks.dense or from_mask"
            )
        for dtype in (self.operand_dtype, self.result_dtype):
            numbers.number_format(dtype)
        if self.conv is None:
            return
        if self.conv.groups != 1:
            raise NotSupportedError(f"a convolution of {self.conv.groups} groups has no program; run it on the host")
        if self.weight.columns % self.conv.taps:
            raise InvalidValueError(
                f"a weight of {self.weight.columns} columns does not divide into the {self.conv.taps} taps of a "
                f"{self.conv.kernel_size[0]} x {self.conv.kernel_size[1]} kernel; pass [out, kh*kw*in]"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the layer's input."""
        if self.conv is None:
            return self.rows, self.weight.columns
        return self.rows, self.weight.columns // self.conv.taps, *self.conv.input_size

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the layer's output."""
        return (self.rows, self.weight.rows, *(self.conv.output_map if self.conv else ()))

    @cached_property
    def arguments(self) -> tuple[Argument, Argument, Argument]:
        """The two operands and the result."""
        shapes: dict[str, tuple[int, ...]] = {
            "x": self.input_shape,
            "input_grad": self.input_shape,
            "output": self.output_shape,
            "output_grad": self.output_shape,
            "weight": self.weight.shape,
            "weight_grad": self.weight.shape,
        }
        dtypes = (self.operand_dtype, self.operand_dtype, self.result_dtype)
        a, b, result = (
            Argument(name, shapes[name], dtype) for name, dtype in zip(ARGUMENT_NAMES[self.phase], dtypes, strict=True)
        )
        return a, b, result

    def __str__(self) -> str:
        a, b, result = self.arguments
        kind = "linear" if self.conv is None else f"conv {self.conv.kernel_size[0]}x{self.conv.kernel_size[1]}"
        return f"{kind} {self.phase}: {a}, {b} -> {result}"
