"""The controller that moves a model's blocks while the user's own loop trains it."""

from dataclasses import asdict, dataclass
from typing import Any

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
        self._hook = optimizer.register_step_post_hook(self._after_step)
        self._listen_if_due()

    @property
    def sparsity(self) -> float:
        """Share of blocks that are absent, over all layers it moves."""
        present = sum(layer.present_blocks for layer in self.layers.values())
        return 1.0 - present / sum(layer.layout.block_count for layer in self.layers.values())

    def detach(self) -> None:
        """Stop moving blocks and remove every hook; the model keeps its present topology."""
        self._hook.remove()
        self._stop_listening()

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
        mine = asdict(self.policy)
        for key, value in state["policy"].items():
            if mine.get(key) != value:
                raise TopologyError(
                    f"the checkpoint was made with {key}={value}, this policy has {key}={mine.get(key)}; "
                    "attach the policy of the checkpoint, or start a new schedule without loading it"
                )
        self.step = int(state["step"])
        self._listen_if_due()

    def _after_step(self, *_: Any) -> None:
        self.step += 1
        if self.policy.moves_at(self.step):
            for name, layer in self.layers.items():
                self._move(name, layer)
        self._listen_if_due()

    def _listen_if_due(self) -> None:
        """Score absent blocks in the next backward pass if blocks move after it."""
        self._stop_listening()
        if self.policy.moves_at(self.step + 1):
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


def zero_optimizer_state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, slots: Tensor) -> None:
    """Zero ``slots`` in every state tensor of the parameter's shape, whatever the optimizer calls it."""
    for value in optimizer.state.get(parameter, {}).values():
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            value[slots] = 0.0
