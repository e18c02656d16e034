"""Block-structured dynamic sparse training: Algorithm 1 of the ACF proposal, closed where it is printed open.

As printed, step 4 prunes a fraction s and then regrows k more, which would end below s; here k blocks more are
pruned than the ratio asks for, and k regrown, so the ratio holds exactly. Regrowth ranks the gradients of
*absent* blocks, which the sparse backward pass does not compute; the trainer computes their norms at the
steps t_k only (`acf.ops.block_gradient_norms`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from acf.errors import SparsityError
from acf.masks.schedule import SCHEDULES


@dataclass(frozen=True)
class BlockDST:
    """Prune the blocks of least l2 norm and regrow those of greatest gradient norm, every ``every`` steps.

    At step ``t_k`` a layer moves ``fraction * schedule(t_k / last)`` of its blocks, where ``last`` is
    ``stop_at * total_steps``; later the topology rests so that the weights can settle.

    >>> BlockDST(total_steps=1000, every=100).moves_at(300)
    True
    """

    total_steps: int
    every: int = 100
    fraction: float = 0.3
    schedule: str = "cosine"
    stop_at: float = 0.75

    def __post_init__(self) -> None:
        for name, value, rule, valid in (
            ("total_steps", self.total_steps, "at least 1", self.total_steps >= 1),
            ("every", self.every, "at least 1", self.every >= 1),
            ("fraction", self.fraction, "above 0 and at most 1", 0.0 < self.fraction <= 1.0),
            ("stop_at", self.stop_at, "above 0 and at most 1", 0.0 < self.stop_at <= 1.0),
        ):
            if not valid:
                raise SparsityError(f"{name} {value} is out of range: it must be {rule}; pass such a value to BlockDST")
        if self.schedule not in SCHEDULES:
            raise SparsityError(
                f"schedule {self.schedule!r} is not one of {', '.join(SCHEDULES)}; use one of these names"
            )
        if self.every > self.last_step:
            raise SparsityError(
                f"every {self.every} is beyond the last moving step {self.last_step:g} (stop_at x total_steps), so no "
                "block would ever move; lower every, or train longer"
            )

    @property
    def last_step(self) -> float:
        """The step after which the topology rests."""
        return self.stop_at * self.total_steps

    def moves_at(self, step: int) -> bool:
        """Whether ``step`` (counted from 1, after its weight update) is one of the steps t_k."""
        return step > 0 and step % self.every == 0 and step <= self.last_step

    def blocks_to_move(self, step: int, present: int, absent: int) -> int:
        """How many of a layer's ``present`` blocks move at ``step``; never more than fit or are absent."""
        share = self.fraction * SCHEDULES[self.schedule](min(1.0, step / self.last_step))
        return min(round(share * present), present, absent)


@dataclass(frozen=True)
class TopologyMove:
    """Slots to empty, and the blocks that take them: three int64 tensors of one length."""

    slots: Tensor
    new_rows: Tensor
    new_cols: Tensor


def plan_move(
    present_scores: Tensor, absent_scores: Tensor, absent_rows: Tensor, absent_cols: Tensor, count: int
) -> TopologyMove:
    """Swap the ``count`` lowest of ``present_scores [nnz]`` for the highest of ``absent_scores [absent]``.

    Ties fall to the lower index, so that every process that sees the same scores makes the same choice.
    A block dropped now cannot come back in the same step: only blocks that were absent are candidates.
    """
    slots = torch.sort(present_scores, stable=True).indices[:count]
    grown = torch.sort(absent_scores, descending=True, stable=True).indices[:count]
    return TopologyMove(slots, absent_rows[grown].long(), absent_cols[grown].long())
