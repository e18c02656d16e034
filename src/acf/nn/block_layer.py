"""The base of all block-sparse layers: packed weight, topology buffers, checkpoints, and moving blocks."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import TopologyError
from acf.masks import Move
from acf.nn.sparse_layer import SparseLayer
from acf.ops import LayerIdentity
from acf.sparse import BlockLayout, BlockTopology, zero_slots


class BlockSparseLayer(SparseLayer):
    """Base of the sparse layers: ``weight [nnz, block_height, block_width]`` plus int32 topology buffers.

    ``block_rows`` and ``block_cols`` are saved in the ``state_dict``; the BSR and block-CSC indices are derived.
    The number of blocks never changes, so optimizer state, gradient buckets and compiled graphs stay valid; only a
    layer that starts dense loses blocks on its way to ``target_blocks``. A ``balanced`` layer holds the same number of
    blocks in every block row, within one.
    """

    target_blocks: int
    starts_dense: bool = False
    balanced: bool = False

    block_rows: Tensor
    block_cols: Tensor
    row_offsets: Tensor
    row_slots: Tensor
    col_offsets: Tensor
    col_slots: Tensor

    def __init__(self, layout: BlockLayout, weight_matrix: Tensor, mask: Tensor, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.layout = layout
        topology = BlockTopology.from_mask(layout, mask.to(weight_matrix.device))
        packed = layout.pack(weight_matrix.detach(), topology.block_rows, topology.block_cols)
        self.weight = nn.Parameter(packed)
        self.target_blocks = packed.shape[0]
        self.bias = bias
        self.identity = LayerIdentity(weight_matrix.device)
        for name, indices in topology._asdict().items():
            self.register_buffer(name, indices, persistent=name in ("block_rows", "block_cols"))

    @property
    def topology(self) -> BlockTopology:
        """The coordinates and indices of the packed blocks, as the ops take them."""
        return BlockTopology(
            self.block_rows,
            self.block_cols,
            self.row_offsets,
            self.row_slots,
            self.col_offsets,
            self.col_slots,
        )

    @property
    def block_shape(self) -> tuple[int, int]:
        """Height and width of a block."""
        return self.layout.block_height, self.layout.block_width

    @property
    def present_blocks(self) -> int:
        """Number of blocks that are stored."""
        return self.weight.shape[0]

    @property
    def density(self) -> float:
        """Stored blocks over all blocks."""
        return self.present_blocks / self.layout.block_count

    def mask(self) -> Tensor:
        """Bool ``[grid_rows, grid_cols]``: which blocks are present."""
        return self.topology.mask(self.layout)

    def weight_matrix(self) -> Tensor:
        """The weight as a dense ``[rows, cols]`` matrix, absent blocks zero; differentiable."""
        return self.layout.unpack(self.weight, self.block_rows, self.block_cols)

    @property
    def dense_weights(self) -> int:
        """Number of weights of the dense layer."""
        return self.layout.rows * self.layout.cols

    def forward_matrix(self) -> Tensor:
        """`weight_matrix`, detached."""
        return self.weight_matrix().detach()

    def gradient_mask(self) -> Tensor:
        """Bool ``[rows, cols]``: only present blocks have a gradient."""
        height, width = self.block_shape
        return self.mask().repeat_interleave(height, 0).repeat_interleave(width, 1)

    @abstractmethod
    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""

    @abstractmethod
    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of the input that reaches each column of the weight matrix, float32 ``[cols]``."""

    @torch.no_grad()
    def move_blocks(self, move: Move) -> Tensor:
        """Give slots to new blocks, zero their weights and gradients, and index the topology again, all in place.

        Returns bool ``[nnz]``: the slots that hold another block now.
        """
        rows, cols = self.block_rows.long(), self.block_cols.long()
        rows[move.slots], cols[move.slots] = move.new_rows, move.new_cols
        self._write_topology(BlockTopology.unchecked(self.layout, rows, cols))
        dropped = move.dropped(self.present_blocks)
        zero_slots(self.weight, dropped)
        if self.weight.grad is not None:
            zero_slots(self.weight.grad, dropped)
        return dropped

    @torch.no_grad()
    def keep_blocks(self, slots: Tensor) -> None:
        """Drop every block but those in ``slots [kept]``; the parameter, its gradient and the topology shrink.

        The parameter stays the same object, so the optimizer keeps it.
        """
        grad = self.weight.grad
        topology = BlockTopology.unchecked(self.layout, self.block_rows[slots], self.block_cols[slots])
        self._resize(self.weight[slots], topology)
        self.weight.grad = None if grad is None else grad[slots]

    def _resize(self, packed: Tensor, topology: BlockTopology) -> None:
        self.weight.grad = None
        # While a graph is alive, autograd keeps an accumulation node per parameter that expects the old shape. It drops
        # the node when the dtype changes, not when the shape does.
        self.weight.data = packed.new_empty(0, dtype=torch.float32 if packed.dtype is torch.float64 else torch.float64)
        self.weight.data = packed
        for name, indices in topology._asdict().items():
            setattr(self, name, indices)

    def _write_topology(self, topology: BlockTopology) -> None:
        for name, indices in topology._asdict().items():
            getattr(self, name).copy_(indices)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "BlockSparseLayer":
        """Move the layer's token with the buffers; it is no buffer itself, since its value belongs to this process."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.identity.move_to(self.block_rows.device)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *args: Any
    ) -> None:
        self.check_state(state_dict, prefix)
        rows, cols = state_dict.get(prefix + "block_rows"), state_dict.get(prefix + "block_cols")
        if self.starts_dense and rows is not None and cols is not None and rows.shape != self.block_rows.shape:
            topology = BlockTopology.build(self.layout, rows, cols)
            packed = self.weight.detach().new_zeros(rows.numel(), *self.block_shape)
            self._resize(packed, BlockTopology(*(indices.to(packed.device) for indices in topology)))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        self._write_topology(BlockTopology.build(self.layout, self.block_rows, self.block_cols))

    def check_state(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Refuse a checkpoint of another block size or topology before anything is copied."""
        weight = state_dict.get(prefix + "weight")
        if weight is not None and not self._could_hold(tuple(weight.shape)):
            raise TopologyError(
                f"{prefix}weight in the checkpoint is {list(weight.shape)}, this layer packs "
                f"{list(self.weight.shape)} (blocks, block height, block width); "
                "sparsify_ the model with the block size and sparsity of the checkpoint before loading it"
            )
        rows, cols = state_dict.get(prefix + "block_rows"), state_dict.get(prefix + "block_cols")
        if rows is not None and cols is not None:
            BlockTopology.build(self.layout, rows, cols)

    def _could_hold(self, shape: tuple[int, ...]) -> bool:
        """Whether a packed weight of this shape fits; a layer that starts dense holds any number from its target up."""
        if self.starts_dense and shape[1:] == self.block_shape:
            return self.target_blocks <= shape[0] <= self.layout.block_count
        return shape == tuple(self.weight.shape)

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        height, width = self.block_shape
        blocks = f"{self.present_blocks}/{self.layout.block_count}"
        return f"block={height}x{width}, blocks={blocks}, bias={self.bias is not None}"
