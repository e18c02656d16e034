"""`acf.attach` and the controller, which counts optimizer steps and changes the topology at the policy's steps."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from acf.errors import TopologyError
from acf.masks import TopologyPolicy
from acf.nn import BlockSparseLayer, block_sparse_layers
from acf.sparse import whole
from acf.train.changes import ChangeLog, TopologyChange
from acf.train.controlled_layer import ControlledLayer
from acf.train.controller_state import VERSION, check_state, policy_state
from acf.train.distributed import check_can_shrink, unwrapped
from acf.train.figures import LayerFigures, OnMove
from acf.train.observers import AbsentBlockScores, LayerListener, fold_inputs

_CONTROLLED: "WeakSet[BlockSparseLayer]" = WeakSet()


class UnscoredMoveWarning(UserWarning):
    """Blocks were due to move, but no layer's absent blocks were scored."""


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    policy: TopologyPolicy,
    on_move: OnMove | None = None,
) -> "TopologyController":
    """Let ``policy`` change the topology of ``model`` after the optimizer steps it names; returns the controller.

    The training loop stays as it is: the controller hooks ``optimizer.step`` and, one step before a move, the
    backward pass. ``on_move(step, figures)`` is called after every step that may move blocks. Keep
    ``controller.state_dict()`` in the checkpoint; layers have the names of the model inside DistributedDataParallel
    and ``torch.compile``, so it can be loaded with and without them.
    """
    sparse_layers = block_sparse_layers(unwrapped(model))
    layers = {name: layer for name, layer in sparse_layers.items() if layer.weight.requires_grad}
    if not layers:
        raise TopologyError(
            "the model has no trainable block-sparse layer to attach to; call acf.sparsify_(model, ...) first"
        )
    _check_held(layers, optimizer)
    taken = [name for name, layer in layers.items() if layer in _CONTROLLED]
    if taken:
        raise TopologyError(
            f"{taken[0]} is attached to a controller already, and two would move its blocks against each other; "
            "call detach() on the first"
        )
    for name, layer in layers.items():
        policy.check_start(name, layer.present_blocks, layer.target_blocks, layer.starts_dense)
    check_can_shrink({name: layer for name, layer in layers.items() if layer.present_blocks > layer.target_blocks})
    return TopologyController(layers, optimizer, policy, on_move)


class TopologyController:
    """Counts optimizer steps and changes the topology at the steps ``policy`` names. Made by `acf.attach`."""

    def __init__(
        self,
        layers: dict[str, BlockSparseLayer],
        optimizer: torch.optim.Optimizer,
        policy: TopologyPolicy,
        on_move: OnMove | None = None,
    ) -> None:
        self.layers = layers
        self.optimizer = optimizer
        self.policy = policy
        self.on_move = on_move
        self.step = 0
        self._paused = False
        self._controlled = {name: ControlledLayer(layer, policy) for name, layer in layers.items()}
        self._log = ChangeLog()
        self._listeners: list[LayerListener] = []
        _CONTROLLED.update(layers.values())
        self._hook = optimizer.register_step_post_hook(self._after_step)
        self._observe_next_step()

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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let optimizer steps pass uncounted, while a CUDA graph is captured."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    @property
    def sparsity(self) -> float:
        """Share of blocks that are absent, over all layers it moves."""
        present = sum(layer.present_blocks for layer in self.layers.values())
        return 1.0 - present / sum(layer.layout.block_count for layer in self.layers.values())

    @property
    def changes(self) -> list[TopologyChange]:
        """All changes of the topology so far, oldest first; waits for the device."""
        self._settle()
        return self._log.changes

    def figures(self) -> tuple[LayerFigures, ...]:
        """Density, flip rate of the last move and share of blocks ever present per layer; waits for the device."""
        self._settle()
        return tuple(each.figures(self.step, name) for name, each in self._controlled.items())

    def detach(self) -> None:
        """Stop changing the topology and remove every hook; the model keeps its present one."""
        self._hook.remove()
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

    def _after_step(self, *_: Any) -> None:
        if self._paused:
            return
        self.step += 1
        fold_inputs([each.inputs for each in self._controlled.values() if each.inputs is not None])
        if self.policy.moves_at(self.step):
            self._change_all()
        self._observe_next_step()

    def _change_all(self) -> None:
        controlled = self._controlled.items()
        shrinking = {name: each.layer for name, each in controlled if each.shrinks_at(self.step)}
        check_can_shrink(shrinking)
        scored = any(each.scores is not None and each.scores.is_scored for each in self._controlled.values())
        changes = {name: each.change(self.optimizer, self.step) for name, each in controlled}
        self._log.append(self.step, {name: change for name, change in changes.items() if change is not None})
        if self.policy.grows_by_gradient and not scored:
            self._warn_if_unscored()
        for each in self._controlled.values():
            each.scores = None
            each.explore()
        if self.on_move is not None:
            self.on_move(self.step, self.figures())

    def _settle(self) -> None:
        """Read the numbers of moved blocks that are still on the device."""
        for change in self._log.settle():
            self._controlled[change.layer].flip_rate = change.moved_blocks / change.present_blocks

    def _observe_next_step(self) -> None:
        """Register what the next backward pass must compute: input statistics, and scores if it counts for a move."""
        self._stop_observing()
        move_step = self.policy.scores_for(self.step + 1)
        for index, each in enumerate(self._controlled.values()):
            if move_step is not None and each.scores is None:
                each.scores = AbsentBlockScores(each.layer, self.policy, self.policy.generator(move_step, index))
            if each.observers:
                self._listeners.append(LayerListener(each.layer, each.observers))

    def _stop_observing(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []

    def _warn_if_unscored(self) -> None:
        """Warn where nothing changed in this step though some layer has a gradient; waits for the device."""
        if any(change.step == self.step for change in self.changes):
            return
        if any(map(_could_have_moved, self.layers.values())):
            warnings.warn(
                f"no absent block was scored at step {self.step}, so no block moved; a replayed CUDA graph does not "
                "score: call the uncompiled model in the steps where controller.moves_next is true",
                UnscoredMoveWarning,
                stacklevel=3,
            )


def _check_held(layers: dict[str, BlockSparseLayer], optimizer: torch.optim.Optimizer) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, layer in layers.items() if id(layer.weight) not in held]
    if missing:
        raise TopologyError(
            f"the optimizer does not hold {missing[0]}.weight ({len(missing)} of {len(layers)} sparse layers missing); "
            "build it from model.parameters() after sparsify_, then attach"
        )


def _could_have_moved(layer: BlockSparseLayer) -> bool:
    """Whether the layer got a gradient in this step that is not zero, and has absent blocks to score."""
    gradient = layer.weight.grad
    return layer.density < 1.0 and gradient is not None and bool(whole(gradient).any())
