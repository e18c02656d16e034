"""Recording all products of one operation on a fabric, one after the other as it runs them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.sim.accelerator import ComputeCount
from acf.sim.fabric.batch import group_size, groups, pattern
from acf.sim.fabric.record_program import Recording, Sampling, record_program
from acf.sim.fabric.runner import LoweredProduct, lead_cycles
from acf.sim.fabric.timed_memory import TimedProduct
from acf.sim.memory import DramTraffic
from acf.sim.observer import PlayedOp

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric


@dataclass(frozen=True)
class RecordedProduct:
    """A product that begins ``start`` cycles after its operation; its commands wait ``set_up_cycles`` for the index."""

    start: int
    set_up_cycles: int
    recording: Recording

    @property
    def first_cycle(self) -> int:
        """The cycle of the operation at which ``recording`` begins."""
        return self.start + self.set_up_cycles

    @property
    def is_whole(self) -> bool:
        """Whether all sampled events are there."""
        return self.recording.until >= self.recording.cycles


def sampled_scus(spec: "AdaptiveFabric", tracks: int) -> NDArray[np.int64]:
    """At most ``tracks`` SCUs at equal distances over the fabric."""
    return np.unique(np.linspace(0, spec.scus - 1, min(tracks, spec.scus)).astype(np.int64))


def has_events(spec: "AdaptiveFabric") -> bool:
    """Whether the event engine gives the figures of ``spec``, so that what it records is what was simulated."""
    return spec.interconnect != "packet" and (spec.engine == "fast" or spec.memory_model == "rate")


def record_op(spec: "AdaptiveFabric", played: PlayedOp, sampling: Sampling) -> list[RecordedProduct]:
    """Every product of ``played``; events stop at ``sampling.limit`` for all of them together, bins do not.

    The products are played again, so the cycles must be those of the simulation: anything else is refused.
    """
    recorded: list[RecordedProduct] = []
    counts: list[ComputeCount] = []
    total, room = ComputeCount(0, 0, 0), sampling.limit
    for lowered, traffic, known in _lowered_products(spec, played):
        counts.append(lowered.run(spec, traffic) if known is None else counts[known])
        if known is None:
            product = TimedProduct(lowered.program, lowered.gemm, traffic)
            recording = record_program(spec, product, counts[-1].cycles, replace(sampling, limit=room))
        else:
            recording = recorded[known].recording.without_events()
        hidden = counts[-1].cycles - counts[-1].after(total).cycles
        lead = lead_cycles(spec, lowered.index)
        _check(played, recording.cycles + _waits(lowered, lead, recording.cycles), counts[-1].cycles)
        recorded.append(RecordedProduct(total.cycles, lead - hidden, recording))
        total += counts[-1]
        room = max(0, room - max(len(recording.states), len(recording.sends)))
    return _hide(recorded, total.cycles - played.compute_cycles, played)


def _waits(lowered: LoweredProduct, lead: int, played_cycles: int) -> int:
    """Cycles before the first command, and those by which a walk outlasts the packets, as `run_product` has them."""
    return lead + max(0, lowered.index.walk_cycles - lowered.index.set_up_cycles - played_cycles)


def _check(played: PlayedOp, recorded_cycles: int, simulated_cycles: int) -> None:
    if recorded_cycles != simulated_cycles:
        raise ArchitectureError(
            f"{played.result.name} {played.result.phase}: {recorded_cycles} cycles recorded and {simulated_cycles} "
            "simulated; the recorder is wrong, report it with this trace"
        )


def _hide(recorded: list[RecordedProduct], hidden: int, played: PlayedOp) -> list[RecordedProduct]:
    """The products when the operation before has hidden so many cycles of the first one's set-up."""
    if not recorded:
        return []
    first = recorded[0]
    _check(played, min(max(0, hidden), first.set_up_cycles), hidden)
    later = [replace(each, start=each.start - hidden) for each in recorded[1:]]
    return [replace(first, set_up_cycles=first.set_up_cycles - hidden), *later]


def _lowered_products(
    spec: "AdaptiveFabric", played: PlayedOp
) -> Iterator[tuple[LoweredProduct, DramTraffic, int | None]]:
    """Each product, its DRAM traffic, and which earlier one it repeats; batched ones in groups."""
    gemms = (gemm for gemm in played.products if gemm.dense_macs)
    if not played.batched:
        for gemm in gemms:
            yield spec.lowered(gemm), played.traffic, None
        return
    seen: dict[tuple[int | bytes, ...], tuple[int, LoweredProduct]] = {}
    for place, group in enumerate(groups(gemms, group_size(spec.clusters))):
        key = pattern(group)
        repeats = seen[key][0] if key in seen else None
        if repeats is None:
            seen[key] = place, spec.lowered_group(group)
        yield seen[key][1], played.traffic.times(len(group)), repeats
