"""Transposable N:M masks: n of every m weights along the outputs and along the inputs at once.

A weight masked so is N:M sparse in both orientations. One mask then serves the forward product, which sums over the
inputs, and the input gradient, which sums over the outputs.
"""

from itertools import combinations, product

import torch
from torch import Tensor

from acf.errors import SparsityError
from acf.sparse.compiler_constant import compiler_constant

LARGEST_TILE = 4  # 90 patterns at 2:4, and 116,963,796,250 at 4:8
_CHUNK_TILES = 1 << 18  # tiles scored at a time, so that scores take about 100 MB


def transposable_mask(weight: Tensor, n: int, m: int) -> Tensor:
    """Bool mask of ``weight [out, in, ...]``'s shape: n per row and per column of every m x m tile of out x in.

    Of all such patterns, each tile keeps the one with the greatest sum of magnitudes. Of equal sums, the first in
    `transposable_patterns` wins, so that every process makes the same choice. Sums are taken in float32 at least.

    >>> transposable_mask(torch.eye(4), n=2, m=4).int().sum(1)
    tensor([2, 2, 2, 2])
    """
    require_enumerable(n, m)
    if not isinstance(weight, Tensor) or weight.dim() < 2:
        found = f"{weight.dim()} dimensions" if isinstance(weight, Tensor) else f"type {type(weight).__name__}"
        raise SparsityError(f"weight is of {found}, and a transposable mask has two; pass a tensor [out, in, ...]")
    for dim in (0, 1):
        if weight.shape[dim] % m:
            raise SparsityError(
                f"m {m} does not divide dimension {dim} of size {weight.shape[dim]}, and a transposable mask has "
                "groups along both; use an m that does, or leave it dense"
            )
    magnitudes = weight.detach().abs().to(torch.promote_types(weight.dtype, torch.float32))
    rows, cols, *taps = weight.shape
    tiles = magnitudes.reshape(rows // m, m, cols // m, m, *taps).movedim((1, 3), (0, 1))
    members = tiles.flatten(2)  # [m, m, tiles]
    if torch.compiler.is_compiling():
        kept = _best_patterns(members, n)
    else:
        kept = torch.cat([_best_patterns(chunk, n) for chunk in torch.split(members, _CHUNK_TILES, dim=2)], dim=2)
    mask = kept.reshape(tiles.shape).movedim((0, 1), (1, 3)).reshape(weight.shape)
    # In the weight's memory format, as `nm_mask` does it.
    return torch.empty_like(weight, dtype=torch.bool).copy_(mask)


def require_enumerable(n: int, m: int) -> None:
    """Refuse an n:m whose transposable patterns cannot all be compared."""
    if not 1 <= n <= m <= LARGEST_TILE:
        raise SparsityError(
            f"{n}:{m} has no transposable mask here: all patterns of a tile are compared, and there are too many of "
            f"them above m {LARGEST_TILE}; use such as 2:4, or transposable=False"
        )


@compiler_constant
def transposable_patterns(n: int, m: int) -> tuple[tuple[int, ...], ...]:
    """Every m x m pattern with n per row and column; for each row the index of its kept members in `row_choices`.

    >>> len(transposable_patterns(2, 4)), transposable_patterns(2, 4)[0]
    (90, (0, 0, 5, 5))
    """
    choices = row_choices(n, m)
    return tuple(
        rows
        for rows in product(range(len(choices)), repeat=m)
        if all(sum(column in choices[row] for row in rows) == n for column in range(m))
    )


@compiler_constant
def row_choices(n: int, m: int) -> tuple[tuple[int, ...], ...]:
    """Every way to keep n of m members, in lexicographic order.

    >>> row_choices(2, 4)
    ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    """
    return tuple(combinations(range(m), n))


def _best_patterns(members: Tensor, n: int) -> Tensor:
    """Bool ``[m, m, tiles]``: the pattern of the greatest sum for ``members [m, m, tiles]`` (row, column, tile)."""
    m = members.shape[0]
    patterns, kept_of_choice = _tables(n, m, members.device)
    row_sums = torch.stack([_pairwise_sum(members[:, kept].unbind(1)) for kept in map(list, row_choices(n, m))], 1)
    scores = _pairwise_sum([row_sums[row, patterns[:, row]] for row in range(m)])
    best: Tensor = patterns[scores.argmax(0)]
    return kept_of_choice[best].permute(1, 2, 0)


_TABLES: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = {}


def _tables(n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """`transposable_patterns` as ``[patterns, m]``, and bool ``[choices, m]``: the members that each row choice keeps.

    They are kept on the device, since a CUDA graph that is being captured could not copy them there.
    """
    if torch.compiler.is_compiling():
        return _make_tables(n, m, device)
    key = (n, m, device)
    if key in _TABLES:
        return _TABLES[key]
    with torch.inference_mode(False):
        tables = _make_tables(n, m, device)
    if type(tables[0]) is Tensor:  # and no fake one
        _TABLES[key] = tables
    return tables


def _make_tables(n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
    kept = [[column in choice for column in range(m)] for choice in row_choices(n, m)]
    return torch.tensor(transposable_patterns(n, m), device=device), torch.tensor(kept, device=device)


def _pairwise_sum(terms: "list[Tensor] | tuple[Tensor, ...]") -> Tensor:
    """The sum of neighbours, then of these sums, and so on: the order of addition that every implementation follows."""
    while len(terms) > 1:
        terms = [sum(terms[i + 1 : i + 2], start=terms[i]) for i in range(0, len(terms), 2)]
    return terms[0]
