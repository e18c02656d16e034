"""`acf.attach` and the controller, which counts optimizer steps and changes the topology at the policy's steps."""

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from acf.errors import TopologyError, require_kind
from acf.masks import TopologyPolicy
from acf.nn import BlockSparseLayer, block_sparse_layers
from acf.ops.observe import captured_elsewhere
from acf.sparse import check_slot_shards, is_sharded, whole
from acf.train.batched_moves import BatchedMoves
from acf.train.captured_move import CapturedMove
from acf.train.changes import ChangeLog, TopologyChange
from acf.train.controlled_layer import ControlledLayer
from acf.train.controller_state import VERSION, check_state, policy_state
from acf.train.distributed import (
    check_can_shrink,
    check_same_weights,
    group_of,
    process_count,
    refuse_flat_parameters,
    unwrapped,
)
from acf.train.figures import LayerFigures, OnMove
from acf.train.observers import AbsentBlockScores, LayerListener, fold_inputs
from acf.train.optimizer_state import OptimizerState
from acf.train.optimizers import check_can_resize, check_held, listed
from acf.train.step_count import GradientRestarts, StepCount, StepHooks

_CONTROLLED: "WeakSet[BlockSparseLayer]" = WeakSet()


class UnscoredMoveWarning(UserWarning):
    """Blocks were due to move, but no layer's absent blocks were scored."""


class UncountedStepWarning(UserWarning):
    """Gradients are computed again and again, but no optimizer step is counted."""


NO_GRADIENTS = (
    "the gradients of all block-sparse weights are None after optimizer.step; call zero_grad when it has returned"
)
NO_NEW_GRADIENTS = (
    "no absent block was scored, and no gradient was computed since the step before; call optimizer.step() once per "
    "batch, or, where a replayed CUDA graph computes the gradients, run the steps where controller.moves_next is true "
    "without it"
)
CUDA_GRAPH = (
    "no absent block was scored, though a backward pass ran: a CUDA graph that was captured by hand, or in this very "
    "step, does not score; let acf.GraphedStep capture the step, or call the model outside the graph in the steps "
    "where controller.moves_next is true"
)

RESTARTS_WITHOUT_STEP = 20
"""Gradients computed anew, not accumulated, since the last counted step, at which an `UncountedStepWarning` is due."""


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    policy: TopologyPolicy,
    on_move: OnMove | None = None,
    process_group: Any = None,
) -> "TopologyController":
    """Let ``policy`` change the topology of ``model`` after the optimizer steps it names; returns the controller.

    The training loop stays as it is: the controller hooks ``optimizer.step`` and, one step before a move, the
    backward pass. ``optimizer`` may be a list (Muon for matrices and AdamW for packed weights): a step counts when the
    last of them has stepped. Optimizers inside wrappers are followed, and what a move makes of their state is decided
    by shape; what cannot be decided is refused (`acf.register_optimizer_state` adds rules).
    ``on_move(step, figures)`` is called after every step that may move blocks. ``process_group``: the processes that
    train this model together, by default those of its DistributedDataParallel or of the device mesh that FSDP2 shards
    it over, or all. Keep
    ``controller.state_dict()`` in the checkpoint; layers have the names of the model inside DistributedDataParallel
    and ``torch.compile``, so it can be loaded with and without them.
    """
    require_kind(model, nn.Module, "model", "pass the torch.nn.Module that sparsify_ made sparse")
    require_kind(policy, TopologyPolicy, "policy", "pass such as acf.BlockDST(total_steps=10_000, every=100)")
    refuse_flat_parameters(model)
    layers = _trainable_layers(unwrapped(model))
    check_held({name: layer.weight for name, layer in layers.items()}, listed(optimizer))
    taken = [name for name, layer in layers.items() if layer in _CONTROLLED]
    if taken:
        raise TopologyError(
            f"{taken[0]} is attached to a controller already, and two would move its blocks against each other; "
            "call detach() on the first"
        )
    for name, layer in layers.items():
        if is_sharded(layer.weight):
            check_slot_shards(layer.weight)
        policy.check_start(name, layer.present_blocks, layer.target_blocks, layer.starts_dense)
    shrinking = {name: layer for name, layer in layers.items() if layer.present_blocks > layer.target_blocks}
    check_can_shrink(shrinking)
    check_can_resize(list(shrinking), listed(optimizer))
    return TopologyController(
        layers, optimizer, policy, on_move, group_of(model) if process_group is None else process_group
    )


