"""Policies that swap blocks at a fixed number of blocks: SET, and Algorithm 1 of the ACF proposal."""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from acf.errors import SparsityError
from acf.masks.policy import PeriodicPolicy
from acf.masks.schedule import SCHEDULES

SCORES = ("magnitude", "input_aware")


@dataclass(frozen=True)
class SET(PeriodicPolicy):
    """Prune the blocks of least l2 norm and regrow random ones, every ``every`` steps (Mocanu et al. 2018).

    At step ``t_k`` a layer moves ``fraction * schedule(t_k / last)`` of its blocks, where ``last`` is
    ``stop_at * total_steps``; later the topology rests so that the weights can settle, and so it does before
    ``start_at * total_steps``. A layer that starts dense (``init="dense"``) is pruned to its target at the first t_k,
    or with ``shrink_until`` over all t_k up to ``shrink_until * total_steps``, most of it early.

    A regrown block starts at zero and is the smallest for a while, so the next move would drop it again.
    ``grace_moves`` is the number of following moves that must pass it by.
    """

    fraction: float = 0.3
    schedule: str = "cosine"
    stop_at: float = 0.75
    seed: int = 0
    start_at: float = 0.0
    shrink_until: float = 0.0
    grace_moves: int = 0

    def __post_init__(self) -> None:
        self.check_range("total_steps", "at least 1", self.total_steps >= 1)
        self.check_range("every", "at least 1", self.every >= 1)
        self.check_range("fraction", "above 0 and at most 1", 0.0 < self.fraction <= 1.0)
        self.check_range("stop_at", "above 0 and at most 1", 0.0 < self.stop_at <= 1.0)
        self.check_range("start_at", "at least 0 and below stop_at", 0.0 <= self.start_at < self.stop_at)
        self.check_range("shrink_until", "0, or up to stop_at", 0.0 <= self.shrink_until <= self.stop_at)
        valid_grace = type(self.grace_moves) is int and self.grace_moves >= 0
        self.check_range("grace_moves", "a whole number of at least 0", valid_grace)
        self.check_range("seed", "a whole number of at least 0", type(self.seed) is int and self.seed >= 0)
        self.check_period(self.schedule)

    @property
    def first_step(self) -> float:
        """The step before which the topology rests."""
        return self.start_at * self.total_steps

    @property
    def last_step(self) -> float:
        """The step after which the topology rests."""
        return self.stop_at * self.total_steps

    @property
    def grace_steps(self) -> int:
        """How many steps a regrown block is safe from being dropped."""
        return self.grace_moves * self.every

    @property
    def random_seed(self) -> int:
        """What all random choices follow from."""
        return self.seed

    def blocks_kept(self, step: int, present: int, target: int, block_count: int) -> int:
        """The target, from the first t_k on or from the last one up to ``shrink_until``; before that more."""
        first = max(1, ceil(self.first_step / self.every)) * self.every
        last = self.shrink_until * self.total_steps // self.every * self.every
        # As if one period before the first t_k were the start, so that the first prunes too.
        progress = 1.0 if step >= last else (step - first + self.every) / (last - first + self.every)
        return min(present, target + round(SCHEDULES["cubic"](progress) * (block_count - target)))

    def blocks_to_move(self, step: int, present: int, absent: int) -> int:
        """How many of a layer's ``present`` blocks move at ``step``; never more than fit or are absent."""
        share = self.fraction * SCHEDULES[self.schedule](min(1.0, step / self.last_step))
        return min(round(share * present), present, absent)

    def growth_scores(self, gradient_squares: Tensor, generator: torch.Generator) -> Tensor:
        """A uniform random number per candidate."""
        return torch.rand(gradient_squares.shape, generator=generator).to(gradient_squares.device)


@dataclass(frozen=True)
class BlockDST(SET):
    """Prune the blocks of least l2 norm and regrow those of greatest gradient norm: Algorithm 1.

    As printed, step 4 prunes a fraction s and then regrows k more, which would end below s; here k blocks more are
    pruned than the ratio asks for, and k regrown, so the ratio holds exactly. Regrowth ranks the gradients of *absent*
    blocks, which the sparse backward pass does not compute; the trainer computes their norms at the steps t_k only.

    ``score="input_aware"`` weighs every column of a block by the root mean square of the input that reaches it, a
    running mean over the steps with ``momentum``. ``candidates`` lets only some absent blocks of a layer be scored
    and regrown, drawn anew at every t_k: a fraction of them (float) or a number (int). ``score_steps`` sums the squared
    gradient norms of that many steps up to t_k, of which one batch alone is a noisy sample.

    >>> BlockDST(total_steps=1000, every=100).moves_at(300)
    True
    """

    score: str = "magnitude"
    momentum: float = 0.9
    candidates: float | int | None = None
    score_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score not in SCORES:
            raise SparsityError(f"score {self.score!r} is not one of {', '.join(SCORES)}; use one of these names")
        self.check_range("momentum", "at least 0 and below 1", 0.0 <= self.momentum < 1.0)
        share = self.candidates
        valid = share is None or (share >= 1 if type(share) is int else 0.0 < share <= 1.0)
        valid_steps = type(self.score_steps) is int and 1 <= self.score_steps <= self.every
        self.check_range("score_steps", "a whole number from 1 to every", valid_steps)
        self.check_range("candidates", "None, a fraction above 0 and at most 1, or a whole number of at least 1", valid)

    @property
    def grows_by_gradient(self) -> bool:
        """Always: that is what sets it apart from SET."""
        return True

    @property
    def input_momentum(self) -> float | None:
        """``momentum`` where the score is input-aware."""
        return self.momentum if self.score == "input_aware" else None

    def scores_for(self, step: int) -> int | None:
        """The coming move, if ``step`` is one of the ``score_steps`` up to it."""
        move = ceil(step / self.every) * self.every
        return move if move - step < self.score_steps and self.moves_at(move) else None

    def sample(self, absent: int, generator: torch.Generator) -> Tensor | None:
        """Indices, ascending, of the ``absent`` blocks that are scored; None for all of them."""
        if self.candidates is None:
            return None
        share = self.candidates
        count = share if isinstance(share, int) else max(1, round(share * absent))
        return torch.randperm(absent, generator=generator)[:count].sort().values

    def growth_scores(self, gradient_squares: Tensor, generator: torch.Generator) -> Tensor:
        """The squared gradient norms themselves."""
        return gradient_squares
