"""The controller that moves a model's blocks while the user's own loop trains it."""

import warnings
from dataclasses import asdict, dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from acf.errors import TopologyError
from acf.masks import BlockDST, plan_move
from acf.nn import BlockSparseLayer, block_sparse_layers
from acf.sparse import frobenius_norms
from acf.train.scores import AbsentBlockScores


@dataclass(frozen=True)
class TopologyChange:
    """How many blocks of one layer moved at one step."""

    step: int
    layer: str
    moved_blocks: int
    present_blocks: int


_CONTROLLED: "WeakSet[BlockSparseLayer]" = WeakSet()


class UnscoredMoveWarning(UserWarning):
    """Blocks were due to move, but no layer's absent blocks were scored."""


def attach(model: nn.Module, optimizer: torch.optim.Optimizer, policy: BlockDST) -> "TopologyController":
    """Let ``policy`` move the blocks of ``model`` after the optimizer steps it names; returns the controller.

    The training loop stays as it is: the controller hooks ``optimizer.step`` and, one step before a move, the
    backward pass. Keep ``controller.state_dict()`` in the checkpoint.
    """
    layers = {name: layer for name, layer in block_sparse_layers(model).items() if layer.weight.requires_grad}
    if not layers:
        raise TopologyError(
            "the model has no trainable block-sparse layer to attach to; call acf.sparsify_(model, ...) first"
        )
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, layer in layers.items() if id(layer.weight) not in held]
    if missing:
        raise TopologyError(
            f"the optimizer does not hold {missing[0]}.weight ({len(missing)} of {len(layers)} sparse layers missing); "
            "build it from model.parameters() after sparsify_, then attach"
        )
    taken = [name for name, layer in layers.items() if layer in _CONTROLLED]
    if taken:
        raise TopologyError(
            f"{taken[0]} is attached to a controller already, and two would move its blocks against each other; "
            "call detach() on the first"
        )
    return TopologyController(layers, optimizer, policy)


class TopologyController:
    """Counts optimizer steps and moves blocks at the steps ``policy`` names. Made by `acf.attach`."""

    def __init__(self, layers: dict[str, BlockSparseLayer], optimizer: torch.optim.Optimizer, policy: BlockDST) -> None:
        self.layers = layers
        self.optimizer = optimizer
        self.policy = policy
        self.step = 0
        self.changes: list[TopologyChange] = []
        self._scores: dict[str, AbsentBlockScores] = {}
        _CONTROLLED.update(layers.values())
        self._hook = optimizer.register_step_post_hook(self._after_step)
        self._listen_if_due()

    @property
    def moves_next(self) -> bool:
        """Whether blocks move after the coming step, so that its backward pass scores absent blocks."""
        return self.policy.moves_at(self.step + 1)

    @property
    def sparsity(self) -> float:
        """Share of blocks that are absent, over all layers it moves."""
        present = sum(layer.present_blocks for layer in self.layers.values())
        return 1.0 - present / sum(layer.layout.block_count for layer in self.layers.values())

    def detach(self) -> None:
        """Stop moving blocks and remove every hook; the model keeps its present topology."""
        self._hook.remove()
        self._stop_listening()
        for layer in self.layers.values():
            _CONTROLLED.discard(layer)

    def state_dict(self) -> dict[str, Any]:
        """Step and policy as plain values; the topology itself is in the model's ``state_dict``."""
        return {"step": self.step, "policy": asdict(self.policy)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``; it must come from the same policy. Load the model's ``state_dict`` first."""
        if set(state) != {"step", "policy"}:
            raise TopologyError(
                f"a topology state has the keys policy and step, this one has {', '.join(sorted(state)) or 'none'}; "
                "pass what TopologyController.state_dict() returned"
            )
        mine, theirs = asdict(self.policy), state["policy"]
        for key in [*mine, *(key for key in theirs if key not in mine)]:
            if key not in mine or key not in theirs or mine[key] != theirs[key]:
                raise TopologyError(
                    f"the checkpoint was made with {key}={theirs.get(key)}, this policy has {key}={mine.get(key)}; "
                    "attach the policy of the checkpoint, or start a new schedule without loading it"
                )
        self.step = int(state["step"])
        self._listen_if_due()

    def _after_step(self, *_: Any) -> None:
        self.step += 1
        if self.policy.moves_at(self.step):
            before = len(self.changes)
            for name, layer in self.layers.items():
                self._move(name, layer)
            if len(self.changes) == before and any(map(_could_have_moved, self.layers.values())):
                _warn_unscored(self.step)
        self._listen_if_due()

    def _listen_if_due(self) -> None:
        """Score absent blocks in the next backward pass if blocks move after it."""
        self._stop_listening()
        if self.moves_next:
            self._scores = {name: AbsentBlockScores(layer) for name, layer in self.layers.items()}

    def _stop_listening(self) -> None:
        for scores in self._scores.values():
            scores.close()
        self._scores = {}

    def _move(self, name: str, layer: BlockSparseLayer) -> None:
        absent_rows, absent_cols, absent_scores = self._scores[name].reduced()
        if not bool(absent_scores.any()):
            return  # the layer took no part in this step, or no block is absent
        count = self.policy.blocks_to_move(self.step, layer.present_blocks, absent_scores.numel())
        present_scores = frobenius_norms(layer.weight.detach(), dim=(1, 2))
        move = plan_move(present_scores, absent_scores, absent_rows, absent_cols, count)
        layer.move_blocks(move)
        zero_optimizer_state(self.optimizer, layer.weight, move.slots)
        self.changes.append(TopologyChange(self.step, name, count, layer.present_blocks))


def _could_have_moved(layer: BlockSparseLayer) -> bool:
    """Whether the layer got a gradient in this step that is not zero, and has absent blocks to score."""
    return layer.density < 1.0 and layer.weight.grad is not None and bool(layer.weight.grad.any())


def _warn_unscored(step: int) -> None:
    warnings.warn(
        f"no absent block was scored at step {step}, so no block moved; a replayed CUDA graph does not score: "
        "call the uncompiled model in the steps where controller.moves_next is true",
        UnscoredMoveWarning,
        stacklevel=3,
    )


def zero_optimizer_state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, slots: Tensor) -> None:
    """Zero ``slots`` in every state tensor that has the parameter's slots, whatever the optimizer calls it.

    That is a tensor of the parameter's shape, or of that shape with block height or width reduced to 1, as
    factored second moments have it.
    """
    for value in optimizer.state.get(parameter, {}).values():
        if isinstance(value, Tensor) and _has_slots(value, parameter):
            value[slots] = 0.0


def _has_slots(value: Tensor, parameter: nn.Parameter) -> bool:
    if value.dim() != parameter.dim() or value.shape[0] != parameter.shape[0]:
        return False
    return all(size in (1, whole) for size, whole in zip(value.shape, parameter.shape, strict=True))
