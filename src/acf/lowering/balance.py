"""Sharing output columns, or output pieces, among clusters: who gets what, and what working that out costs."""

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
    """``share(weights [items], touches [items, features], bins)`` and the cycles a small controller needs for it.

    ``touches`` says which pieces of the other operand an item reads; two items of one cluster that read the
    same piece share its packet. Without ``reads_touches`` it may have no features. ``controller_cycles(items, features,
    bins)``: one compare, add or memory access each.
    """

    share: Callable[[NDArray[np.int64], NDArray[np.bool_], int], Shares]
    controller_cycles: Callable[[int, int, int], int]
    reads_touches: bool = False


def round_robin(weights: NDArray[np.int64], touches: NDArray[np.bool_], bins: int) -> Shares:
    """Item ``i`` to bin ``i`` modulo ``bins``, whatever it weighs."""
    return np.arange(weights.size, dtype=np.int64) % bins


def longest_first(weights: NDArray[np.int64], touches: NDArray[np.bool_], bins: int) -> Shares:
    """The heaviest item that is left to the bin with the least weight that is not full; ties to the lower index.

    A bin is full with its equal share of the items: accumulators are as scarce as time.
    """
    order = np.argsort(-weights, kind="stable").astype(np.int64)
    return _least_loaded(weights, order, bins)


def locality_aware(weights: NDArray[np.int64], touches: NDArray[np.bool_], bins: int) -> Shares:
    """Heaviest first, to the bin that already reads most of what the item reads, if that bin is not too full.

    Too full is more than 1/32 above the mean weight once the item is in, or above an equal share of the items; where
    all are, the least loaded bin with room takes it.
    """
    order = np.argsort(-weights, kind="stable").astype(np.int64)
    return _most_shared(weights, touches, order, bins)


BALANCERS: dict[str, Balancer] = {
    "round-robin": Balancer(round_robin, lambda items, features, bins: items),
    "longest-first": Balancer(
        longest_first,
        lambda items, features, bins: items * ceil(log2(max(2, items))) + items * ceil(log2(max(2, bins))),
    ),
    "locality-aware": Balancer(
        locality_aware,
        lambda items, features, bins: items * ceil(log2(max(2, items))) + items * bins * ceil(features / 64),
        reads_touches=True,
    ),
}
"""The balancers by name. The cycles assume a merge sort, a heap of bins, and 64 features compared at once."""


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
    """An order of the rows of ``loads [steps, bins]`` in which the bins' sums stay close to each other all along.

    Next comes the row that leaves the largest lead over the mean smallest; ties to the lower index. Steps without
    any load come last.
    """
    steps, bins = loads.shape
    order = np.zeros(steps, dtype=np.int64)
    sums = np.zeros(bins, dtype=np.int64)
    taken = np.zeros(steps, dtype=np.bool_)
    for place in range(steps):
        best, best_lead = -1, 0
        for step in range(steps):
            if taken[step]:
                continue
            total, most = 0, 0
            for index in range(bins):
                value = sums[index] + loads[step, index]
                total += value
                most = max(most, value)
            lead = most * bins - total
            if total == sums.sum():
                lead = 1 << 60
            if best < 0 or lead < best_lead:
                best, best_lead = step, lead
        order[place] = best
        taken[best] = True
        sums += loads[best]
    return order


@compiled
def _most_shared(weights: NDArray[np.int64], touches: NDArray[np.bool_], order: NDArray[np.int64], bins: int) -> Shares:
    shares = np.zeros(weights.size, dtype=np.int64)
    loads = np.zeros(bins, dtype=np.int64)
    held = np.zeros((bins, touches.shape[1]), dtype=np.bool_)
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
                for feature in range(touches.shape[1]):
                    if touches[item, feature] and held[other, feature]:
                        shared += 1
                if shared > most or (shared == most and loads[other] < loads[chosen]):
                    chosen, most = other, shared
        if chosen < 0:
            chosen = least
        shares[item] = chosen
        loads[chosen] += weights[item]
        counts[chosen] += 1
        for feature in range(touches.shape[1]):
            if touches[item, feature]:
                held[chosen, feature] = True
    return shares
