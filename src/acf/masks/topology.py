"""Start topologies: where the blocks of a layer lie before the first move.

A topology is a function from block scores ``[rows, taps, channels]`` and a number of blocks to a mask of exactly that
many. ``rows`` and ``channels`` count blocks; ``taps`` is the number of kernel positions of a convolution, 1 for a
linear layer. Scores are block norms, or random numbers for a layer that is drawn from the meta device. They decide
wherever the structure leaves a choice, so that no topology needs a seed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from acf.errors import SparsityError
from acf.masks.selection import round_robin, top_blocks


def spread_mask(scores: Tensor, count: int) -> Tensor:
    """Constant fan-in and fan-out: all block rows hold the same number of blocks, within one; so do all columns.

    Row by row, the least used columns are taken, of those the ones of highest score. Columns are used alike after
    every row, within one, because a row takes each column at most once.
    """
    matrix = scores.flatten(1)
    rows, cols = matrix.shape
    per_row = torch.full((rows,), count // rows)
    per_row[matrix.sum(dim=1).sort(descending=True, stable=True).indices[: count % rows]] += 1
    used, mask = torch.zeros(cols, dtype=torch.int64), torch.zeros(rows, cols, dtype=torch.bool)
    by_score = matrix.sort(dim=1, descending=True, stable=True).indices
    for row, (order, taken) in enumerate(zip(by_score, per_row.tolist(), strict=True)):
        chosen = order[used[order].sort(stable=True).indices[:taken]]
        mask[row, chosen] = True
        used[chosen] += 1
    return mask.reshape(scores.shape)


def diagonal_mask(scores: Tensor, count: int) -> Tensor:
    """Wrapped block diagonals (DynaDiag): those of greatest summed score, and a part of the next one.

    A diagonal runs along the longer side of the grid and wraps around the shorter one, so that it meets every block
    row and every column. In a convolution every tap has its own diagonals.
    """
    rows, taps, channels = scores.shape
    shorter = min(rows, channels)
    in_tap = (torch.arange(channels) - torch.arange(rows)[:, None]) % shorter
    diagonal = in_tap[:, None, :] + shorter * torch.arange(taps)[:, None]  # which one each block lies on
    sums = torch.zeros(taps * shorter).index_add_(0, diagonal.flatten(), scores.flatten())
    rank = torch.empty(taps * shorter, dtype=torch.int64)
    rank[sums.sort(descending=True, stable=True).indices] = torch.arange(taps * shorter)
    return _first_by_tier(scores.flatten(1), rank[diagonal].flatten(1), count).reshape(scores.shape)


def butterfly_mask(scores: Tensor, count: int) -> Tensor:
    """Block diagonal, then block butterfly (Pixelated Butterfly): blocks whose indices differ in one bit.

    If blocks are left after all butterfly factors, those follow whose indices differ in two bits, as in a product of
    two factors, and so on. A set of blocks that does not fit whole is filled by score, over all strides alike: with
    short strides alone, distant channels would never meet. Indices are stretched to a power of two where the grid is
    not one, and are the same at every tap of a convolution.
    """
    rows, taps, channels = scores.shape
    side = 1 << (min(rows, channels).bit_length() - 1)
    row_index, channel_index = torch.arange(rows) * side // rows, torch.arange(channels) * side // channels
    difference = row_index[:, None] ^ channel_index
    bits = sum((difference >> bit) & 1 for bit in range(side.bit_length()))
    tier = torch.as_tensor(bits)[:, None, :].expand(rows, taps, channels).flatten(1)
    return _first_by_tier(scores.flatten(1), tier, count).reshape(scores.shape)


def _first_by_tier(scores: Tensor, tier: Tensor, count: int) -> Tensor:
    """The mask of the ``count`` blocks of lowest ``tier``; of the last tier, rows with the fewest blocks come first."""
    last = int((torch.bincount(tier.flatten()).cumsum(0) <= count).sum())  # the first tier that does not fit whole
    mask = tier < last
    members = torch.nonzero((tier == last).flatten()).flatten()
    order = round_robin(scores.flatten()[members], members // scores.shape[1], turns_taken=mask.sum(dim=1))
    mask.view(-1)[members[order[: count - int(mask.sum())]]] = True
    return mask


TOPOLOGIES: dict[str, Callable[[Tensor, int], Tensor] | None] = {
    "norm": None,  # the blocks of highest score, anywhere: see `acf.masks.selection.top_blocks`
    "spread": spread_mask,
    "butterfly": butterfly_mask,
    "diagonal": diagonal_mask,
}
"""Every start topology by name. A new one is a function of scores and count, and one line here."""

ROW_BALANCED = ("norm", "spread")
"""The topologies that can hold the same number of blocks in every block row, as distribution "balanced" asks."""


@dataclass(frozen=True)
class StartTopology:
    """A start topology for the grid of one layer: ``matrices`` below each other (experts), ``taps`` side by side.

    >>> StartTopology("diagonal").mask(torch.eye(3), count=3).int().tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """

    name: str = "norm"
    matrices: int = 1
    taps: int = 1

    def mask(self, scores: Tensor, count: int, balanced: bool = False) -> Tensor:
        """The bool mask of ``count`` blocks for ``scores [grid_rows, grid_cols]``, on their device.

        ``balanced`` keeps the same number in every block row, within one.
        """
        check_topology(self.name, balanced)
        build = TOPOLOGIES[self.name]
        if build is None:
            return top_blocks(scores, count, balanced)
        grids = scores.float().cpu().reshape(self.matrices, -1, self.taps, scores.shape[1] // self.taps)
        shares = [count // self.matrices + (index < count % self.matrices) for index in range(self.matrices)]
        masks = [build(grid, share) for grid, share in zip(grids, shares, strict=True)]
        return torch.stack(masks).reshape(scores.shape).to(scores.device)


def check_topology(name: str, balanced: bool) -> None:
    """Refuse an unknown name, and a topology that cannot be ``balanced`` where it must be."""
    if name not in TOPOLOGIES:
        raise SparsityError(f"topology {name!r} is not one of {', '.join(TOPOLOGIES)}; use one of these names")
    if balanced and name not in ROW_BALANCED:
        raise SparsityError(
            f"topology {name!r} does not hold the same number of blocks in every block row, which distribution "
            f"'balanced' asks for; use topology {' or '.join(ROW_BALANCED)}, or another distribution"
        )