class TopologyController:
    """Counts optimizer steps and changes the topology at the steps ``policy`` names. Made by `acf.attach`."""

    def __init__(
        self,
        layers: dict[str, BlockSparseLayer],
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        policy: TopologyPolicy,
        on_move: OnMove | None = None,
        process_group: Any = None,
    ) -> None:
        self.layers = layers
        self.optimizers = listed(optimizer)
        self.optimizer = self.optimizers[0]
        self.policy = policy
        self.on_move = on_move
        self.process_group = process_group
        self.scores_compiled = True  # False where whole steps are captured, and observers with them
        self._paused = False
        self._steps = StepCount()
        self._controlled = {name: ControlledLayer(layer, policy, process_group) for name, layer in layers.items()}
        self._moves = BatchedMoves(self._controlled, policy)
        self._optimizer_state = OptimizerState(self.optimizers, {name: x.weight for name, x in layers.items()})
        self._checks_state = self._may_move
        if self._may_move:
            self._optimizer_state.check()
        self._log = ChangeLog()
        self._listeners: list[LayerListener] = []
        self._seen_gradients: dict[str, tuple[weakref.ref[Tensor], int]] = {}
        self._hook = StepHooks(self.optimizers, self._after_step)
        self._restarts = GradientRestarts(*_first_weight(layers)) if self._may_move else None
        _CONTROLLED.update(layers.values())
        self._observe_next_step()

    @property
    def step(self) -> int:
        """Optimizer steps so far, without those that a loss scaler skipped; waits for the device where one may have."""
        return self._steps.settle()

    @step.setter
    def step(self, value: int) -> None:
        self._steps.set(value)

    @property
    def _probes(self) -> bool:
        """Whether steps may be replayed from CUDA graphs that call no observer, so that compiled ones need probes."""
        return self.scores_compiled and captured_elsewhere()

    @property
    def _may_move(self) -> bool:
        return type(self.policy).moves_at is not TopologyPolicy.moves_at

    @property
    def moves_next(self) -> bool:
        """Whether the topology may change after the coming step, so that its backward pass scores absent blocks."""
        return self.policy.moves_at(self.step + 1)

    @property
    def scores_next(self) -> bool:
        """Whether the coming step's backward pass must run eagerly: it scores absent blocks, or records inputs."""
        gathers = self.policy.grows_by_gradient and self.policy.scores_for(self.step + 1) is not None
        return gathers or self.moves_next or self.policy.input_momentum is not None

    def count_step(self) -> None:
        """Count an optimizer step that ran without Python, as a replayed CUDA graph does."""
        self._after_step()

    def rehearse(self) -> None:
        """Let the coming backward pass score absent blocks without effect, so that the kernels compile and tune early.

        The step after it observes what it must, as if nothing had been.
        """
        if not self.policy.grows_by_gradient:
            return
        for index, each in enumerate(self._controlled.values()):
            scores = AbsentBlockScores(each.layer, self.policy, self.policy.generator(0, index))
            self._listeners.append(LayerListener(each.layer, [*each.observers, scores]))

    def captured_move(self) -> CapturedMove | None:
        """What a CUDA graph of a step that scores and moves needs; None where moving needs the host."""
        shrinks = any(layer.present_blocks > layer.target_blocks for layer in self.layers.values())
        if shrinks or not self.policy.moves_on_device or process_count(self.process_group) > 1:
            return None
        self._optimizer_state.check()
        return CapturedMove(self._moves, self.policy, self._optimizer_state)

    def count_captured_move(self, move: CapturedMove) -> None:
        """Count a replayed step in whose graph the blocks moved."""
        self.step += 1
        self._log.append(self.step, move.changes())
        for each in self._controlled.values():
            each.scores = None
        self._observe_next_step()
        self._call_on_move()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let optimizer steps pass uncounted, while a CUDA graph is captured; may be nested."""
        was_paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = was_paused

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Neither count steps nor observe backward passes; afterwards go on as if there had been none."""
        with self.paused():
            self._stop_observing()
            try:
                yield
            finally:
                self._observe_next_step()
                if self._restarts is not None:
                    self._restarts.clear()

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Let backward passes score absent blocks for a `CapturedMove`, or without effect; scores so far are kept."""
        if not self.policy.grows_by_gradient:
            yield
            return
        self._stop_observing()
        kept = [each.scores for each in self._controlled.values()]
        for index, each in enumerate(self._controlled.values()):
            each.scores = self._new_scores(each, 0, index)
            self._listeners.append(LayerListener(each.layer, [each.scores], each.scores if self._probes else None))
        self._reserve_for_probes()
        try:
            yield
        finally:
            for each, scores in zip(self._controlled.values(), kept, strict=True):
                each.scores = scores
            self._stop_observing()
            if not self._paused:
                self._observe_next_step()

    def _new_scores(self, each: ControlledLayer, move_step: int, index: int) -> AbsentBlockScores:
        generator = self.policy.generator(move_step, index)
        return AbsentBlockScores(each.layer, self.policy, generator, self._moves.list_absent)

    @property
    def sparsity(self) -> float:
        """Share of blocks that are absent, over all layers it moves."""
        present = sum(layer.present_blocks for layer in self.layers.values())
        return 1.0 - present / sum(layer.layout.block_count for layer in self.layers.values())

    @property
    def changes(self) -> list[TopologyChange]:
        """The changes of the topology so far, oldest first, of many the latest 100,000; waits for the device."""
        self._settle()
        return self._log.changes

    def figures(self) -> tuple[LayerFigures, ...]:
        """Density, flip rate of the last move and share of blocks ever present per layer; waits for the device."""
        self._settle()
        return tuple(each.figures(self.step, name) for name, each in self._controlled.items())

    def detach(self) -> None:
        """Stop changing the topology and remove every hook; the model keeps its present one."""
        self._hook.remove()
        if self._restarts is not None:
            self._restarts.remove()
        self._stop_observing()
        for layer in self.layers.values():
            _CONTROLLED.discard(layer)

    def state_dict(self) -> dict[str, Any]:
        """Step, policy and what was gathered per layer; the topology itself is in the model's ``state_dict``.

        Random choices follow from the policy's seed and the step, so these two are the random state.
        """
        self._settle()
        layers = {name: each.state_dict() for name, each in self._controlled.items()}
        return {"version": VERSION, "step": self.step, "policy": policy_state(self.policy), "layers": layers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``; it must come from the same policy. Load the model's ``state_dict`` first."""
        check_state(state, self.policy, {name: layer.layout for name, layer in self.layers.items()})
        self._settle()
        self.step = int(state["step"])
        for name, saved in state["layers"].items():
            self._controlled[name].load_state_dict(saved)
        self._observe_next_step()
        for name, saved in state["layers"].items():
            scores = self._controlled[name].scores
            if scores is not None and saved.get("growth_squares") is not None:
                scores.restore(saved["growth_squares"])

    def _after_step(self, found_inf: Tensor | None = None) -> None:
        if self._paused:
            return
        self._steps.add(found_inf)
        if self._restarts is not None:
            self._restarts.clear()
        fold_inputs([each.inputs for each in self._controlled.values() if each.inputs is not None], self.process_group)
        step = self._steps.most
        moves = self.policy.moves_at(step)
        if moves or self.policy.scores_for(step + 1) is not None:
            moves = moves and self._steps.settle() == step  # else a loss scaler skipped a step, and the move waits
        for listener in self._listeners:
            listener.collect()
        was_scored = any(each.scores is not None and each.scores.is_scored for each in self._controlled.values())
        is_graphed = any(not _is_same(x, self._seen_gradients.get(name)) for name, x in self.layers.items())
        took_part = False
        try:
            self._check_state(moves)
            if moves:
                took_part = self._change_all(step)
        finally:
            self._observe_next_step()
        if moves:
            if not took_part and all(layer.weight.grad is None for layer in self.layers.values()):
                _warn_unmoved(step, NO_GRADIENTS)
            elif self.policy.grows_by_gradient and not was_scored:
                self._warn_if_unscored(CUDA_GRAPH if is_graphed else NO_NEW_GRADIENTS)
            self._call_on_move()

    def _check_state(self, moves: bool) -> None:
        """Refuse optimizer state that cannot follow a move: as soon as there is some, and before every move."""
        if moves:
            check_same_weights(self.layers, self._optimizer_state.weights)
        if moves or self._checks_state:
            self._checks_state = False
            self._optimizer_state.check()

    def _change_all(self, step: int) -> bool:
        """Move or prune the blocks of all layers; whether any took part.

        `on_move` and warnings, which may raise, follow when the controller is consistent again.
        """
        controlled = self._controlled.items()
        check_can_shrink({name: each.layer for name, each in controlled if each.shrinks_at(step)})
        changes = self._moves.change(self._optimizer_state, step)
        self._log.append(step, changes)
        for each in self._controlled.values():
            each.scores = None
        return bool(changes)

    def _call_on_move(self) -> None:
        if self.on_move is not None:
            self.on_move(self.step, self.figures())

    def _settle(self) -> None:
        """Read the numbers of moved blocks that are still on the device."""
        for change in self._log.settle():
            self._controlled[change.layer].flip_rate = change.moved_blocks / change.present_blocks

    def _observe_next_step(self) -> None:
        """Register what the next backward pass must compute: input statistics, and scores if it counts for a move."""
        self._stop_observing()
        if self.policy.scores_for(self._steps.most + 1) is not None:
            self._steps.settle()
        coming = self._steps.most + 1
        move_step = self.policy.scores_for(coming)
        if move_step is not None:
            self._seen_gradients = {name: seen for name, x in self.layers.items() if (seen := _seen(x)) is not None}
        for index, each in enumerate(self._controlled.values()):
            if move_step is not None and each.scores is None:
                each.scores = self._new_scores(each, move_step, index)
            if each.observers:
                probed = each.scores if self._probes and self.policy.grows_by_gradient else None
                self._listeners.append(LayerListener(each.layer, each.observers, probed))
        self._reserve_for_probes()

    def _reserve_for_probes(self) -> None:
        if self._probes:
            for listener in self._listeners:
                listener.reserve()

    def _stop_observing(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []

    def _warn_if_unscored(self, reason: str) -> None:
        """Warn where nothing changed in this step though some layer has a gradient; waits for the device."""
        if any(change.step == self.step for change in self.changes):
            return
        if any(map(_could_have_moved, self.layers.values())):
            _warn_unmoved(self.step, reason)


def require_topology(model: nn.Module, topology: TopologyController | None) -> None:
    """Refuse a model whose controller is not ``topology``: passes without its knowledge would count for it."""
    known = set() if topology is None else set(topology.layers.values())
    for name, layer in block_sparse_layers(unwrapped(model)).items():
        if layer in _CONTROLLED and layer not in known:
            raise TopologyError(
                f"{name} is attached to a controller, which would take a warm-up for training; pass what acf.attach "
                "returned as topology, to acf.GraphedStep or to acf.warm_up"
            )


def _trainable_layers(model: nn.Module) -> dict[str, BlockSparseLayer]:
    sparse_layers = block_sparse_layers(model)
    layers = {name: layer for name, layer in sparse_layers.items() if layer.weight.requires_grad}
    if sparse_layers and not layers:
        raise TopologyError(
            f"the model has no trainable block-sparse layer: all {len(sparse_layers)} are frozen, as "
            f"{next(iter(sparse_layers))}.weight.requires_grad is False; call requires_grad_(True) on the layers whose "
            "blocks should move, or train without attach"
        )
    if not layers:
        raise TopologyError("the model has no block-sparse layer to attach to; call acf.sparsify_(model, ...) first")
    return layers


def _seen(layer: BlockSparseLayer) -> tuple["weakref.ref[Tensor]", int] | None:
    """What tells a gradient from those before and after it: the tensor, and how often it was written."""
    gradient = layer.weight.grad
    return None if gradient is None else (weakref.ref(gradient), gradient._version)


def _is_same(layer: BlockSparseLayer, seen: tuple["weakref.ref[Tensor]", int] | None) -> bool:
    gradient = layer.weight.grad
    if seen is None or gradient is None:
        return seen is None and gradient is None
    return seen[0]() is gradient and seen[1] == gradient._version


def _first_weight(layers: dict[str, BlockSparseLayer]) -> tuple[nn.Parameter, Callable[[int], None]]:
    name, layer = next(iter(layers.items()))
    return layer.weight, partial(_warn_if_uncounted, name)


def _warn_unmoved(step: int, reason: str) -> None:
    warnings.warn(f"no block moved at step {step}: {reason}", UnscoredMoveWarning, stacklevel=4)


def _warn_if_uncounted(name: str, restarts: int) -> None:
    if restarts == RESTARTS_WITHOUT_STEP:
        warnings.warn(
            f"{restarts} gradients of {name}.weight were computed without a counted optimizer step, so no block moves; "
            "pass the optimizer whose step() runs, the one inside a wrapper such as SAM, to attach",
            UncountedStepWarning,
            stacklevel=2,
        )


def _could_have_moved(layer: BlockSparseLayer) -> bool:
    """Whether the layer got a gradient in this step that is not zero, and has absent blocks to score."""
    gradient = layer.weight.grad
    return layer.density < 1.0 and gradient is not None and bool(whole(gradient).any())
