"""Tensor parallelism for block-sparse linear layers: styles for torch's ``parallelize_module``.

The weight is a DTensor ``[nnz, block_height, block_width]``, sharded by slot. The slots are in the order of the parts
of the grid, and every part has as many blocks as any other. The topology is that of the whole layer, in every process.
So a ``state_dict`` has the form of the unsplit layer, and optimizers, gradient clipping and checkpoints meet a DTensor
as those of torch's own styles.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from acf.errors import TopologyError
from acf.masks import GridParts, top_blocks
from acf.nn.autocast import cast_for_autocast
from acf.nn.block_layer import SAVED_TOPOLOGY
from acf.nn.fsdp import become
from acf.nn.linear import BlockSparseLinear
from acf.ops import block_linear
from acf.sparse import BlockLayout, BlockTopology, is_sharded, whole


class ColwiseBlockParallel(ParallelStyle):
    """Split the outputs of a `BlockSparseLinear`, so its block rows, over a device mesh of one dimension.

    As torch's ``ColwiseParallel``: the input is whole in every process, the output is this process's share of the
    features. Every process holds the same number of blocks, and its blocks move among its own block rows. A layer whose
    blocks lie otherwise is refused, or made so with ``rebalance=True``: parts with too many blocks drop those of least
    norm, parts with too few get zero blocks at random places. That changes what the layer computes, so do it before
    training.
    """

    axis = 0

    def __init__(self, *, rebalance: bool = False) -> None:
        super().__init__()
        self.rebalance = rebalance

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        split_layer(module, device_mesh, self.axis, self.rebalance)
        return module


class RowwiseBlockParallel(ColwiseBlockParallel):
    """Split the inputs of a `BlockSparseLinear`, so its block columns, over a device mesh of one dimension.

    As torch's ``RowwiseParallel``: the input is this process's share of the features, as the output of a column-wise
    layer is; the outputs are summed over processes. Blocks move among the block columns of their process.
    """

    axis = 1


class SplitBlockLinear(BlockSparseLinear):
    """A `BlockSparseLinear` after `ColwiseBlockParallel` or `RowwiseBlockParallel`: this process computes one part."""

    mesh: DeviceMesh
    parts: GridParts
    part: int
    local_layout: BlockLayout
    _local: BlockTopology | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in]`` to ``[..., out / parts]``, or ``[..., in / parts]`` to ``[..., out]``."""
        (x,) = cast_for_autocast(x)
        weight, bias, group = _local(self.weight), _local(self.bias), self.mesh.get_group()
        if self.parts.axis == 0:
            return block_linear(_sum_gradients(x, group), weight, self._local_topology(), bias, self.identity.token)
        y = _sum(block_linear(x, weight, self._local_topology(), None, self.identity.token), group)
        return y if bias is None else y + bias.to(y.dtype)

    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks in this part, float32; those of other parts are zero."""
        grid = (self.layout.grid_rows, self.layout.grid_cols)
        own = self.parts.part_of(rows, cols, grid) == self.part
        row, col = self.parts.origin(self.part, grid)
        norms = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        norms[own] = super().gradient_norms(output_grad, x, rows[own] - row, cols[own] - col)
        return norms

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every feature, float32 ``[in]``, such that the mean over processes is that of the layer."""
        squares = super().input_squares(x)
        if self.parts.axis == 0:
            return squares
        parts = [torch.zeros_like(squares)] * self.parts.count
        parts[self.part] = squares * self.parts.count
        return torch.cat(parts)

    def weight_matrix(self) -> Tensor:
        """The whole weight as a dense ``[out, in]`` matrix; all processes call this."""
        return self.layout.unpack(whole(self.weight), self.block_rows, self.block_cols)

    def to_dense(self) -> nn.Module:
        """A plain, unsplit `torch.nn.Linear` that computes the same; all processes call this."""
        dense = super().to_dense()
        if self.bias is not None:
            dense.bias = nn.Parameter(whole(self.bias.detach()), requires_grad=self.bias.requires_grad)
        return dense

    def why_fixed(self) -> str:
        """Nothing fixes the shape, unless FSDP holds the weight besides."""
        return "" if self.weight.device_mesh == self.mesh else super().why_fixed()  # type: ignore[attr-defined]

    def _resize(self, packed: Tensor, topology: BlockTopology) -> None:
        become(self.weight, nn.Parameter(distribute_tensor(packed, self.mesh, [Shard(0)], src_data_rank=None)))
        self._set_topology(topology)

    def _write_topology(self, topology: BlockTopology) -> None:
        super()._write_topology(topology)
        self._index_part()

    def _set_topology(self, topology: BlockTopology) -> None:
        super()._set_topology(topology)
        self._index_part()

    def _index_part(self) -> None:
        """Index the blocks of this part, in place where they are as many as before."""
        count = self.block_rows.numel() // self.parts.count
        own = slice(self.part * count, (self.part + 1) * count)
        row, col = self.parts.origin(self.part, (self.layout.grid_rows, self.layout.grid_cols))
        new = BlockTopology.unchecked(self.local_layout, self.block_rows[own] - row, self.block_cols[own] - col)
        if self._local is None or any(old.shape != now.shape for old, now in zip(self._local, new, strict=True)):
            self._local = new
            return
        for old, now in zip(self._local, new, strict=True):
            old.copy_(now)

    def _local_topology(self) -> BlockTopology:
        self.topology  # noqa: B018  (refuses a layer without one)
        assert self._local is not None
        return self._local

    def _draw_topology(self, generator: torch.Generator) -> None:
        scores = torch.rand(self.layout.grid_rows, self.layout.grid_cols, generator=generator)
        topology = _equal_parts(self, scores, self.parts, self.weight.shape[0] // self.parts.count)
        self._set_topology(BlockTopology(*(indices.to(self.weight.device) for indices in topology)))

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "SplitBlockLinear":
        super()._apply(fn, recurse)
        self._local = None
        if self._has_topology:
            self._index_part()
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *args: Any
    ) -> None:
        """Load the state of an unsplit layer, or of a split one: both have the same form.

        The slots of an unsplit layer are put into the order of the parts.
        """
        self.check_state(state_dict, prefix)
        state_dict = dict(state_dict)
        names = [f"{prefix}{name}" for name in ("weight", *SAVED_TOPOLOGY)]
        if all(name in state_dict for name in names):
            self._sort_slots(state_dict, *names)
        for name, parameter in self._parameters.items():
            value = state_dict.get(prefix + name)
            if value is not None and parameter is not None and not is_sharded(value) and not value.is_meta:
                value, placements = value.to(parameter.device), parameter.placements  # type: ignore[attr-defined]
                mesh = parameter.device_mesh  # type: ignore[attr-defined]
                state_dict[prefix + name] = distribute_tensor(value, mesh, placements, src_data_rank=None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def _sort_slots(self, state_dict: dict[str, Any], weight: str, rows: str, cols: str) -> None:
        """Sort the slots of an unsplit layer's state by part; those of a split layer, and DTensors, are sorted."""
        order = self._order(state_dict[rows], state_dict[cols])
        if not is_sharded(state_dict[weight]):
            for name in (weight, rows, cols):
                state_dict[name] = state_dict[name][order.to(state_dict[name].device)]

    def check_state(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Refuse, besides, a state whose parts differ in size, and DTensors that are not in the order of the parts."""
        super().check_state(state_dict, prefix)
        weight, rows, cols = (state_dict.get(prefix + name) for name in ("weight", *SAVED_TOPOLOGY))
        if weight is not None and rows is not None and cols is not None and not rows.is_meta:
            self.check_slots(rows, cols, f"{prefix}weight", sortable=not is_sharded(weight))

    def check_slots(self, rows: Tensor, cols: Tensor, name: str, sortable: bool) -> None:
        """Refuse blocks in unequal parts or, if they are not ``sortable``, in another order than that of the parts."""
        part = self.parts.part_of(rows, cols, (self.layout.grid_rows, self.layout.grid_cols))
        remedy = "load it before parallelize_module, whose style then needs rebalance=True"
        _check_equal(torch.bincount(part, minlength=self.parts.count).tolist(), name, remedy)
        if not (sortable or bool((part.diff() >= 0).all())):
            raise TopologyError(
                f"{name} in the checkpoint is of an unsplit layer, whose slots are in another order than the parts, "
                "and optimizer state could not follow; load it before parallelize_module, or with model.load_state_dict"
            )

    def _order(self, rows: Tensor, cols: Tensor) -> Tensor:
        part = self.parts.part_of(rows, cols, (self.layout.grid_rows, self.layout.grid_cols))
        return torch.argsort(part, stable=True)


@torch.no_grad()
def split_layer(layer: nn.Module, mesh: DeviceMesh, axis: int, rebalance: bool) -> None:
    """Split a `BlockSparseLinear` over ``mesh`` by block rows (axis 0) or columns (axis 1), in place.

    All processes end with the blocks that the first one had.
    """
    parts = GridParts(axis, mesh.size())
    layer = _checked(layer, mesh, parts)
    if not layer.weight.is_meta:
        _take_from_first(layer, mesh)
        if rebalance:
            _rebalance(layer, parts)
        _order_slots(layer, parts)
    _check_count(layer, parts)
    _distribute(layer, "weight", mesh, Shard(0))
    if layer.bias is not None:
        _distribute(layer, "bias", mesh, Shard(0) if axis == 0 else Replicate())
    layer.__class__ = SplitBlockLinear
    layer = cast(SplitBlockLinear, layer)
    layer.mesh, layer.parts, layer.part = mesh, parts, mesh.get_local_rank()
    height, width = layer.block_shape
    grid_rows, grid_cols = parts.part_shape((layer.layout.grid_rows, layer.layout.grid_cols))
    layer.local_layout = BlockLayout(grid_rows * height, grid_cols * width, height, width)
    if layer._has_topology:
        layer._index_part()


def _checked(layer: nn.Module, mesh: DeviceMesh, parts: GridParts) -> BlockSparseLinear:
    if type(layer) is not BlockSparseLinear:
        raise TopologyError(
            f"a {type(layer).__name__} cannot be split into blocks over processes; use the style for a "
            "BlockSparseLinear, and torch's own for dense layers"
        )
    if mesh.ndim != 1:
        raise TopologyError(f"the device mesh has {mesh.ndim} dimensions; pass one of them, such as mesh['tp']")
    if is_sharded(layer.weight):
        raise TopologyError("the layer is sharded already; call parallelize_module before fully_shard")
    lines, name = ((layer.layout.grid_rows, "rows"), (layer.layout.grid_cols, "columns"))[parts.axis]
    if lines % parts.count:
        raise TopologyError(
            f"{lines} block {name} cannot be split over {parts.count} processes; use a smaller block or fewer processes"
        )
    return layer


def _take_from_first(layer: BlockSparseLinear, mesh: DeviceMesh) -> None:
    """Take weight and topology of the first process, as torch's styles do."""
    rows, cols, weight = (
        distribute_tensor(each, mesh, [Replicate()]).to_local()
        for each in (layer.block_rows, layer.block_cols, layer.weight.detach())
    )
    layer.replace_blocks(weight, BlockTopology.build(layer.layout, rows, cols))


def _rebalance(layer: BlockSparseLinear, parts: GridParts) -> None:
    """Give every part the same number of blocks: the strongest it has, then zero blocks at random places."""
    count = layer.present_blocks // parts.count
    grid = torch.rand(layer.layout.grid_rows, layer.layout.grid_cols, generator=torch.Generator().manual_seed(0))
    matrix = layer.forward_matrix()
    scores = torch.where(layer.mask(), layer.layout.block_norms(matrix) + 1.0, grid.to(matrix.device))
    topology = _equal_parts(layer, scores, parts, count)
    packed = layer.layout.pack(matrix, topology.block_rows, topology.block_cols)
    layer.replace_blocks(packed, topology)
    layer.target_blocks = layer.target_blocks // parts.count * parts.count


def _equal_parts(layer: BlockSparseLinear, scores: Tensor, parts: GridParts, count: int) -> BlockTopology:
    """The topology of the ``count`` blocks of highest score in every part, slots in the order of the parts."""
    cut = torch.chunk(scores, parts.count, dim=parts.axis)
    grid = (layer.layout.grid_rows, layer.layout.grid_cols)
    found = [torch.nonzero(top_blocks(each, count, layer.balanced)) for each in cut]
    origins = (torch.tensor(parts.origin(part, grid), device=scores.device) for part in range(parts.count))
    rows, cols = torch.cat([each + origin for each, origin in zip(found, origins, strict=True)]).T
    return BlockTopology.unchecked(layer.layout, rows, cols)


def _order_slots(layer: BlockSparseLinear, parts: GridParts) -> None:
    part = parts.part_of(layer.block_rows, layer.block_cols, (layer.layout.grid_rows, layer.layout.grid_cols))
    remedy = "pass rebalance=True to the style, which moves blocks"
    _check_equal(torch.bincount(part, minlength=parts.count).tolist(), "the layer", remedy)
    order = torch.argsort(part, stable=True)
    topology = BlockTopology.unchecked(layer.layout, layer.block_rows[order], layer.block_cols[order])
    layer.replace_blocks(layer.weight.detach()[order], topology)


def _check_equal(counts: list[int], name: str, remedy: str) -> None:
    if len(set(counts)) > 1:
        raise TopologyError(
            f"the parts of {name} hold {' and '.join(map(str, counts))} blocks, and every process must hold as many as "
            f"any other; {remedy}"
        )


def _check_count(layer: BlockSparseLinear, parts: GridParts) -> None:
    for name, count in (("holds", layer.present_blocks), ("ends with", layer.target_blocks)):
        if count % parts.count:
            raise TopologyError(
                f"the layer {name} {count} blocks, which {parts.count} processes cannot share equally; choose another "
                "sparsity, or pass rebalance=True to the style"
            )


def _distribute(layer: nn.Module, name: str, mesh: DeviceMesh, placement: Placement) -> None:
    parameter = cast(nn.Parameter, getattr(layer, name))
    source = None if name == "weight" else 0  # every process holds the first one's weight by now
    split = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=source)
    setattr(layer, name, nn.Parameter(split, requires_grad=parameter.requires_grad))


def _local(parameter: nn.Parameter | None) -> Any:
    return None if parameter is None else cast(DTensor, parameter).to_local()


class _Sum(torch.autograd.Function):
    """The sum over a group, whose gradient every process has whole."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = x.clone()
        torch.distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _sum_gradients(grads[0], ctx.group), None


class _SumGradients(torch.autograd.Function):
    """The identity, whose gradients are parts that are summed over a group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _sum(grads[0], ctx.group), None


def _sum(x: Tensor, group: Any) -> Tensor:
    return cast(Tensor, _Sum.apply(x, group))  # type: ignore[no-untyped-call]


def _sum_gradients(x: Tensor, group: Any) -> Tensor:
    return cast(Tensor, _SumGradients.apply(x, group))  # type: ignore[no-untyped-call]
