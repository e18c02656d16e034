"""What every cluster will see, in order: its serial tiles, the parallel tiles each waits for, and its rounds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.sim.fabric.traffic import Int64s, Timing, Traffic


class Plan(NamedTuple):
    """The items (`Traffic`) of each cluster, in order, and its rounds.

    ``item_count [clusters]``. By cluster and item: its number (``item_of``), ``packet`` and ``round``, and
    ``parallel_before``, the parallel tiles that must have arrived before it. ``parallel_count [clusters]``: all of
    them. ``[rounds, clusters]``: ``has_items``, whether a cluster has items in a round; ``takes_part``, whether it
    fills a bank in it (where columns reduce, all of a column do if one does); ``filled_before``: banks filled before.
    """

    item_count: Int64s
    item_of: Int64s
    packet: Int64s
    parallel_before: Int64s
    round: Int64s
    parallel_count: Int64s
    has_items: NDArray[np.bool_]
    takes_part: NDArray[np.bool_]
    filled_before: Int64s

    @classmethod
    def of(cls, traffic: Traffic, timing: Timing) -> "Plan":
        """The plan of all packets."""
        rounds, clusters = traffic.round_flits.shape
        copies = np.repeat(traffic.serial, np.diff(traffic.copy_first))
        item_count = np.bincount(traffic.copy_cluster[copies], minlength=clusters).astype(np.int64)
        by_item = np.zeros((4, clusters, max(1, int(item_count.max()))), dtype=np.int64)
        plan = cls(
            item_count=item_count,
            item_of=by_item[0],
            packet=by_item[1],
            parallel_before=by_item[2],
            round=by_item[3],
            parallel_count=np.zeros(clusters, dtype=np.int64),
            has_items=np.zeros((rounds, clusters), dtype=np.bool_),
            takes_part=np.zeros((rounds, clusters), dtype=np.bool_),
            filled_before=np.zeros((rounds, clusters), dtype=np.int64),
        )
        list_items(traffic, plan)
        plan_banks(traffic, timing, plan)
        return plan


@compiled
def list_items(traffic: Traffic, plan: Plan) -> None:
    """Go through all packets once, k-step by k-step, parallel tiles before serial ones."""
    filled = np.zeros(plan.item_count.size, dtype=np.int64)
    for k_step in range(traffic.round_of_k_step.size):
        number = traffic.round_of_k_step[k_step]
        for index in range(traffic.k_step_first[k_step], traffic.k_step_first[k_step + 1]):
            packet = traffic.order[index]
            item = traffic.item_first[packet]
            for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
                cluster = traffic.copy_cluster[copy]
                if not traffic.serial[packet]:
                    plan.parallel_count[cluster] += 1
                    continue
                plan.item_of[cluster, filled[cluster]] = item
                plan.packet[cluster, filled[cluster]] = packet
                plan.parallel_before[cluster, filled[cluster]] = plan.parallel_count[cluster]
                plan.round[cluster, filled[cluster]] = number
                plan.has_items[number, cluster] = True
                filled[cluster] += 1
                item += 1


def plan_banks(traffic: Traffic, timing: Timing, plan: Plan) -> None:
    """Which rounds fill a bank of which cluster, and how many did so before."""
    plan.takes_part[:] = plan.has_items
    if traffic.reduces:
        by_column = plan.has_items.reshape(-1, timing.mesh_rows, timing.mesh_columns).any(axis=1)
        plan.takes_part[:] = np.tile(by_column, timing.mesh_rows)
    plan.filled_before[1:] = np.cumsum(plan.takes_part, axis=0)[:-1]
