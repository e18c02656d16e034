"""What every cluster will see, in order: its serial pieces, how many blocks each waits for, and its rounds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.sim.fabric.traffic import Traffic, cluster_at, line_of_turn, places_of, takes

Int64s = NDArray[np.int64]


class Plan(NamedTuple):
    """By cluster and piece: its item, packet, round, and ``item_blocks``, the blocks that must have come before it.

    ``item_count``, ``blocks_due``: in all, by cluster. ``has_items``, ``takes_part``, ``filled_before``: ``[rounds,
    clusters]``, whether a cluster has pieces in a round, fills a bank in it (where columns add up, all of a column do
    if one does), and how many banks it filled before.
    """

    item_count: Int64s
    item_of: Int64s
    item_packet: Int64s
    item_blocks: Int64s
    item_round: Int64s
    blocks_due: Int64s
    has_items: NDArray[np.bool_]
    takes_part: NDArray[np.bool_]
    filled_before: Int64s


@compiled
def plan_items(traffic: Traffic) -> Plan:
    """Look through all packets once, step by step, blocks of a step before its pieces."""
    rounds, mesh_rows, mesh_columns = traffic.round_flits.shape
    clusters, lines = mesh_rows * mesh_columns, mesh_rows + mesh_columns
    item_count = count_items(traffic)
    most = max(1, item_count.max())
    plan = Plan(
        item_count,
        np.zeros((clusters, most), dtype=np.int64),
        np.zeros((clusters, most), dtype=np.int64),
        np.zeros((clusters, most), dtype=np.int64),
        np.zeros((clusters, most), dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros((rounds, clusters), dtype=np.bool_),
        np.zeros((rounds, clusters), dtype=np.bool_),
        np.zeros((rounds, clusters), dtype=np.int64),
    )
    filled = np.zeros(clusters, dtype=np.int64)
    next_packet = traffic.first[:-1].copy()
    for step in range(traffic.round_of_k_step.size):
        for turn in range(lines):
            line = line_of_turn(turn, mesh_rows, mesh_columns)
            while next_packet[line] < traffic.first[line + 1] and traffic.k_step[next_packet[line]] == step:
                packet = next_packet[line]
                next_packet[line] += 1
                item = traffic.item_first[packet]
                for place in range(places_of(line, mesh_rows, mesh_columns)):
                    if not takes(traffic.destinations[packet], place):
                        continue
                    cluster = cluster_at(line, place, mesh_rows, mesh_columns)
                    if not traffic.serial[packet]:
                        plan.blocks_due[cluster] += 1
                        continue
                    plan.item_of[cluster, filled[cluster]] = item
                    plan.item_packet[cluster, filled[cluster]] = packet
                    plan.item_blocks[cluster, filled[cluster]] = plan.blocks_due[cluster]
                    plan.item_round[cluster, filled[cluster]] = traffic.round_of_k_step[step]
                    plan.has_items[traffic.round_of_k_step[step], cluster] = True
                    filled[cluster] += 1
                    item += 1
    plan_banks(traffic, plan)
    return plan


@compiled
def count_items(traffic: Traffic) -> Int64s:
    """Serial pieces that every cluster takes, int64 ``[clusters]``."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    counts = np.zeros(mesh_rows * mesh_columns, dtype=np.int64)
    for line in range(mesh_rows):
        for packet in range(traffic.first[line], traffic.first[line + 1]):
            for place in range(mesh_columns):
                if traffic.serial[packet] and takes(traffic.destinations[packet], place):
                    counts[line * mesh_columns + place] += 1
    return counts


@compiled
def plan_banks(traffic: Traffic, plan: Plan) -> None:
    """Which rounds fill a bank of which cluster, and how many did so before."""
    rounds, mesh_rows, mesh_columns = traffic.round_flits.shape
    plan.takes_part[:] = plan.has_items
    if traffic.reduces:
        for cluster in range(mesh_rows * mesh_columns):
            for row in range(mesh_rows):
                plan.takes_part[:, cluster] |= plan.has_items[:, row * mesh_columns + cluster % mesh_columns]
    for number in range(1, rounds):
        plan.filled_before[number] = plan.filled_before[number - 1] + plan.takes_part[number - 1]
