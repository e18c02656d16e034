"""The prefix-sum unit: turns block counts of rows into the offsets that begin each row (rowPtr)."""

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out
from numpy.typing import ArrayLike, NDArray


class PrefixSum(Component):
    """``lanes`` counts per cycle to ``lanes`` offsets, one cycle later; sums run on until ``clear``.

    Offset k is the sum of all counts before lane k's, modulo ``2 ** width``; ``total`` is the sum of all so far, the
    last entry of rowPtr. With ``clear`` the counts of this cycle are the first. ``offsets_valid`` follows ``valid``.
    """

    def __init__(self, lanes: int = 8, count_bits: int = 8, width: int = 24) -> None:
        self.lanes, self.count_bits, self.width = lanes, count_bits, width
        super().__init__(
            {
                "counts": In(lanes * count_bits),
                "valid": In(1),
                "clear": In(1),
                "offsets": Out(lanes * width),
                "offsets_valid": Out(1),
                "total": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Sklansky's network: log2(lanes) levels of adders, then one that adds the running total."""
        m = Module()
        sums = [self.counts.word_select(lane, self.count_bits) for lane in range(self.lanes)]
        span = 1
        while span < self.lanes:
            level = []
            for lane in range(self.lanes):
                total = Signal(self.width, name=f"span_{span}_{lane}")
                m.d.comb += total.eq(sums[lane] + sums[lane // span * span - 1] if lane // span % 2 else sums[lane])
                level.append(total)
            sums, span = level, 2 * span
        start = Signal(self.width)
        m.d.comb += start.eq(Mux(self.clear, 0, self.total))
        m.d.sync += self.offsets_valid.eq(self.valid)
        with m.If(self.valid):
            offsets = [start, *(_sum(m, start, each, self.width, lane) for lane, each in enumerate(sums))]
            m.d.sync += [self.offsets.eq(Cat(*offsets[:-1])), self.total.eq(offsets[-1])]
        return m


def _sum(m: Module, start: Signal, added: Signal, width: int, lane: int) -> Signal:
    total = Signal(width, name=f"offset_{lane + 1}")
    m.d.comb += total.eq(start + added)
    return total


def prefix_sums(counts: ArrayLike, width: int = 24) -> NDArray[np.int64]:
    """Offsets and final total of ``counts [count]``: int64 ``[count + 1]``, modulo ``2 ** width``.

    >>> prefix_sums([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate(([0], np.cumsum(np.asarray(counts, dtype=np.int64)))) & ((1 << width) - 1)
