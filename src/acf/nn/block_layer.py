"""The base of all block-sparse layers: packed weight, topology buffers, checkpoints, and moving blocks."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from acf.errors import TopologyError
from acf.masks import GridParts, Move, StartTopology
from acf.nn.fsdp import reshard_weight, why_fixed
from acf.nn.initial import fill_uniform, shared_generator
from acf.nn.sparse_layer import SparseLayer
from acf.ops import Conv2dGeometry, LayerIdentity, probed
from acf.sparse import BlockLayout, BlockTopology, distributed_like, frobenius_norms, is_sharded, whole, zero_slots
from acf.sparse.compiler_constant import compiler_constant

SAVED_TOPOLOGY = ("block_rows", "block_cols")
"""The topology buffers in the ``state_dict``; the others are derived from these."""


class BlockSparseLayer(SparseLayer):
    """Base of the sparse layers: ``weight [nnz, block_height, block_width]`` plus int32 topology buffers.

    ``block_rows`` and ``block_cols`` are saved in the ``state_dict``; the BSR and block-CSC indices are derived.
    The number of blocks never changes, so optimizer state, gradient buckets and compiled graphs stay valid; only a
    layer that starts dense loses blocks on its way to ``target_blocks``. A ``balanced`` layer holds the same number of
    blocks in every block row, within one.

    Code that expects a matrix gets it from `weight_matrix`; the packed ``weight`` is refused where it would be misread.
    A layer on the meta device has no topology. It gets one from a checkpoint or, once ``to_empty`` has given it memory,
    from `reset_parameters`, and refuses to compute before.
    """

    _version: int = 1
    """Format of the ``state_dict``, which torch keeps in its metadata. 1: since release 0.1.0."""

    _topology_missing: bool = False
    """Whether the buffers came from the meta device by ``to_empty``, and hold no topology yet."""
    _loading: bool = False

    target_blocks: int
    starts_dense: bool = False
    balanced: bool = False
    start: StartTopology = StartTopology()
    """How `reset_parameters` places the blocks of a layer that has no topology yet."""
    parts: GridParts | None = None
    """How the grid of blocks is split over processes by tensor parallelism; None if it is not."""
    rescale: bool = False
    """Whether `reset_parameters` scales what it draws by ``density ** -0.5``, as `BlockSparsity.rescale` asks."""

    block_rows: Tensor
    block_cols: Tensor
    row_offsets: Tensor
    row_slots: Tensor
    col_offsets: Tensor
    col_slots: Tensor

    def __init__(self, layout: BlockLayout, weight_matrix: Tensor, mask: Tensor, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.layout = layout
        device = weight_matrix.device
        topology = BlockTopology.from_mask(layout, mask if device.type == "meta" else mask.to(device))
        topology = BlockTopology(*(indices.to(device) for indices in topology))
        packed = layout.pack(weight_matrix.detach(), topology.block_rows, topology.block_cols)
        self.weight = nn.Parameter(packed)
        self.target_blocks = packed.shape[0]
        self.bias = bias
        self.identity = LayerIdentity(weight_matrix.device)
        for name, indices in topology._asdict().items():
            self.register_buffer(name, indices, persistent=name in SAVED_TOPOLOGY)

    @property
    def topology(self) -> BlockTopology:
        """The coordinates and indices of the packed blocks, as the ops take them; refused if they fit no weight."""
        if _is_exporting_onnx():
            raise TopologyError(
                f"ONNX has no block-sparse product for {type(self).__name__}; export a dense copy, "
                "acf.densify_(copy.deepcopy(model)), which computes the same, or keep the blocks with torch.export.save"
            )
        if self._topology_missing:
            raise TopologyError(
                f"{type(self).__name__} was made on the meta device and has no topology yet; load a state_dict of the "
                "sparse model, or call reset_parameters() on every module that has it to draw one"
            )
        if tuple(self.weight.shape) != (self.block_rows.shape[0], *self.block_shape):
            raise TopologyError(
                f"the packed weight is {list(self.weight.shape)}, this layer packs "
                f"{[self.block_rows.shape[0], *self.block_shape]} (blocks, block height, block width), so something "
                "took it for a matrix; use layer.weight_matrix(), or densify_ the model before merging or fusing"
            )
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

    def _probed(self, y: Tensor, x: Tensor, geometry: Conv2dGeometry | None = None, transposed: bool = False) -> Tensor:
        """``y``, the output for ``x``, with the layer's probe, if it has one, in the graph that is being compiled.

        Compilers guard on whether there is a probe: steps that score are another graph. Eager passes have observers.
        """
        if not (torch.compiler.is_compiling() and torch.is_grad_enabled()) or self.identity.probe is None:
            return y
        return probed(y, x, self.identity.probe, self.block_shape, geometry, transposed)

    @abstractmethod
    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""

    @property
    def input_count(self) -> int:
        """Number of inputs that `input_squares` tells apart: the columns of the weight matrix."""
        return self.layout.cols

    @abstractmethod
    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of the input that reaches each column of the weight matrix, float32 ``[input_count]``."""

    def input_weighted_norms(self, packed: Tensor, squares: Tensor) -> Tensor:
        """Norms of the blocks ``packed``, columns weighted by the root of their `input_squares`: float32 ``[nnz]``."""
        columns = squares.sqrt().reshape(self.layout.grid_cols, -1)
        return frobenius_norms(frobenius_norms(packed, dim=(1,)).mul_(columns[self.block_cols.long()]), dim=(1,))

    @torch.no_grad()
    def move_blocks(self, move: Move) -> Tensor:
        """Give slots to new blocks, zero their weights and gradients, and index the topology again, all in place.

        Returns bool ``[nnz]``: the slots that hold another block now.
        """
        rows, cols = self.block_rows.long(), self.block_cols.long()
        rows[move.slots], cols[move.slots] = move.new_rows, move.new_cols
        self._write_topology(BlockTopology.unchecked(self.layout, rows, cols))
        dropped = move.dropped(self.present_blocks)
        self.clear_slots(dropped)
        return dropped

    @torch.no_grad()
    def clear_slots(self, slots: Tensor) -> None:
        """Zero weights and gradients of the slots where bool ``slots [nnz]`` is true, in place."""
        zero_slots(self.weight, slots)
        if self.weight.grad is not None:
            zero_slots(self.weight.grad, slots)

    @torch.no_grad()
    def keep_blocks(self, slots: Tensor) -> None:
        """Drop every block but those in ``slots [kept]``; the parameter, its gradient and the topology shrink.

        The parameter stays the same object, so the optimizer keeps it.
        """
        grad = self.weight.grad
        topology = BlockTopology.unchecked(self.layout, self.block_rows[slots], self.block_cols[slots])
        self._resize(whole(self.weight)[slots], topology)
        self.weight.grad = None if grad is None else distributed_like(whole(grad)[slots], self.weight)

    @torch.no_grad()
    def replace_blocks(self, packed: Tensor, topology: BlockTopology) -> None:
        """Hold other blocks: ``packed [nnz, block_height, block_width]`` at the places of ``topology``, copied."""
        if packed.shape == self.weight.shape:
            self.weight.copy_(distributed_like(packed, self.weight))
            self._write_topology(topology)
        else:
            self._resize(packed.clone(), BlockTopology(*(each.to(packed.device, copy=True) for each in topology)))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weight and bias as the dense layer does, and a topology from random scores if the layer has none yet.

        This is how a model of the meta device starts from scratch, after ``to_empty``. `torch.manual_seed` decides what
        is drawn. Where the weight is sharded, all processes draw what the first one's seed gives. A layer that still
        is on the meta device stays as it is.
        """
        if self.weight.is_meta:
            return
        generator = shared_generator(self.weight)
        if not self._has_topology:
            self._draw_topology(generator)
        self._draw_weights(generator)
        if self.rescale:
            self.weight.mul_(self.density**-0.5)

    def _draw_topology(self, generator: torch.Generator) -> None:
        scores = torch.rand(self.layout.grid_rows, self.layout.grid_cols, generator=generator)
        topology = BlockTopology.from_mask(self.layout, self.start.mask(scores, self.weight.shape[0], self.balanced))
        device = self.block_rows.device if not self.block_rows.is_meta else self.weight.device
        self._set_topology(BlockTopology(*(indices.to(device) for indices in topology)))

    def _draw_weights(self, generator: torch.Generator) -> None:
        """As `torch.nn.Linear` and the convolutions do: uniform, within one over the root of the fan-in."""
        bound = self.layout.cols**-0.5
        for tensor in (self.weight, self.bias):
            if tensor is not None:
                fill_uniform(tensor, bound, generator)

    def copy_topology(self, other: "BlockSparseLayer") -> None:
        """Take over the topology of ``other``, which holds as many blocks."""
        self._write_topology(other.topology)

    def why_fixed(self) -> str:
        """Why the weight cannot hold another number of blocks, or an empty string."""
        return why_fixed(self) if is_sharded(self.weight) else ""

    def _resize(self, packed: Tensor, topology: BlockTopology) -> None:
        """Hold the whole ``packed`` weight of another number of blocks; under FSDP, this process's part of it."""
        self.weight.grad = None
        if is_sharded(self.weight):
            reshard_weight(self, packed)
            self._set_topology(topology)
            return
        # While a graph is alive, autograd keeps an accumulation node per parameter that expects the old shape. It drops
        # the node when the dtype changes, not when the shape does.
        self.weight.data = packed.new_empty(0, dtype=torch.float32 if packed.dtype is torch.float64 else torch.float64)
        self.weight.data = packed
        self._set_topology(topology)

    def _write_topology(self, topology: BlockTopology) -> None:
        """Write the topology in place, so that compiled graphs keep their buffers."""
        for name, indices in topology._asdict().items():
            getattr(self, name).copy_(indices)

    def _set_topology(self, topology: BlockTopology) -> None:
        """Put new buffers in the place of the old ones."""
        for name, indices in topology._asdict().items():
            self._buffers[name] = indices
        self._topology_missing = False

    @property
    def _has_topology(self) -> bool:
        return not (self._topology_missing or any(getattr(self, name).is_meta for name in BlockTopology._fields))

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a new ``weight`` or topology from outside, except where a loader fills a layer of the meta device.

        Such a loader (Hugging Face's ``from_pretrained``) assigns tensor by tensor, and gives derived buffers
        uninitialised memory, which is dropped.
        """
        is_ordinary = self._loading or name not in ("weight", *BlockTopology._fields)
        if is_ordinary or (name == "weight" and self._may_become_weight(value)):
            super().__setattr__(name, value)
        elif name in SAVED_TOPOLOGY and not self._has_topology:
            self._buffers[name] = value
            self._complete_topology()
        elif name in ("weight", *SAVED_TOPOLOGY):
            self._refuse_to_replace(name)

    def __delattr__(self, name: str) -> None:
        """Refuse to delete the ``weight``, as torch's parametrizations do (``spectral_norm``)."""
        if name == "weight":
            self._refuse_to_replace(name)
        super().__delattr__(name)

    def _refuse_to_replace(self, name: str) -> NoReturn:
        raise TopologyError(
            f"{name} of a {type(self).__name__} cannot be replaced: the weight is packed blocks that belong to a "
            "topology, no matrix; use load_state_dict, or densify_ the model before fusing, tying or parametrizing it"
        )

    def _may_become_weight(self, value: Any) -> bool:
        """Whether ``value`` is the first weight, or one for a layer on the meta device, or of FSDP."""
        weight = self._parameters.get("weight")
        return weight is None or value is weight or weight.is_meta or is_sharded(weight) or is_sharded(value)

    def _complete_topology(self) -> None:
        """Index the topology if both coordinates have values by now."""
        rows, cols = self.block_rows, self.block_cols
        if not (rows.is_meta or cols.is_meta):
            self._set_topology(BlockTopology.build(self.layout, rows, cols))

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "BlockSparseLayer":
        """Follow the model to another device with the topology as it is, even where ``to_empty`` drops all values."""
        before = {name: getattr(self, name) for name in BlockTopology._fields}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, indices in before.items():
            after = getattr(self, name)
            if indices.is_meta and not after.is_meta:
                self._topology_missing = True
            elif not after.is_meta and after is not indices:
                self._buffers[name] = indices.to(after.device)
        self.identity.move_to(self.block_rows.device)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *args: Any
    ) -> None:
        check_version(local_metadata, self, prefix)
        self.check_state(state_dict, prefix)
        rows, cols = (state_dict.get(prefix + name) for name in SAVED_TOPOLOGY)
        if self.starts_dense and rows is not None and cols is not None and rows.shape != self.block_rows.shape:
            topology = BlockTopology.build(self.layout, rows, cols)
            weight, device = self.weight, self.block_rows.device
            packed = torch.zeros(rows.numel(), *self.block_shape, dtype=weight.dtype, device=weight.device)
            self._resize(packed, BlockTopology(*(indices.to(device) for indices in topology)))
        self._loading = True
        try:
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        finally:
            self._loading = False
        if rows is not None and not self.block_rows.is_meta:
            self._index_loaded()

    def _index_loaded(self) -> None:
        """Index the topology anew from the coordinates that were loaded; in place where the buffers were real."""
        topology = BlockTopology.build(self.layout, self.block_rows, self.block_cols)
        if self._has_topology and self.row_slots.device == self.block_rows.device:
            self._write_topology(topology)
        else:
            self._set_topology(topology)

    def check_state(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Refuse a checkpoint of another block size or topology, or of a part of it, before anything is copied."""
        check_version(getattr(state_dict, "_metadata", {}).get(prefix.removesuffix("."), {}), self, prefix)
        names = ("weight", *SAVED_TOPOLOGY)
        weight, rows, cols = (state_dict.get(prefix + name) for name in names)
        if weight is not None and weight.dim() != 3 and rows is None and cols is None:
            raise TopologyError(
                f"{prefix}weight in the checkpoint is {list(weight.shape)}, a dense weight, and this layer is sparse; "
                "load the dense checkpoint into the dense model and call sparsify_ afterwards"
            )
        if weight is not None and not self.could_hold(tuple(weight.shape)):
            raise TopologyError(
                f"{prefix}weight in the checkpoint is {list(weight.shape)}, this layer packs "
                f"{list(self.weight.shape)} (blocks, block height, block width); "
                "sparsify_ the model with the block size and sparsity of the checkpoint before loading it, "
                "or let acf.load_sparse do both"
            )
        absent = [name for name in names if prefix + name not in state_dict]
        if absent and len(absent) < len(names):
            raise TopologyError(
                f"the checkpoint holds only a part of {prefix.removesuffix('.')}: {prefix}{absent[0]} is missing, and "
                "packed weights without their topology would land in wrong places; save the whole state_dict, buffers "
                "included, or leave out all of the layer"
            )
        if rows is not None and cols is not None and not (rows.is_meta or cols.is_meta):
            BlockTopology.build(self.layout, rows, cols)

    def check_slots(self, rows: Tensor, cols: Tensor, name: str, sortable: bool) -> None:
        """Refuse the places of saved blocks, if only some orders of slots fit; here all do."""

    def could_hold(self, shape: tuple[int, ...]) -> bool:
        """Whether a packed weight of this shape fits; a layer that starts dense holds any number from its target up."""
        if self.starts_dense and shape[1:] == self.block_shape:
            return self.target_blocks <= shape[0] <= self.layout.block_count
        return shape == tuple(self.weight.shape)

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        height, width = self.block_shape
        blocks = f"{self.present_blocks}/{self.layout.block_count}"
        return f"block={height}x{width}, blocks={blocks}, bias={self.bias is not None}"


def check_version(metadata: dict[str, Any], layer: BlockSparseLayer, prefix: str) -> None:
    """Refuse the ``state_dict`` of a layer in a newer format; ``metadata`` is what torch keeps beside it, if any."""
    version = metadata.get("version")
    if version is not None and version > layer._version:
        raise TopologyError(
            f"{prefix.removesuffix('.')} was saved in format {version} of block-sparse layers, this release of acf "
            f"reads formats up to {layer._version}; update acf"
        )


@compiler_constant
def _is_exporting_onnx() -> bool:
    """Whether `torch.onnx.export` runs; called for its value where TorchDynamo would take the function for False."""
    return torch.onnx.is_in_onnx_export()
