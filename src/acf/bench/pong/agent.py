"""The learner: a Q-network, its target network, and double-DQN steps that a CUDA graph replays on a GPU."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import acf
from acf.bench.pong.network import pong_network
from acf.bench.pong.replay import Batch
from acf.bench.pong.settings import DqnSettings
from acf.bench.training.variant import Variant
from acf.errors import SparsityError
from acf.train.graphed import GraphedStep

ADAM_EPSILON = 1e-5
REFUSED = ("width", "layers", "decay", "speedup", "batch")
"""Settings of a `Variant` that a run of Pong does not have: all variants share the learner's, but for the rate."""


def pong_variant(name: str) -> Variant:
    """The variant of that name; refuse what does not fit: another kind of layer, or a number of blocks that changes."""
    variant = Variant.parse(name)
    for setting in REFUSED:
        if getattr(variant, setting) is not None:
            raise SparsityError(f"{setting} in variant {name!r} is the same for all of Pong's variants; leave it out")
    if variant.rate == 0:
        raise SparsityError(f"rate 0 in variant {name!r} trains nothing; use such as rate=5e-4")
    sparsity = variant.recipe.sparsity
    if sparsity is not None and not isinstance(sparsity, acf.BlockSparsity):
        raise SparsityError(f"variant {name!r} is neither dense nor block-sparse; use such as static-90 or rigl-90")
    if sparsity is not None and sparsity.init == "dense":
        raise SparsityError(
            f"variant {name!r} starts dense and its layers shrink, which a target network cannot follow; "
            "add /init=sparse, or use static-90 or rigl-90"
        )
    if sparsity is not None and sparsity.distribution == "cost":
        raise SparsityError(f"distribution=cost in variant {name!r} needs a plan; use erk or uniform")
    return variant


class DqnAgent:
    """``variant`` of the Q-network from ``seed``; the target network has the same topology as the last copy."""

    def __init__(self, settings: DqnSettings, variant: Variant, actions: int, seed: int, device: torch.device) -> None:
        self.settings, self.device, self.actions = settings, device, actions
        self.rate = settings.rate if variant.rate is None else variant.rate
        torch.manual_seed(seed)
        self.model = pong_network(settings, variant, actions, device)
        self.target = copy.deepcopy(self.model).requires_grad_(False)
        rate = torch.tensor(self.rate, device=device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=rate, eps=ADAM_EPSILON, fused=True, capturable=device.type == "cuda"
        )
        policy = variant.recipe.policy
        self.topology = policy and acf.attach(self.model, self.optimizer, policy(settings.steps, seed))
        self.step_fn = GraphedStep(self._loss, self.optimizer, self.topology)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.step = self._earlier_moves = 0

    @torch.no_grad()
    def act(self, frames: Tensor, epsilon: float) -> NDArray[np.int64]:
        """The action of the highest value for every game, or with probability ``epsilon`` a random one."""
        with self._computing():
            best = self.model(frames).argmax(1)
        size = (len(frames),)
        at_random = torch.rand(size, device=self.device, generator=self.generator) < epsilon
        drawn = torch.randint(self.actions, size, device=self.device, generator=self.generator)
        chosen: NDArray[np.int64] = torch.where(at_random, drawn, best).cpu().numpy()
        return chosen

    def train_step(self, batch: Batch) -> Tensor:
        """One optimizer step; its loss. Every ``target_every`` steps the target network becomes a copy."""
        loss = self.step_fn(*batch)
        self.step += 1
        if self.step % self.settings.target_every == 0:
            copy_network(self.target, self.model)
        return loss

    def warm_up(self, batch: Batch, frames: Tensor) -> None:
        """Compile, tune and capture before the clock starts; weights and random state stay as they are."""
        state = self.generator.get_state()
        self.act(frames, 0.0)
        acf.warm_up(self.model, self.step_fn, *batch)
        self.generator.set_state(state)

    def capture(self, batch: Batch, label: str) -> acf.Trace:
        """The trace of a step's forward and backward pass on ``batch``, of a copy: the run is not disturbed.

        The two forward passes over the next states, which have no backward pass, are not in it.
        """
        model = copy.deepcopy(self.target).requires_grad_(True)
        copy_network(model, self.model)
        targets = self._targets(batch)
        with acf.capture(model, label) as trace:
            self._error(model, batch, targets).backward()  # type: ignore[no-untyped-call]
        return trace

    def save(self, path: Path, **more: Any) -> None:
        """Write model, target network, optimizer, topology and random state, with plain values as ``more``."""
        parts = self._parts() | {"generator": self.generator.get_state(), "step": self.step, "moves": self.moves}
        acf.save_checkpoint(path, **parts, **more)

    def load(self, path: Path) -> dict[str, Any]:
        """Read what `save` wrote, before `warm_up`; returns the plain values."""
        more = acf.load_checkpoint(path, **self._parts())
        for group in self.optimizer.param_groups:  # the file's rate lies on the CPU
            group["lr"] = torch.tensor(self.rate, device=self.device)
        self.generator.set_state(more.pop("generator"))
        self.step, self._earlier_moves = int(more.pop("step")), int(more.pop("moves"))
        return more

    @property
    def moves(self) -> int:
        """Steps after which blocks have moved, those before a checkpoint that was loaded included."""
        if self.topology is None:
            return 0
        return self._earlier_moves + len({change.step for change in self.topology.changes})

    def close(self) -> None:
        """Let go of the topology's hooks."""
        if self.topology is not None:
            self.topology.detach()

    def _parts(self) -> dict[str, Any]:
        parts = {"model": self.model, "target": self.target, "optimizer": self.optimizer}
        return parts if self.topology is None else parts | {"topology": self.topology}

    def _loss(self, *batch: Tensor) -> Tensor:
        given = Batch(*batch)
        return self._error(self.model, given, self._targets(given))

    def _error(self, model: nn.Module, batch: Batch, targets: Tensor) -> Tensor:
        """The mean Huber loss of the values of the actions that were taken."""
        with self._computing():
            values = model(batch.states)
        return F.smooth_l1_loss(values.float().gather(1, batch.actions[:, None])[:, 0], targets)

    @torch.no_grad()
    def _targets(self, batch: Batch) -> Tensor:
        """Double DQN: the model chooses the next action, the target network values it."""
        with self._computing():
            best = self.model(batch.next_states).argmax(1, keepdim=True)
            values: Tensor = self.target(batch.next_states).float().gather(1, best)[:, 0]
        return batch.returns + batch.discounts * values

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Products in bfloat16 where the settings ask for it, without a cache of casts, as CUDA graphs need it."""
        in_bf16 = self.device.type == "cuda" and self.settings.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=in_bf16, cache_enabled=False):
            yield


@torch.no_grad()
def copy_network(to: nn.Module, source: nn.Module) -> None:
    """Write parameters and buffers, topology included, of ``source`` into ``to``, in place."""
    pairs = zip(chain(to.parameters(), to.buffers()), chain(source.parameters(), source.buffers()), strict=True)
    for mine, other in pairs:
        mine.copy_(other)
