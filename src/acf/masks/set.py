"""Sparse evolutionary training (SET): drop the smallest blocks, grow random ones."""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from acf.masks.policy import PeriodicPolicy, copy_to_device
from acf.masks.schedule import SCHEDULES


@dataclass(frozen=True)
class SET(PeriodicPolicy):
    """Drop the blocks of least l2 norm and grow random ones, every ``every`` steps (Mocanu et al. 2018).

    At step ``t_k`` a layer moves ``fraction * schedule(t_k / last)`` of its blocks, where ``last`` is
    ``stop_at * total_steps``. The topology is fixed before ``start_at * total_steps`` and after ``last``, so that the
    weights can settle. A layer that starts dense (``init="dense"``) is pruned to its target at the first t_k, or with
    ``shrink_until`` over all t_k up to ``shrink_until * total_steps``, most of it early.

    A regrown block starts at zero and stays the smallest for a while, so the next move would drop it again.
    ``grace_moves`` is the number of following moves that may not drop it.
    """

    fraction: float = 0.3
    schedule: str = "cosine"
    stop_at: float = 0.75
    seed: int = 0
    start_at: float = 0.0
    shrink_until: float = 0.0
    grace_moves: int = 0

    def __post_init__(self) -> None:
        self.check_count("total_steps")
        self.check_count("every")
        self.check_share("fraction", "above 0 and at most 1", lambda share: 0.0 < share <= 1.0)
        self.check_share("stop_at", "above 0 and at most 1", lambda share: 0.0 < share <= 1.0)
        self.check_share("start_at", "at least 0 and below stop_at", lambda share: 0.0 <= share < self.stop_at)
        self.check_share("shrink_until", "0, or up to stop_at", lambda share: 0.0 <= share <= self.stop_at)
        valid_grace = type(self.grace_moves) is int and self.grace_moves >= 0
        self.check_range("grace_moves", "a whole number of at least 0", valid_grace)
        self.check_range("seed", "a whole number of at least 0", type(self.seed) is int and self.seed >= 0)
        self.check_period(self.schedule)

    @property
    def first_step(self) -> float:
        """The first step at which the topology may change."""
        return self.start_at * self.total_steps

    @property
    def last_step(self) -> float:
        """The last step at which the topology may change."""
        return self.stop_at * self.total_steps

    @property
    def grace_steps(self) -> int:
        """For how many steps a regrown block may not be dropped."""
        return self.grace_moves * self.every

    @property
    def random_seed(self) -> int:
        """Seed of all random choices."""
        return self.seed

    def blocks_kept(self, step: int, present: int, target: int, block_count: int) -> int:
        """``target`` from the first t_k on, or from the last t_k up to ``shrink_until``; more before that."""
        first = max(1, ceil(self.first_step / self.every)) * self.every
        last = self.shrink_until * self.total_steps // self.every * self.every
        # Start the ramp one period early, so that the first update already prunes.
        progress = 1.0 if step >= last else (step - first + self.every) / (last - first + self.every)
        return min(present, target + round(SCHEDULES["cubic"](progress) * (block_count - target)))

    def blocks_to_move(self, step: int, present: int, absent: int) -> int:
        """How many of a layer's ``present`` blocks move at ``step``; never more than fit or are absent."""
        share = self.fraction * SCHEDULES[self.schedule](min(1.0, step / self.last_step))
        return min(round(share * present), present, absent)

    def most_blocks_to_move(self, present: int, absent: int) -> int:
        """An upper bound of `blocks_to_move`: no schedule exceeds its start."""
        return min(round(self.fraction * present), present, absent)

    def growth_scores(self, gradient_squares: Tensor, generator: torch.Generator) -> Tensor:
        """A uniform random number per candidate."""
        return copy_to_device(torch.rand(gradient_squares.shape, generator=generator), gradient_squares.device)
