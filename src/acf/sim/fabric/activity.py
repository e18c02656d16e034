"""In how many cycles of a product each kind of unit has work: those in which a unit with its own clock gate is clocked.

All counts are unit-cycles, summed over the units of a kind. A flit takes a cycle in everything that it passes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Program, Stream
from acf.lowering.tiled_product import TiledProduct

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric


SHARES = ("read_share", "full_share")
"""Fields of `Activity` that are shares of the working cycles."""


@dataclass(frozen=True)
class Activity:
    """One product of ``cycles``, in which SCUs work for ``work_cycles``.

    ``read_share``: rows of parallel tiles that are read, over the working cycles. ``full_share``: share of the MAC
    slots whose serial tile has no zero. ``tile_pairs``: meetings of a serial and a parallel tile. ``row_flits`` and
    ``column_flits`` leave the controllers; ``received_flits`` counts every copy; ``flit_hops`` every router that a flit
    passes. ``walk_cycles`` are those of all index controllers.
    """

    cycles: int
    work_cycles: int = 0
    read_share: float = 1.0
    full_share: float = 0.0
    tile_pairs: int = 0
    row_flits: int = 0
    column_flits: int = 0
    received_flits: int = 0
    result_flits: int = 0
    flit_hops: int = 0
    walk_cycles: int = 0

    @property
    def counters(self) -> dict[str, float]:
        """The fields as sums, shares times ``work_cycles``: those of several products add up to those of all."""
        return asdict(self) | {name: getattr(self, name) * self.work_cycles for name in SHARES}

    @classmethod
    def of_counters(cls, counters: Mapping[str, float]) -> "Activity":
        """The activity whose `counters` these are, or the sum of several.

        >>> activity = Activity(10, work_cycles=4, read_share=0.5)
        >>> Activity.of_counters(activity.counters) == activity
        True
        """
        work_cycles = counters["work_cycles"] or 1
        return cls(**(dict(counters) | {name: counters[name] / work_cycles for name in SHARES}))  # type: ignore[arg-type]

    def busy_cycles(self, spec: "AdaptiveFabric") -> dict[str, float]:
        """Unit-cycles with work, by kind of unit (`acf.cost.control.CONTROL_UNITS` without "wide").

        A port fetches a bitmap for every row of a tile that its SCU owns; a cluster takes a cycle to begin a pair. The
        units of topology updates are not used in a product.
        """
        bitmaps = self.tile_pairs * spec.tile / spec.scus_per_port
        return {
            "scu": self.work_cycles,
            "lane": self.work_cycles * spec.lanes,
            "port": self.work_cycles * self.read_share / spec.scus_per_port + bitmaps,
            "cluster": self.received_flits + self.result_flits + self.tile_pairs,
            "router": self.flit_hops,
            "row controller": self.row_flits,
            "column controller": self.column_flits,
            "device": self.row_flits + self.column_flits + self.result_flits,
            "index controller": self.walk_cycles,
        }


def program_activity(spec: "AdaptiveFabric", program: Program) -> dict[str, int]:
    """The fields of `Activity` that a program decides."""
    results = program.round_flits.astype(np.int64)
    distance = spec.mesh_rows if program.reduces else np.arange(1, spec.mesh_columns + 1)
    streams = (program.rows, program.columns)
    return {
        "tile_pairs": int(np.bitwise_count(program.rows.parallel_tiles).sum()),
        "row_flits": int(program.rows.flits.sum(dtype=np.int64)),
        "column_flits": int(program.columns.flits.sum(dtype=np.int64)),
        "received_flits": sum(int((each.flits * np.bitwise_count(each.destinations)).sum()) for each in streams),
        "result_flits": int(results.sum()),
        "flit_hops": sum(int((each.flits * stream_hops(each)).sum()) for each in streams)
        + int((results * distance).sum()),
    }


def stream_hops(stream: Stream) -> NDArray[np.int64]:
    """Routers that every packet passes up to its farthest destination, int64 ``[packets]``."""
    hops = np.zeros(stream.packets, dtype=np.int64)
    farthest = int(stream.destinations.max(initial=0)).bit_length()
    for distance in range(farthest):
        hops[(stream.destinations >> np.uint64(distance)) & np.uint64(1) > 0] = distance + 1
    return hops


def full_tiles(product: TiledProduct) -> NDArray[np.int64]:
    """Non-zeros of the serial tiles that have no zero, 0 for the others, int64 ``[tiles, k_tiles]``.

    Gates take a tile for full only if it has all its rows.
    """
    serial = product.serial
    full = serial.tile_nonzeros == serial.tile**2
    return np.where(full, serial.tile_nonzeros, 0)
