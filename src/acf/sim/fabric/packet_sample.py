"""Whole networks on the packet-switched mesh: the beginning of each product exactly, the rest in proportion.

Routers step in every cycle, which takes hours for a training step. So the first packets of a product are played on
the packet-switched mesh and on the lines, operands on chip, and the cycles of the whole product on the lines, except
those that wait for memory, are scaled by the ratio of the two. A product on chip that has no more packets is exact.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.sim.fabric.engine import play_program
from acf.sim.fabric.packet_stepper import step_packets
from acf.sim.fabric.play import Played
from acf.sim.fabric.traffic import MEMORY, REASONS, SCAN, WORK, Int64s, Timing, Traffic

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric

SAMPLED_PACKETS = 8000

KEPT = [WORK, SCAN, MEMORY]
"""What an SCU does as long on either interconnect."""


def scaled_to_packets(spec: "AdaptiveFabric", traffic: Traffic, lines: Played) -> Played:
    """What ``lines``, the product played on lines, would have been on the packet-switched mesh.

    SCUs do the same work and wait as long for memory; other waits are divided as in the part that was played.
    """
    if not traffic.line.size:
        return lines
    part, timing = first_packets(traffic, SAMPLED_PACKETS), Timing.of(spec, 0)
    waits, on_lines = np.zeros((2, spec.scus, len(REASONS)), dtype=np.int64)
    packet_cycles = step_packets(part, timing, waits, spec)
    line_cycles = play_program(part, timing, on_lines)
    kept = lines.scu_cycles[:, KEPT].sum(axis=1)
    memory = float(lines.scu_cycles[:, MEMORY].mean())
    scaled = memory + (lines.cycles - memory) * packet_cycles / max(1, line_cycles)
    cycles = max(int(kept.max()), round(scaled))
    share = waits.sum(axis=0).astype(np.float64)
    share[KEPT] = 0.0
    return Played(cycles, _divided(lines.scu_cycles, cycles - kept, share))


def _divided(before: Int64s, waited: Int64s, share: NDArray[np.float64]) -> Int64s:
    """`KEPT` as ``before``; the other ``waited`` cycles of every SCU divided by reason in proportion to ``share``."""
    after = np.zeros_like(before)
    after[:, KEPT] = before[:, KEPT]
    largest = int(share.argmax()) if share.any() else REASONS.index("imbalance")
    after += (waited[:, None] * (share / max(1.0, share.sum()))).astype(np.int64)
    after[:, largest] += before[:, KEPT].sum(axis=1) + waited - after.sum(axis=1)
    return after


def first_packets(traffic: Traffic, packets: int) -> Traffic:
    """The first k-steps of a program, as few as have so many ``packets``; all of it where it has no more.

    The results of a round that is cut short are sent in proportion to the k-steps that are left of it.
    """
    k_steps = int(np.searchsorted(traffic.k_step_first, packets))
    if k_steps >= traffic.round_of_k_step.size:
        return traffic
    kept = np.sort(traffic.order[: traffic.k_step_first[k_steps]])
    copies = traffic.copy_first[1:] - traffic.copy_first[:-1]
    copy_first = np.concatenate(([0], np.cumsum(copies[kept])))
    of_copy = np.repeat(traffic.copy_first[:-1][kept] - copy_first[:-1], copies[kept]) + np.arange(copy_first[-1])
    renumbered = np.zeros(traffic.line.size, dtype=np.int64)
    renumbered[kept] = np.arange(kept.size)
    rounds = traffic.round_of_k_step[:k_steps]
    round_flits = traffic.round_flits[: int(rounds[-1]) + 1].copy()
    last = traffic.round_of_k_step == rounds[-1]
    round_flits[-1] = -(-round_flits[-1] * int((rounds == rounds[-1]).sum()) // int(last.sum()))
    return traffic._replace(
        first=np.searchsorted(kept, traffic.first),
        line=traffic.line[kept],
        serial=traffic.serial[kept],
        flits=traffic.flits[kept],
        dram_ticks=traffic.dram_ticks[kept],
        copy_first=copy_first,
        copy_cluster=traffic.copy_cluster[of_copy],
        copy_distance=traffic.copy_distance[of_copy],
        item_first=traffic.item_first[kept],
        order=renumbered[traffic.order[: traffic.k_step_first[k_steps]]],
        k_step_first=traffic.k_step_first[: k_steps + 1],
        round_of_k_step=rounds,
        round_flits=round_flits,
    )
