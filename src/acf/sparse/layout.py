"""The grid of blocks of a matrix: packing, unpacking and norms of blocks, and convolution weights as matrices."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from acf.errors import SparsityError, require_kind


@dataclass(frozen=True)
class BlockLayout:
    """A ``[rows, cols]`` matrix cut into ``block_height`` x ``block_width`` blocks.

    ``stacked`` matrices of one shape may lie below each other in it, as those of a layer's experts do; no block lies
    in two of them.

    >>> layout = BlockLayout(rows=64, cols=128, block_height=16, block_width=16)
    >>> layout.grid_rows, layout.grid_cols, layout.block_count
    (4, 8, 32)
    """

    rows: int
    cols: int
    block_height: int
    block_width: int
    stacked: int = 1

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            require_kind(number, (int, np.integer, torch.SymInt), name, "pass an integer")
        if self.stacked < 1:
            raise SparsityError(f"stacked is {self.stacked}; pass how many matrices lie below each other, at least 1")
        for size, block, name in (
            (self.rows // self.stacked, self.block_height, "rows"),
            (self.cols, self.block_width, "columns"),
        ):
            if self.rows % self.stacked:
                raise SparsityError(f"{self.rows} rows are not {self.stacked} matrices of one shape; give equal ones")
            if block < 1 or size < 1 or size % block:
                raise SparsityError(
                    f"block {block} does not divide {size} {name}; use a block that does, such as a divisor of {size}"
                )

    @property
    def grid_rows(self) -> int:
        """Number of block rows."""
        return self.rows // self.block_height

    @property
    def grid_cols(self) -> int:
        """Number of block columns."""
        return self.cols // self.block_width

    @property
    def block_count(self) -> int:
        """Number of blocks, present or not."""
        return self.grid_rows * self.grid_cols

    @property
    def block_elements(self) -> int:
        """Number of elements of one block."""
        return self.block_height * self.block_width

    def blocks(self, dense: Tensor) -> Tensor:
        """View ``dense [rows, cols]`` as ``[grid_rows, grid_cols, block_height, block_width]``."""
        if dense.shape != (self.rows, self.cols):
            raise SparsityError(
                f"a matrix of shape {list(dense.shape)} is not the {self.rows} x {self.cols} of this layout; pass one "
                "that is, or build the layout of this one"
            )
        cut = dense.reshape(self.grid_rows, self.block_height, self.grid_cols, self.block_width)
        return cut.permute(0, 2, 1, 3)

    def pack(self, dense: Tensor, block_rows: Tensor, block_cols: Tensor) -> Tensor:
        """Gather the named blocks of ``dense [rows, cols]`` into ``[nnz, block_height, block_width]``."""
        return self.blocks(dense)[block_rows.long(), block_cols.long()].contiguous()

    def unpack(self, packed: Tensor, block_rows: Tensor, block_cols: Tensor) -> Tensor:
        """Scatter ``packed [nnz, block_height, block_width]`` into a dense ``[rows, cols]``; the rest is zero."""
        grid = packed.new_zeros(self.grid_rows, self.grid_cols, self.block_height, self.block_width)
        grid[block_rows.long(), block_cols.long()] = packed
        return grid.permute(0, 2, 1, 3).reshape(self.rows, self.cols)

    def block_norms(self, dense: Tensor) -> Tensor:
        """Frobenius norm of every block of ``dense [rows, cols]``, as float32 ``[grid_rows, grid_cols]``."""
        return frobenius_norms(self.blocks(dense), dim=(2, 3))


def frobenius_norms(tensor: Tensor, dim: tuple[int, ...]) -> Tensor:
    """Root of the summed squares over ``dim``, summed in float32 or better and given as float32."""
    precision = torch.promote_types(tensor.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(tensor, dim=dim, dtype=precision)
    return norms.float()


def conv_weight_to_matrix(weight: Tensor) -> Tensor:
    """``[out, in, kh, kw]`` as ``[out, kh*kw*in]``: a block column is consecutive channels at one kernel tap."""
    return weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)


def matrix_to_conv_weight(
    matrix: Tensor, kernel_size: tuple[int, int], memory_format: torch.memory_format = torch.contiguous_format
) -> Tensor:
    """The inverse of `conv_weight_to_matrix`: ``[out, kh*kw*in]`` as ``[out, in, kh, kw]``; channels last is a view."""
    weight = matrix.reshape(matrix.shape[0], *kernel_size, -1).permute(0, 3, 1, 2)
    return weight.contiguous(memory_format=memory_format)
