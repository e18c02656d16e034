"""Moving the blocks of all layers: together, batch by batch, wherever a layer's own rules allow it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from acf.masks import Candidates, MoveSize, TopologyPolicy, copy_to_device
from acf.masks.batch import BLOCKS_AT_ONCE, BatchedMove, LayerBatch, LayerSize, plan_moves
from acf.train.changes import LayerChange
from acf.train.controlled_layer import ControlledLayer
from acf.train.optimizer_state import OptimizerState

Counts = Sequence[int] | Tensor

REMEMBERED_BATCHES = 64
"""Batches whose index tensors are kept; when there are more, all are dropped."""


class BatchedMoves:
    """Changes the topology of ``controlled`` layers, in few launches: by their number a GPU's move is slow or fast.

    Layers whose block rows are balanced, layers of experts or split over processes, layers that shrink and very large
    grids are changed one by one. The index tensors of a batch are kept for the next move: the sizes they depend on do
    not change while blocks move.
    """

    def __init__(self, controlled: Mapping[str, ControlledLayer], policy: TopologyPolicy) -> None:
        self.controlled = controlled
        self.policy = policy
        self._batches: dict[tuple[object, ...], LayerBatch] = {}

    def change(self, state: OptimizerState, step: int) -> dict[str, LayerChange]:
        """Move or prune blocks after ``step``; what happened in the layers that took part, in their order."""
        changes: dict[str, LayerChange | None] = {}
        together: dict[str, Candidates] = {}
        for name, each in self.controlled.items():
            each.follow_device()
            if each.shrinks_at(step) or not _fits(each):
                changes[name] = each.change(state, step)
                each.explore()
                continue
            candidates = each.absent_candidates()
            if candidates is None:
                each.explore()
            else:
                together[name] = candidates
        counts = [self._count(self.controlled[name], step, found) for name, found in together.items()]
        changes |= self._move_together(together, state, counts, step)
        return {name: made for name in self.controlled if (made := changes.get(name)) is not None}

    def record(self, state: OptimizerState, counts: Tensor, step: Tensor) -> dict[str, LayerChange]:
        """Move ``counts`` (int64 ``[layers]``) blocks after ``step``, both on the device; every layer takes part.

        A CUDA graph can capture it after `prepare`.
        """
        changes: dict[str, LayerChange | None] = {}
        together: dict[str, Candidates] = {}
        for index, (name, each) in enumerate(self.controlled.items()):
            if _fits(each) and each.scores is not None:
                together[name] = each.scores.candidates()
                continue
            layer = each.layer
            capacity = self.policy.most_blocks_to_move(
                layer.present_blocks, layer.layout.block_count - layer.present_blocks
            )
            changes[name] = each.move(state, MoveSize(capacity, counts[index], step))
            each.explore()
        if 0 < len(together) < len(self.controlled):
            counts = torch.stack(
                [count for name, count in zip(self.controlled, counts, strict=True) if name in together]
            )
        changes |= self._move_together(together, state, counts, step)
        return {name: made for name in self.controlled if (made := changes.get(name)) is not None}

    def prepare(self) -> list[LayerBatch]:
        """Make the index tensors for moves whose candidates are all absent blocks: a CUDA graph cannot capture that.

        Who captures a graph keeps them, since the graph reads them wherever they lie.
        """
        layers = [each for each in self.controlled.values() if _fits(each)]
        for each in self.controlled.values():
            each.follow_device()
        return [self._batch(layers[part], [_absent(each) for each in layers[part]]) for part in _parts(layers)]

    @torch.no_grad()
    def list_absent(self) -> None:
        """List the absent blocks of all layers that are to be scored and have no list yet."""
        layers = [
            each
            for each in self.controlled.values()
            if each.scores is not None and not each.scores.has_candidates and _fits(each)
        ]
        for part in _parts(layers):
            each_layer = layers[part]
            batch = self._batch(each_layer, [_absent(each) for each in each_layer])
            found = batch.absent(_places(batch, each_layer))
            # Kernels are compiled for aligned operands, which parts of a tensor need not be.
            aligned = [(torch.empty_like(rows), torch.empty_like(cols)) for rows, cols in found]
            _copy_all([x for pair in aligned for x in pair], [x for pair in found for x in pair])
            for each, (rows, cols) in zip(each_layer, aligned, strict=True):
                assert each.scores is not None
                each.scores.offer(rows, cols)

    @torch.no_grad()
    def _move_together(
        self,
        together: Mapping[str, Candidates],
        state: OptimizerState,
        counts: Sequence[int] | Tensor,
        step: int | Tensor,
    ) -> dict[str, LayerChange]:
        changes: dict[str, LayerChange] = {}
        names, candidates = list(together), list(together.values())
        layers = [self.controlled[name] for name in names]
        for part in _parts(layers):
            batch = self._batch(layers[part], [found.rows.numel() for found in candidates[part]])
            states = [each.state(found) for each, found in zip(layers[part], candidates[part], strict=True)]
            moves = plan_moves(self.policy, batch, states, _on_device(counts[part], batch.device), step)
            _carry_out(batch, layers[part], moves, state, step)
            for name, each, moved in zip(names[part], layers[part], moves.moved.unbind(), strict=True):
                changes[name] = LayerChange(moved, each.layer.present_blocks, 0)
        return changes

    def _count(self, each: ControlledLayer, step: int, candidates: Candidates) -> int:
        """Blocks of a layer that move after ``step``: of a sample of candidates, no more than it has."""
        found = candidates.rows.numel()
        return min(self.policy.blocks_to_move(step, each.layer.present_blocks, found), found)

    def _batch(self, layers: Sequence[ControlledLayer], candidates: Sequence[int]) -> LayerBatch:
        sizes = tuple(self._size(each, found) for each, found in zip(layers, candidates, strict=True))
        device = layers[0].layer.block_rows.device
        known = self._batches.get((sizes, device))
        if known is None:
            if len(self._batches) >= REMEMBERED_BATCHES:
                self._batches.clear()
            known = self._batches[sizes, device] = LayerBatch(sizes, device)
        return known

    def _size(self, each: ControlledLayer, candidates: int) -> LayerSize:
        layout, present = each.layer.layout, each.layer.present_blocks
        capacity = self.policy.most_blocks_to_move(present, candidates)
        return LayerSize(layout.grid_rows, layout.grid_cols, present, candidates, min(capacity, present, candidates))


def _fits(each: ControlledLayer) -> bool:
    """Whether the layer may move its blocks in a batch."""
    layer, layout = each.layer, each.layer.layout
    whole = not layer.balanced and layer.parts is None and layout.stacked == 1
    return whole and layout.block_count <= BLOCKS_AT_ONCE


def _absent(each: ControlledLayer) -> int:
    return each.layer.layout.block_count - each.layer.present_blocks


def _parts(layers: Sequence[ControlledLayer]) -> list[slice]:
    """Layers cut into batches of up to `BLOCKS_AT_ONCE` blocks, each on one device."""
    parts, begin, held = [], 0, 0
    for index, each in enumerate(layers):
        count, device = each.layer.layout.block_count, each.layer.block_rows.device
        if index > begin and (held + count > BLOCKS_AT_ONCE or device != layers[begin].layer.block_rows.device):
            parts.append(slice(begin, index))
            begin, held = index, 0
        held += count
    return [*parts, slice(begin, len(layers))] if layers else []


def _places(batch: LayerBatch, layers: Sequence[ControlledLayer]) -> Tensor:
    topologies = [each.layer.topology for each in layers]
    rows, cols = [each.block_rows for each in topologies], [each.block_cols for each in topologies]
    return batch.places(batch.slot_layers, rows, cols)


def _carry_out(
    batch: LayerBatch, layers: Sequence[ControlledLayer], moves: BatchedMove, state: OptimizerState, step: int | Tensor
) -> None:
    """Write topology, weights, gradients, optimizer state and what is remembered of every block, all in place."""
    topologies = [each.layer.topology for each in layers]
    _copy_all([x for each in topologies for x in each], [x for each in batch.topologies(moves.places) for x in each])
    for each, dropped in zip(layers, torch.split(moves.dropped, batch.slot_counts), strict=True):
        each.layer.clear_slots(dropped)
        state.start_afresh(each.layer.weight, dropped)
    grown_at = [each.grown_at for each in layers]
    now = torch.where(moves.dropped, step, torch.cat(grown_at))  # masked_fill would read the step on the host
    _copy_all(grown_at, torch.split(now, batch.slot_counts))
    explored = [each.explored.view(-1) for each in layers]
    ever_present = torch.cat(explored) | batch.mask(moves.places)
    _copy_all(explored, torch.split(ever_present, batch.grid_counts))


def _copy_all(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy every one of ``values`` to its target, in a few launches for all."""
    torch._foreach_copy_(list(targets), list(values))


def _on_device(counts: Counts, device: torch.device) -> Tensor:
    return counts if isinstance(counts, Tensor) else copy_to_device(torch.tensor(counts), device)
