"""The datapath of an SCU: a scalar multiply-accumulate unit that skips zeros, one pair per cycle.

A pipeline of two stages: the product register, then the accumulator. A pair with a zero or subnormal factor leaves
both unchanged but still takes its cycle, whatever the other factor, so 0 x Inf and 0 x NaN add nothing.
"""

import numpy as np
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out
from numpy.typing import ArrayLike, NDArray

from acf.rtl.design.arithmetic.add import NumberAdder
from acf.rtl.design.arithmetic.model import add_fp32, is_effectual, multiply_bf16
from acf.rtl.design.arithmetic.multiply import NumberMultiplier
from acf.rtl.design.arithmetic.number import NUMBER, packed


class MacUnit(Component):
    """Adds ``a x b`` to a running sum in every cycle with ``valid``.

    ``first`` begins a new sum with this pair, ``last`` ends it: two cycles later ``sum_valid`` is 1 for one cycle and
    ``sum`` (float32 bits) is complete. Sums may follow each other without a gap. ``effectual`` tells in the same cycle
    whether the pair will be multiplied; performance counters count it.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "a": In(16),
                "b": In(16),
                "valid": In(1),
                "first": In(1),
                "last": In(1),
                "effectual": Out(1),
                "sum": Out(32),
                "sum_valid": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply in the first stage, accumulate in the second."""
        m = Module()
        m.submodules.multiplier = multiplier = NumberMultiplier()
        m.submodules.adder = adder = NumberAdder()
        product, running = Signal(NUMBER), Signal(NUMBER)
        has_pair = Signal()
        has_product = Signal()
        is_first = Signal()
        is_last = Signal()
        m.d.comb += [
            multiplier.a.eq(self.a),
            multiplier.b.eq(self.b),
            self.effectual.eq(self.valid & self.a[7:15].any() & self.b[7:15].any()),
            adder.x.eq(Mux(is_first, 0, running)),
            adder.y.eq(product),
            self.sum.eq(packed(m, running, "packed_sum")),
        ]
        m.d.sync += [
            has_pair.eq(self.valid),
            has_product.eq(self.effectual),
            is_first.eq(self.first),
            is_last.eq(self.last),
            self.sum_valid.eq(has_pair & is_last),
        ]
        with m.If(self.effectual):
            m.d.sync += product.eq(multiplier.product)
        with m.If(has_product):
            m.d.sync += running.eq(adder.total)
        with m.Elif(has_pair & is_first):
            m.d.sync += running.eq(0)
        return m


class MacModel:
    """`MacUnit` cycle by cycle, for ``units`` of them side by side."""

    def __init__(self, units: int = 1) -> None:
        self._sum = np.zeros(units, dtype=np.uint32)
        self._sum_valid = np.zeros(units, dtype=bool)
        self._product = np.zeros(units, dtype=np.uint32)
        self._has_pair, self._has_product, self._is_first, self._is_last = np.zeros((4, units), dtype=bool)

    def step(
        self, a: ArrayLike, b: ArrayLike, valid: ArrayLike, first: ArrayLike, last: ArrayLike
    ) -> dict[str, NDArray[np.generic]]:
        """One cycle with inputs ``[units]``; gives the outputs of that cycle, ``[units]`` each."""
        effectual = np.asarray(valid, dtype=bool) & is_effectual(a, b)
        outputs: dict[str, NDArray[np.generic]] = {
            "effectual": effectual,
            "sum": self._sum,
            "sum_valid": self._sum_valid,
        }
        start = np.where(self._is_first, 0, self._sum)
        added = np.where(self._has_product, add_fp32(start, self._product), start).astype(np.uint32)
        self._sum = np.where(self._has_pair, added, self._sum)
        self._sum_valid = self._has_pair & self._is_last
        self._product = np.where(effectual, multiply_bf16(a, b), self._product)
        self._has_pair, self._has_product = np.asarray(valid, dtype=bool), effectual
        self._is_first, self._is_last = np.asarray(first, dtype=bool), np.asarray(last, dtype=bool)
        return outputs


def dot_bf16(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint32]:
    """Float32 bits of the sum that a `MacUnit` makes of pairs ``[..., pairs]`` of bfloat16 bits, in order."""
    left, right = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    total = np.zeros(left.shape[:-1], dtype=np.uint32)
    for place in range(left.shape[-1]):
        x, y = left[..., place], right[..., place]
        total = np.where(is_effectual(x, y), add_fp32(total, multiply_bf16(x, y)), total)
    return total
