"""What `acf.masks.algorithm1.plan` and the training controller ask of a policy.

A policy is one frozen dataclass in one file that overrides some of these answers, and one line in
`acf.masks.POLICIES`. It says *when* the topology changes (`moves_at`), *how many* blocks stay and move (`blocks_kept`,
`blocks_to_move`) and *what ranks* the blocks to grow (`growth_scores`, `sample`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from numpy.random import SeedSequence
from torch import Tensor

from acf.errors import SparsityError
from acf.masks.schedule import SCHEDULES


def copy_to_device(values: Tensor, device: torch.device) -> Tensor:
    """Random numbers, drawn on the CPU, on ``device``; from pinned memory, so that the host does not wait for a GPU."""
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


class TopologyPolicy:
    """Base of all policies; its defaults describe a topology that never changes."""

    def moves_at(self, step: int) -> bool:
        """Whether the topology changes after ``step``, counted from 1, and its weight update."""
        return False

    def scores_for(self, step: int) -> int | None:
        """The step of the move for which the backward pass of ``step`` scores absent blocks; None if for none."""
        return step if self.moves_at(step) else None

    def blocks_kept(self, step: int, present: int, target: int, block_count: int) -> int:
        """How many blocks a layer holds after ``step``, at most ``present``; it ends with ``target``."""
        return present

    def blocks_to_move(self, step: int, present: int, absent: int) -> int:
        """How many of a layer's ``present`` blocks change places at ``step``."""
        return 0

    def most_blocks_to_move(self, present: int, absent: int) -> int:
        """An upper bound of `blocks_to_move` over all steps."""
        return min(present, absent)

    @property
    def moves_on_device(self) -> bool:
        """Whether a move needs nothing from the host but its size, so that a CUDA graph can contain it."""
        return False

    @property
    def grows_by_gradient(self) -> bool:
        """Whether absent blocks must be scored by their gradients in the backward pass before a move."""
        return False

    @property
    def input_momentum(self) -> float | None:
        """Momentum of the running mean squares of inputs that weight the magnitudes; None for plain magnitudes."""
        return None

    @property
    def grace_steps(self) -> int:
        """For how many steps a regrown block may not be dropped."""
        return 0

    @property
    def random_seed(self) -> int:
        """Seed of all random choices."""
        return 0

    def sample(self, absent: int, generator: torch.Generator) -> Tensor | None:
        """Indices, ascending, of the ``absent`` blocks that may be grown; None for all of them."""
        return None

    def growth_scores(self, gradient_squares: Tensor, generator: torch.Generator) -> Tensor:
        """Scores that rank the candidates, given their squared gradient norms; of the same shape and device."""
        return gradient_squares

    def check_start(self, name: str, present: int, target: int, starts_dense: bool) -> None:
        """Refuse a layer that this policy would never bring from ``present`` to ``target`` blocks."""

    def generator(self, step: int, layer_index: int) -> torch.Generator:
        """The random generator of one layer at one step, on the CPU.

        It depends on the policy's seed, the step and the index of the layer alone, so all processes draw the same
        numbers, and a checkpoint that holds seed and step holds the random state.
        """
        mixed = SeedSequence([self.random_seed, step, layer_index]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(mixed[0]) >> 1)


@dataclass(frozen=True)
class PeriodicPolicy(TopologyPolicy):
    """Base of the policies that act every ``every`` steps, from ``first_step`` up to ``last_step``."""

    total_steps: int
    every: int = 100

    @property
    def first_step(self) -> float:
        """The first step at which the topology may change."""
        return 1.0

    @property
    def last_step(self) -> float:
        """The last step at which the topology may change."""
        return float(self.total_steps)

    def moves_at(self, step: int) -> bool:
        """Whether ``step`` (counted from 1, after its weight update) is one of the steps t_k."""
        return step > 0 and step % self.every == 0 and self.first_step <= step <= self.last_step

    def check_range(self, name: str, rule: str, valid: bool) -> None:
        """Refuse a setting that breaks its rule."""
        if not valid:
            raise SparsityError(
                f"{name} {getattr(self, name)} is out of range: it must be {rule}; "
                f"pass such a value to {type(self).__name__}"
            )

    def check_count(self, name: str) -> None:
        """Refuse a setting that is no whole number of at least 1; ``1000 / 10`` is none, ``1000 // 10`` is one."""
        value = getattr(self, name)
        self.check_range(name, "a whole number of at least 1", type(value) is int and value >= 1)

    def check_share(self, name: str, rule: str, valid: Callable[[float], bool]) -> None:
        """Refuse a setting that is no finite number, or breaks its rule."""
        value = getattr(self, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        self.check_range(name, rule, is_number and valid(value))

    def check_period(self, schedule: str) -> None:
        """Refuse an unknown schedule, and a period in which nothing would ever happen."""
        if schedule not in SCHEDULES:
            raise SparsityError(f"schedule {schedule!r} is not one of {', '.join(SCHEDULES)}; use one of these names")
        if self.every > self.last_step:
            raise SparsityError(
                f"every {self.every} is beyond the last moving step {self.last_step:g} (stop_at x total_steps), so no "
                "block would ever move; lower every, or train longer"
            )
        if not self.moves_at(int(self.last_step // self.every * self.every)):
            raise SparsityError(
                f"no multiple of every {self.every} lies between the steps {self.first_step:g} and {self.last_step:g} "
                "(start_at and stop_at x total_steps), so no block would ever move; lower every or start_at"
            )
