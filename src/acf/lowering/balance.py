"""Load balancing: which cluster gets which output columns or output tiles, and what computing that costs."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled

Shares = NDArray[np.int64]
"""For every item the bin it goes to, int64 ``[items]``."""


@dataclass(frozen=True)
class Balancer:
    """``share(weights [items], reads [items, features], bins)`` and the cycles the fabric's controller needs for it.

    ``reads``: the tiles of the other operand that an item reads; two items of one cluster that read the same tile share
    its packet. A balancer without ``uses_reads`` may get no features. ``controller_cycles(items, features, bins)``: one
    for each compare, add or memory access.
    """

    share: Callable[[NDArray[np.int64], NDArray[np.bool_], int], Shares]
    controller_cycles: Callable[[int, int, int], int]
    uses_reads: bool = False


def round_robin(weights: NDArray[np.int64], reads: NDArray[np.bool_], bins: int) -> Shares:
    """Item ``i`` to bin ``i`` modulo ``bins``, whatever it weighs."""
    return np.arange(weights.size, dtype=np.int64) % bins


def longest_first(weights: NDArray[np.int64], reads: NDArray[np.bool_], bins: int) -> Shares:
    """Longest processing time first (LPT): the heaviest item left to the least loaded bin, ties to the lower index.

    A bin takes at most its equal share of the items, since accumulators are as scarce as time.
    """
    order = np.argsort(-weights, kind="stable").astype(np.int64)
    return _least_loaded(weights, order, bins)


def locality_aware(weights: NDArray[np.int64], reads: NDArray[np.bool_], bins: int) -> Shares:
    """Heaviest item first, to the bin that reads most of its tiles already and stays below 33/32 of the mean load.

    A bin takes at most its equal share of the items. If no bin stays within the limit, the least loaded one takes it.
    """
    order = np.argsort(-weights, kind="stable").astype(np.int64)
    return _most_shared(weights, reads, order, bins)


BALANCERS: dict[str, Balancer] = {
    "round-robin": Balancer(round_robin, lambda items, features, bins: items),
    "longest-first": Balancer(
        longest_first,
        lambda items, features, bins: items * ceil(log2(max(2, items))) + items * ceil(log2(max(2, bins))),
    ),
    "locality-aware": Balancer(
        locality_aware,
        lambda items, features, bins: items * ceil(log2(max(2, items))) + items * bins * ceil(features / 64),
        uses_reads=True,
    ),
}
"""The balancers by name. The cycles assume a merge sort, a heap of bins, and 64 features compared at once."""


def even_runs(items: int, bins: int) -> Shares:
    """Equal runs of neighbouring items: the owners in a dense layer."""
    return np.arange(items, dtype=np.int64) * bins // max(1, items)


def positions_in_bins(shares: Shares, bins: int) -> NDArray[np.int64]:
    """For every item its position among the items of its bin, in order of index."""
    positions = np.zeros(shares.size, dtype=np.int64)
    for index in range(bins):
        mine = np.flatnonzero(shares == index)
        positions[mine] = np.arange(mine.size)
    return positions


@compiled
def _least_loaded(weights: NDArray[np.int64], order: NDArray[np.int64], bins: int) -> Shares:
    shares = np.zeros(weights.size, dtype=np.int64)
    loads = np.zeros(bins, dtype=np.int64)
    counts = np.zeros(bins, dtype=np.int64)
    room = -(-weights.size // bins)
    for item in order:
        least = -1
        for other in range(bins):
            if counts[other] < room and (least < 0 or loads[other] < loads[least]):
                least = other
        shares[item] = least
        loads[least] += weights[item]
        counts[least] += 1
    return shares


@compiled
def even_order(loads: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order of the rows of ``loads [k_tiles, bins]`` that keeps the bins' running sums close to each other.

    Greedy: next comes the row that minimises the largest lead over the mean; ties to the lower index. Rows without any
    load come last.
    """
    k_tiles, bins = loads.shape
    order = np.zeros(k_tiles, dtype=np.int64)
    sums = np.zeros(bins, dtype=np.int64)
    taken = np.zeros(k_tiles, dtype=np.bool_)
    for place in range(k_tiles):
        best, best_lead = -1, 0
        for k_tile in range(k_tiles):
            if taken[k_tile]:
                continue
            total, most = 0, 0
            for index in range(bins):
                value = sums[index] + loads[k_tile, index]
                total += value
                most = max(most, value)
            lead = most * bins - total
            if total == sums.sum():
                lead = 1 << 60
            if best < 0 or lead < best_lead:
                best, best_lead = k_tile, lead
        order[place] = best
        taken[best] = True
        sums += loads[best]
    return order


@compiled
def _most_shared(weights: NDArray[np.int64], reads: NDArray[np.bool_], order: NDArray[np.int64], bins: int) -> Shares:
    shares = np.zeros(weights.size, dtype=np.int64)
    loads = np.zeros(bins, dtype=np.int64)
    held = np.zeros((bins, reads.shape[1]), dtype=np.bool_)
    counts = np.zeros(bins, dtype=np.int64)
    room = -(-weights.size // bins)
    limit = weights.sum() * 33 // (32 * bins) + 1
    for item in order:
        chosen, most = -1, -1
        least = -1
        for other in range(bins):
            if counts[other] == room:
                continue
            if least < 0 or loads[other] < loads[least]:
                least = other
            if loads[other] + weights[item] <= limit:
                shared = 0
                for feature in range(reads.shape[1]):
                    if reads[item, feature] and held[other, feature]:
                        shared += 1
                if shared > most or (shared == most and loads[other] < loads[chosen]):
                    chosen, most = other, shared
        if chosen < 0:
            chosen = least
        shares[item] = chosen
        loads[chosen] += weights[item]
        counts[chosen] += 1
        for feature in range(reads.shape[1]):
            if reads[item, feature]:
                held[chosen, feature] = True
    return shares
