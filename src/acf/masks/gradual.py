"""Gradual magnitude pruning: from dense to the target sparsity over training."""

from dataclasses import dataclass

from acf.errors import SparsityError
from acf.masks.policy import PeriodicPolicy
from acf.masks.schedule import SCHEDULES


@dataclass(frozen=True)
class GradualPruning(PeriodicPolicy):
    """Prune the blocks of least l2 norm, a few every ``every`` steps, until the target is reached (Zhu & Gupta 2017).

    After step ``t_k`` a layer holds its target plus ``schedule(t_k / last)`` of the blocks that it must lose, where
    ``last`` is the last t_k; the cubic schedule prunes most blocks early. Nothing is regrown. The model must
    start dense: ``BlockSparsity(..., init="dense")``.

    >>> policy = GradualPruning(total_steps=400, every=100, stop_at=1.0)
    >>> [policy.blocks_kept(step, present=100, target=36, block_count=100) for step in (100, 200, 300, 400)]
    [63, 44, 37, 36]
    """

    schedule: str = "cubic"
    stop_at: float = 0.75

    def __post_init__(self) -> None:
        self.check_count("total_steps")
        self.check_count("every")
        self.check_share("stop_at", "above 0 and at most 1", lambda share: 0.0 < share <= 1.0)
        self.check_period(self.schedule)

    @property
    def last_step(self) -> float:
        """The last step at which the topology may change."""
        return self.stop_at * self.total_steps

    def blocks_kept(self, step: int, present: int, target: int, block_count: int) -> int:
        """Blocks that a layer holds after ``step``: ``target`` from the last t_k on, whatever the schedule."""
        last = self.last_step // self.every * self.every
        excess = SCHEDULES[self.schedule](step / last) if step < last else 0.0
        return min(present, target + round(excess * (block_count - target)))

    def check_start(self, name: str, present: int, target: int, starts_dense: bool) -> None:
        """A layer must have started with all its blocks."""
        if not starts_dense:
            raise SparsityError(
                f"{name} starts with the {target} blocks it is to end with, so nothing would ever be pruned; "
                'use BlockSparsity(..., init="dense"), or another policy'
            )
