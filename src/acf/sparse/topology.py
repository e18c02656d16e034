"""Which blocks of a matrix are present, indexed as block-CSR and block-CSC."""

from typing import NamedTuple

import torch
from torch import Tensor

from acf.errors import ArgumentError, TopologyError, require_kind
from acf.sparse.layout import BlockLayout


class BlockTopology(NamedTuple):
    """The coordinates of the packed blocks of a matrix; all tensors are int32 on one device.

    Slot ``s`` of a packed ``[nnz, block_height, block_width]`` tensor is the block at
    ``(block_rows[s], block_cols[s])``. Slots are in no particular order, because a regrown block takes the slot of
    a dropped one. The other four tensors are block-CSR and block-CSC over the slots: row ``i`` owns the slots
    ``row_slots[row_offsets[i]:row_offsets[i + 1]]`` in ascending column order, and columns likewise. Where a layout
    stacks matrices, each has columns of its own: column ``j`` of matrix ``m`` has the index ``m * grid_cols + j``.

    >>> layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    >>> topology = BlockTopology.build(layout, torch.tensor([1, 0]), torch.tensor([0, 1]))
    >>> topology.row_offsets.tolist(), topology.row_slots.tolist()
    ([0, 1, 2], [1, 0])
    """

    block_rows: Tensor
    block_cols: Tensor
    row_offsets: Tensor
    row_slots: Tensor
    col_offsets: Tensor
    col_slots: Tensor

    @classmethod
    def build(cls, layout: BlockLayout, block_rows: Tensor, block_cols: Tensor) -> "BlockTopology":
        """Index the blocks at ``(block_rows[s], block_cols[s])``, refusing repeats and blocks outside the grid."""
        for name, each in (("block_rows", block_rows), ("block_cols", block_cols)):
            check_indices(each, name)
        _check_blocks(layout, block_rows.long(), block_cols.long())
        return cls.unchecked(layout, block_rows, block_cols)

    @classmethod
    def unchecked(cls, layout: BlockLayout, block_rows: Tensor, block_cols: Tensor) -> "BlockTopology":
        """`build` without the checks, for blocks known to be valid: never waits for the device."""
        rows, cols = block_rows.long(), block_cols.long()
        row_slots = torch.argsort(rows * layout.grid_cols + cols, stable=True)
        columns = cols
        if layout.stacked > 1:
            matrices = torch.div(rows, layout.grid_rows // layout.stacked, rounding_mode="floor")
            columns = matrices * layout.grid_cols + cols
        col_slots = torch.argsort(columns * layout.grid_rows + rows, stable=True)
        return cls(
            block_rows=rows.int(),
            block_cols=cols.int(),
            row_offsets=_offsets(rows[row_slots], layout.grid_rows),
            row_slots=row_slots.int(),
            col_offsets=_offsets(columns[col_slots], layout.stacked * layout.grid_cols),
            col_slots=col_slots.int(),
        )

    @classmethod
    def from_mask(cls, layout: BlockLayout, mask: Tensor) -> "BlockTopology":
        """Index the true blocks of a bool ``mask [grid_rows, grid_cols]``, slots in row-major order."""
        require_kind(mask, Tensor, "mask", "pass a bool tensor [grid_rows, grid_cols]")
        if mask.dtype is not torch.bool or mask.shape != (layout.grid_rows, layout.grid_cols):
            raise TopologyError(
                f"a mask of {str(mask.dtype).removeprefix('torch.')} {list(mask.shape)} says nothing of "
                f"{layout.grid_rows} x {layout.grid_cols} blocks; pass a bool for each of them"
            )
        rows, cols = torch.nonzero(mask, as_tuple=True)
        return cls.unchecked(layout, rows, cols)

    def mask(self, layout: BlockLayout) -> Tensor:
        """The bool ``[grid_rows, grid_cols]`` mask of present blocks."""
        mask = torch.zeros(layout.block_count, dtype=torch.bool, device=self.block_rows.device)
        places = self.block_rows.long() * layout.grid_cols + self.block_cols
        mask.scatter_(0, places, True)  # assigning by index would copy the value from the host
        return mask.reshape(layout.grid_rows, layout.grid_cols)


def _offsets(sorted_indices: Tensor, count: int) -> Tensor:
    """Where each of ``count`` groups starts in ascending ``sorted_indices``: int32 ``[count + 1]``."""
    groups = torch.arange(count + 1, device=sorted_indices.device)
    return torch.searchsorted(sorted_indices, groups, out_int32=True)


def check_indices(indices: Tensor, name: str) -> None:
    """Refuse what are no integers, of which fractions would be cut off."""
    require_kind(indices, Tensor, name, "pass a tensor with one index for each block")
    if indices.dtype is torch.bool or indices.is_floating_point() or indices.is_complex():
        raise ArgumentError(f"{name} is {str(indices.dtype).removeprefix('torch.')}; pass one integer for each block")


def check_pairs(rows: Tensor, cols: Tensor) -> None:
    """Refuse rows and columns that are not two vectors of one length."""
    if rows.shape != cols.shape or rows.dim() != 1:
        raise TopologyError(
            f"block_rows {tuple(rows.shape)} and block_cols {tuple(cols.shape)} must be two vectors of one length; "
            "pass one row and one column per packed block"
        )


def check_inside(layout: BlockLayout, rows: Tensor, cols: Tensor) -> None:
    """Refuse coordinates ``rows [blocks]`` and ``cols [blocks]`` of blocks that lie outside the grid."""
    check_pairs(rows, cols)
    if rows.numel() == 0:
        return
    inside = (rows >= 0) & (rows < layout.grid_rows) & (cols >= 0) & (cols < layout.grid_cols)
    if not bool(inside.all()):
        slot = int(torch.nonzero(~inside)[0])
        raise TopologyError(
            f"block ({int(rows[slot])}, {int(cols[slot])}) lies outside the {layout.grid_rows} x {layout.grid_cols} "
            "grid of blocks; the file or mask belongs to a layer of another shape or block size"
        )


def _check_blocks(layout: BlockLayout, rows: Tensor, cols: Tensor) -> None:
    check_inside(layout, rows, cols)
    if torch.unique(rows * layout.grid_cols + cols).numel() != rows.numel():
        raise TopologyError(
            "a block is named by two slots; each block may be present once, so rebuild the topology from a mask"
        )
