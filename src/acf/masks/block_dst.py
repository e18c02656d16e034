"""The policy of Algorithm 1: SET with growth by gradient. Step 4 itself stands in `acf.masks.algorithm1`."""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from acf.errors import SparsityError
from acf.masks.set import SET

SCORES = ("magnitude", "input_aware")


@dataclass(frozen=True)
class BlockDST(SET):
    """Drop the blocks of least l2 norm and grow those of greatest gradient norm: Algorithm 1, or RigL with blocks.

    ``score="input_aware"`` weights every column of a block by the root mean square of the input that reaches it, a
    running mean over the steps with ``momentum``. ``candidates`` lets only some absent blocks of a layer be scored
    and regrown, drawn anew at every t_k: a fraction of them (float) or a number (int). ``score_steps`` is the number of
    steps up to t_k whose squared gradient norms are summed, because one batch is a noisy sample.

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
        self.check_share("momentum", "at least 0 and below 1", lambda share: 0.0 <= share < 1.0)
        share = self.candidates
        valid = share is None or (type(share) is int and share >= 1) or (type(share) is float and 0.0 < share <= 1.0)
        valid_steps = type(self.score_steps) is int and 1 <= self.score_steps <= self.every
        self.check_range("score_steps", "a whole number from 1 to every", valid_steps)
        self.check_range("candidates", "None, a fraction above 0 and at most 1, or a whole number of at least 1", valid)

    @property
    def grows_by_gradient(self) -> bool:
        """True: gradients rank what SET draws at random."""
        return True

    @property
    def moves_on_device(self) -> bool:
        """True unless candidates are drawn on the host, or the scores of several steps are added up."""
        return self.candidates is None and self.score_steps == 1 and self.input_momentum is None

    @property
    def input_momentum(self) -> float | None:
        """``momentum`` where the score is input-aware."""
        return self.momentum if self.score == "input_aware" else None

    def scores_for(self, step: int) -> int | None:
        """The next t_k, if ``step`` is one of the ``score_steps`` up to it."""
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
