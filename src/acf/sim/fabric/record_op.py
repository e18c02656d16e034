"""Recording all products of one operation on a fabric, one after the other as it runs them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.sim.fabric.batch import groups, pattern
from acf.sim.fabric.record_program import Recording, Sampling, record_program
from acf.sim.fabric.runner import LoweredProduct, controller_cycles
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


def record_op(spec: "AdaptiveFabric", played: PlayedOp, sampling: Sampling) -> list[RecordedProduct]:
    """Every product of ``played``; events stop at ``sampling.limit`` for all of them together, bins do not.

    The products are played again, so the cycles must be those of the simulation: anything else is refused.
    """
    recorded: list[RecordedProduct] = []
    start, room = 0, sampling.limit
    for lowered, dram_bytes, known in _lowered_products(spec, played):
        recording = _record(spec, lowered, dram_bytes, replace(sampling, limit=room)) if known is None else None
        if recording is None:
            assert known is not None
            recording = recorded[known].recording.without_events()
        waits = controller_cycles(spec, lowered.index, recording.cycles)
        recorded.append(RecordedProduct(start, min(waits, _set_up_cycles(spec, lowered)), recording))
        start += recording.cycles + waits
        room = max(0, room - max(len(recording.states), len(recording.sends)))
    if start != played.compute_cycles:
        raise ArchitectureError(
            f"{played.result.name} {played.result.phase}: {start} cycles recorded and {played.compute_cycles} "
            "simulated; the recorder is wrong, report it with this trace"
        )
    return recorded


def _lowered_products(spec: "AdaptiveFabric", played: PlayedOp) -> Iterator[tuple[LoweredProduct, int, int | None]]:
    """Each product, the bytes from DRAM meanwhile, and which earlier one it repeats; batched ones in groups."""
    gemms = (gemm for gemm in played.products if gemm.dense_macs)
    if not played.batched:
        for gemm in gemms:
            yield spec.lowered(gemm), played.dram_bytes, None
        return
    seen: dict[tuple[int | bytes, ...], tuple[int, LoweredProduct]] = {}
    for place, group in enumerate(groups(gemms)):
        key = pattern(group)
        repeats = seen[key][0] if key in seen else None
        if repeats is None:
            seen[key] = place, spec.lowered_group(group)
        yield seen[key][1], played.dram_bytes * len(group), repeats


def _record(spec: "AdaptiveFabric", lowered: LoweredProduct, dram_bytes: int, sampling: Sampling) -> Recording:
    fetched = dram_bytes + lowered.index.fetched_bytes
    return record_program(lowered.program, spec, spec.dram_port, fetched, sampling)


def _set_up_cycles(spec: "AdaptiveFabric", lowered: LoweredProduct) -> int:
    """Cycles before the first command, as `controller_cycles` has them."""
    return 2 * spec.dram_port.latency_cycles + lowered.index.set_up_cycles
