"""Inputs that a component's power is measured with."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.primitives.ports import WORD_BITS, ports_of

Stimulus = Callable[[Any, int, float, int], dict[str, ArrayLike]]
"""A function of component, cycles, share of zero operands and seed to the inputs of every cycle."""

SUM_PAIRS = 16


def random_stimulus(component: Any, cycles: int, zeros: float, seed: int) -> dict[str, ArrayLike]:
    """Every bit of every input random; ``zeros`` is ignored."""
    generator = np.random.default_rng(seed)
    inputs: dict[str, ArrayLike] = {}
    for port in ports_of(component):
        if port.is_input:
            words: NDArray[np.uint64] = generator.integers(0, 1 << 63, (cycles, port.words, 2), dtype=np.uint64)
            full = words[..., 0] ^ (words[..., 1] << np.uint64(1))
            full[:, -1] &= np.uint64((1 << port.width - (port.words - 1) * WORD_BITS) - 1)
            inputs[port.name] = full
    return inputs


def mac_stimulus(component: Any, cycles: int, zeros: float, seed: int) -> dict[str, ArrayLike]:
    """Sums of 16 pairs of normally distributed operands without a gap; a share of ``b`` is zero."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((2, cycles))
    values[1, generator.random(cycles) < zeros] = 0.0
    place = np.arange(cycles) % SUM_PAIRS
    return {
        "a": bf16_bits(values[0]),
        "b": bf16_bits(values[1]),
        "valid": np.ones(cycles, dtype=np.uint8),
        "first": place == 0,
        "last": place == SUM_PAIRS - 1,
    }


STIMULI: dict[str, Stimulus] = {"mac": mac_stimulus}
"""Stimuli of the components that random bits would not exercise as a real run does."""


def stimulus_of(unit: str) -> Stimulus:
    """The stimulus of a component by its name."""
    return STIMULI.get(unit, random_stimulus)
