"""Passes of a step by the model of the vector unit."""

import numpy as np

from acf.rtl.design.vector.model import VectorInputs, VectorOutputs, run_pass
from acf.rtl.device.step.layer import Floats

Key = tuple[str, str, int]


def passed(
    key: Key, x: Floats, y: Floats | None = None, constants: Floats | None = None, takes: int = 1
) -> VectorOutputs:
    """A pass over ``x [takes, lanes]``, of which each vector takes ``takes``; the mask is where ``y`` is positive."""
    lanes = x.shape[1]
    second = x if y is None else y
    none = np.zeros((5, lanes), dtype=np.float32)
    inputs = VectorInputs(x, second, second > 0, none if constants is None else constants)
    return run_pass(key, inputs, len(x) // takes)


def emitted(key: Key, x: Floats, y: Floats | None = None, constants: Floats | None = None) -> Floats:
    """What such a pass emits."""
    return passed(key, x, y, constants).out.view(np.float32)


def sums_of(outputs: VectorOutputs) -> tuple[Floats, Floats]:
    """Both sums as vectors."""
    return outputs.first_sums.view(np.float32)[None], outputs.second_sums.view(np.float32)[None]


def constants_of(lanes: int, *values: Floats | float) -> Floats:
    """Five constants of every lane; those that are not given are zero."""
    filled = np.zeros((5, lanes), dtype=np.float32)
    for number, value in enumerate(values):
        filled[number] = value
    return filled
