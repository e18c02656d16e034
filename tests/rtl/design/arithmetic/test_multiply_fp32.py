"""The float32 multiplier: what it makes of random bits, special values and results at the least normal number."""

import numpy as np
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.arithmetic.model import QUIET_NAN, multiply_flushed
from acf.rtl.design.arithmetic.multiply_fp32 import Fp32NumberMultiplier
from acf.rtl.design.arithmetic.number import packed, unpacked

SPECIAL = [0, 1 << 31, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00800000, 0x00FFFFFF, 0x007FFFFF, 0x7F7FFFFF]


class Bits(Component):
    """The multiplier with float32 bits at its ports."""

    def __init__(self) -> None:
        super().__init__({"x": In(32), "y": In(32), "product": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiplier = multiplier = Fp32NumberMultiplier()
        m.d.comb += [
            multiplier.x.eq(unpacked(m, self.x, "number_x")),
            multiplier.y.eq(unpacked(m, self.y, "number_y")),
            self.product.eq(packed(m, multiplier.product, "bits")),
        ]
        return m


def floats(bits: np.ndarray) -> np.ndarray:
    """Numbers of float32 bits; subnormal operands are zeros."""
    values = bits.astype(np.uint32).view(np.float32)
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


def test_products_have_the_bits_of_the_model(interpret) -> None:
    rng = np.random.default_rng(0)
    # Exponents that add up to about 127, so that products lie on both sides of the least normal number.
    exponent = rng.integers(1, 126, 60)
    near = (np.stack([exponent, 127 - exponent]) << 23) | rng.integers(0, 1 << 23, (2, 60))
    pairs = np.array([(one, other) for one in SPECIAL for other in SPECIAL]).T
    x, y = np.concatenate([rng.integers(0, 1 << 32, (2, 60)), near, pairs], axis=1)
    found = interpret(Bits()).run({"x": x, "y": y})["product"]
    product = multiply_flushed(floats(x), floats(y))
    expected = np.where(np.isnan(product), QUIET_NAN, product.view(np.uint32))
    np.testing.assert_array_equal(found, expected)


def test_a_product_is_flushed_after_it_is_rounded(interpret) -> None:
    # (1 + 2^-13)(1 - 2^-13) x 2^-126 rounds up to the least normal number; (1 - 2^-24) x 2^-126 has 24 bits.
    x, y = [64 << 23 | 0x400, 0x3F7FFFFF], [63 << 23 | 0x7FF800, 0x00800000]
    assert interpret(Bits()).run({"x": x, "y": y})["product"].tolist() == [0x00800000, 0]
    assert multiply_flushed(floats(np.array(x)), floats(np.array(y))).view(np.uint32).tolist() == [0x00800000, 0]
