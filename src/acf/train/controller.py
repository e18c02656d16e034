"""The controller that changes a model's topology while the user's own loop trains it."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from acf.errors import TopologyError
from acf.masks import TopologyPolicy
from acf.nn import BlockSparseLayer, block_sparse_layers
from acf.sparse import whole
from acf.train.changes import TopologyChange, move_blocks, prune_blocks
from acf.train.figures import LayerFigures, OnMove
from acf.train.inputs import InputSquares, fold_inputs
from acf.train.listener import LayerListener
from acf.train.processes import check_can_shrink, unwrapped
from acf.train.scores import AbsentBlockScores
from acf.train.state import check_state, policy_state

NEVER = -(2**31)  # the step at which a block was regrown that has been there from the start
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
        self.changes: list[TopologyChange] = []
        self._explored = {name: layer.mask() for name, layer in layers.items()}
        self._flip_rates = dict.fromkeys(layers, 0.0)
        self._grown_at = {name: torch.full_like(layer.block_rows, NEVER) for name, layer in layers.items()}
        momentum = policy.input_momentum
        self._inputs = {} if momentum is None else {name: InputSquares(layers[name], momentum) for name in layers}
        self._scores: dict[str, AbsentBlockScores] = {}
        self._listeners: list[LayerListener] = []
        _CONTROLLED.update(layers.values())
        self._hook = optimizer.register_step_post_hook(self._after_step)
        self._listen()

    @property
    def moves_next(self) -> bool:
        """Whether the topology may change after the coming step, so that its backward pass scores absent blocks."""
        return self.policy.moves_at(self.step + 1)

    @property
    def scores_next(self) -> bool:
        """Whether the coming step's backward pass must run eagerly: it scores absent blocks, or records inputs."""
        gathers = self.policy.grows_by_gradient and self.policy.scores_for(self.step + 1) is not None
        return gathers or self.moves_next or bool(self._inputs)

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

    def figures(self) -> tuple[LayerFigures, ...]:
        """Density, flip rate of the last move and share of blocks ever present, of every layer."""
        self._explore()
        return tuple(
            LayerFigures(
                self.step, name, layer.density, self._flip_rates[name], float(self._explored[name].float().mean())
            )
            for name, layer in self.layers.items()
        )

    def detach(self) -> None:
        """Stop changing the topology and remove every hook; the model keeps its present one."""
        self._hook.remove()
        self._stop_listening()
        for layer in self.layers.values():
            _CONTROLLED.discard(layer)

    def state_dict(self) -> dict[str, Any]:
        """Step, policy and what was gathered per layer; the topology itself is in the model's ``state_dict``.

        Random choices follow from the policy's seed and the step, so these two are the random state.
        """
        self._explore()
        layers = {
            name: {
                "explored": self._explored[name].clone(),
                "flip_rate": self._flip_rates[name],
                "grown_at": self._grown_at[name].clone(),
                "input_squares": self._inputs[name].mean if name in self._inputs else None,
                "growth_squares": self._scores[name].squares if name in self._scores else None,
            }
            for name in self.layers
        }
        return {"step": self.step, "policy": policy_state(self.policy), "layers": layers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``; it must come from the same policy. Load the model's ``state_dict`` first."""
        check_state(state, self.policy, {name: layer.layout for name, layer in self.layers.items()})
        self.step = int(state["step"])
        for name, saved in state["layers"].items():
            device = self.layers[name].block_rows.device
            self._explored[name] = saved["explored"].clone().to(device)
            self._flip_rates[name] = float(saved["flip_rate"])
            self._grown_at[name] = saved["grown_at"].clone().to(device)
            if name in self._inputs and saved["input_squares"] is not None:
                self._inputs[name].mean = saved["input_squares"].clone().to(device)
        self._stop_listening()
        self._scores = {}
        self._listen()
        for name, saved in state["layers"].items():
            if name in self._scores and saved.get("growth_squares") is not None:
                self._scores[name].restore(saved["growth_squares"])

    def _after_step(self, *_: Any) -> None:
        if self._paused:
            return
        self.step += 1
        fold_inputs(list(self._inputs.values()))
        if self.policy.moves_at(self.step):
            self._change_all()
            self._scores = {}
        self._listen()

    def _change_all(self) -> None:
        before = len(self.changes)
        kept = {name: self._blocks_kept(layer) for name, layer in self.layers.items()}
        check_can_shrink({name: layer for name, layer in self.layers.items() if kept[name] < layer.present_blocks})
        for name, layer in self.layers.items():
            self._change(name, layer, kept[name])
        unchanged = len(self.changes) == before
        if unchanged and self.policy.grows_by_gradient and any(map(_could_have_moved, self.layers.values())):
            _warn_unscored(self.step)
        self._explore()
        if self.on_move is not None:
            self.on_move(self.step, self.figures())

    def _blocks_kept(self, layer: BlockSparseLayer) -> int:
        present, target, block_count = layer.present_blocks, layer.target_blocks, layer.layout.block_count
        return self.policy.blocks_kept(self.step, present, target, block_count)

    def _change(self, name: str, layer: BlockSparseLayer, kept: int) -> None:
        present, scores, inputs = layer.present_blocks, self._scores[name], self._inputs.get(name)
        self._grown_at[name] = self._grown_at[name].to(layer.block_rows.device)
        if kept < present:
            moved = prune_blocks(layer, self.optimizer, scores, inputs, self._grown_at[name], self.step, kept)
        else:
            moved = move_blocks(layer, self.optimizer, scores, inputs, self._grown_at[name], self.step)
        if moved is not None:
            self._flip_rates[name] = moved / layer.present_blocks
            pruned = present - layer.present_blocks
            self.changes.append(TopologyChange(self.step, name, moved, layer.present_blocks, pruned))

    def _explore(self) -> None:
        for name, layer in self.layers.items():
            mask = layer.mask()
            self._explored[name] = self._explored[name].to(mask.device) | mask

    def _listen(self) -> None:
        """Hear what the next backward pass must tell: inputs always, absent blocks if it counts for a move."""
        self._stop_listening()
        move_step = self.policy.scores_for(self.step + 1)
        if move_step is not None and not self._scores:
            self._scores = {
                name: AbsentBlockScores(layer, self.policy, self.policy.generator(move_step, index))
                for index, (name, layer) in enumerate(self.layers.items())
            }
        heard: tuple[Mapping[str, InputSquares | AbsentBlockScores], ...] = (self._inputs,)
        if self.policy.grows_by_gradient:
            heard = (self._inputs, self._scores)
        for name, layer in self.layers.items():
            observers = [observers[name] for observers in heard if name in observers]
            if observers:
                self._listeners.append(LayerListener(layer, observers))

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []


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


def _warn_unscored(step: int) -> None:
    warnings.warn(
        f"no absent block was scored at step {step}, so no block moved; a replayed CUDA graph does not score: "
        "call the uncompiled model in the steps where controller.moves_next is true",
        UnscoredMoveWarning,
        stacklevel=3,
    )
