"""A training session that can be saved in the middle, resumed exactly, and traced; under `torchrun` with DDP."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import acf
from acf.bench.evaluation.ranks import current_ranks
from acf.bench.evaluation.systems import System
from acf.bench.evaluation.task import EvaluationTask
from acf.bench.training.schedule import StepSchedule
from acf.bench.training.session import TrainingSession
from acf.trace import Trace
from acf.train.restored import restored
from acf.zoo.pruning import Rigl

MASK_UPDATES = 30
"""Updates of RigL's masks, in the first three quarters of a run, as the block-sparse systems have them."""

LAST_UPDATE = 0.75


class EvaluationSession(TrainingSession):
    """``system`` of ``task`` from ``seed``, for ``total_steps``."""

    def __init__(self, task: EvaluationTask, system: System, seed: int, total_steps: int) -> None:
        self.ranks = current_ranks()
        super().__init__(task, system.variant, seed, StepSchedule(total_steps))
        self.evaluation, self.seed, self.total_steps = task, seed, total_steps
        self.mask_updates = 0
        self._earlier_moves: list[int] = []
        self.masks: Rigl | None = None
        if system.masked:
            masks = self.masks = Rigl(self.model, system.masked, seed)
            rescale(masks)

            def mask(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
                masks.apply()
                masks.apply_to_state(optimizer)

            self.optimizer.register_step_post_hook(mask)

    def replicated(self, model: nn.Module) -> nn.Module:
        """The model in DDP where several processes train."""
        if not self.ranks.several:
            return model
        replica = acf.data_parallel(model)
        if self.device.type == "cuda":
            replica.compile()
        return replica

    def step_function(self) -> Callable[..., Tensor]:
        """A CUDA graph for one process; several run eagerly, since DDP's reduction is no part of our graphs."""
        if not self.ranks.several:
            return super().step_function()
        self.loss_fn = self.task.loss  # the replica itself is compiled

        def step(*batch: Tensor) -> Tensor:
            self.optimizer.zero_grad()
            loss = self._loss(*batch)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            return loss.detach()

        return step

    def warm_up(self) -> float:
        """As in one process; several make only forward and backward passes before the first step."""
        if not self.ranks.several:
            return super().warm_up()
        started = time.perf_counter()
        example = self.task.batch(0, self.sizes.batch, torch.Generator(self.device).manual_seed(0))
        acf.warm_up(self.model, self._loss, *example, topology=self.topology)
        while self.step < self.warm_up_steps:
            self.train_step()
        return time.perf_counter() - started

    def train_step(self) -> Tensor:
        """One optimizer step, and after some of them an update of RigL's masks."""
        if self.ranks.several:  # dropout must differ between processes, and be the same in a resumed run
            torch.manual_seed((self.seed * 1_000_003 + self.step) * self.ranks.count + self.ranks.rank)
        loss = super().train_step()
        last = int(LAST_UPDATE * self.total_steps)
        if self.masks is not None and self.step % max(1, last // MASK_UPDATES) == 0 and self.step <= last:
            self.masks.progress = self.step / max(1, last)
            self.masks.update(self.optimizer)
            self.masks.apply_to_state(self.optimizer)
            self.mask_updates += 1
        return loss

    @property
    def sparsity(self) -> float:
        """Share of the weights that is absent, in the layers that were made sparse."""
        if self.masks is None:
            return acf.weight_sparsity(self.model)
        return 1.0 - self.masks.present / sum(mask.numel() for mask in self.masks.masks.values())

    def save(self, path: Path, **progress: Any) -> None:
        """Write everything that the run needs to go on, atomically, and ``progress`` with it."""
        parts = self._parts() | {
            "step": self.step,
            "mask_updates": self.mask_updates,
            "moved_steps": self._moved_steps(),
            "random_state": torch.get_rng_state(),
            "cuda_random_state": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "progress": progress,
        }
        acf.save_checkpoint(path, **parts)

    def load(self, path: Path) -> dict[str, Any]:
        """Go on from what `save` wrote; the ``progress`` in it. To be called before `warm_up`."""
        rest = acf.load_checkpoint(path, **self._parts())
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"].to(
                self.device
            )  # the file is read on the CPU, and a graph needs the rate on the GPU
        self.step, self.mask_updates = rest["step"], rest["mask_updates"]
        self._earlier_moves = list(rest["moved_steps"])
        torch.set_rng_state(rest["random_state"])
        if rest["cuda_random_state"] is not None:
            torch.cuda.set_rng_state(rest["cuda_random_state"], self.device)
        progress: dict[str, Any] = rest["progress"]
        return progress

    @property
    def moves(self) -> int:
        """Steps after which blocks or masks have moved, those before a resumption included."""
        return self.mask_updates if self.masks is not None else len(self._moved_steps())

    def _moved_steps(self) -> list[int]:
        changes = [] if self.topology is None else [change.step for change in self.topology.changes]
        return sorted({*self._earlier_moves, *changes})

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer}
        parts |= {"topology": self.topology} if self.topology is not None else {}
        return parts | ({"masks": self.masks} if self.masks is not None else {})

    def capture(self, examples: int, label: str) -> Trace:
        """The trace of a training step on ``examples`` examples, in float32; nothing of the run changes."""
        batch = self.evaluation.captured_batch(examples)
        quiet = nullcontext() if self.topology is None else self.topology.suspended()
        optimizer = "sgd" if isinstance(self.optimizer, torch.optim.SGD) else "adam"
        with quiet, restored(self.model), acf.capture(self.model, label, optimizer) as trace:
            self.evaluation.loss(self.model, *batch).backward()  # type: ignore[no-untyped-call]
        return trace


@torch.no_grad()
def rescale(masks: Rigl) -> None:
    """Scale fresh weights so that outputs keep the variance they had without masks, as block-sparse layers do."""
    for weight, mask in masks.masks.items():
        weight.mul_(float(mask.float().mean()) ** -0.5)
