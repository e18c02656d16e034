"""One operation of a lane of the vector unit, and the numbers that its functions are made of."""

from dataclasses import dataclass

import numpy as np

CONSTANTS = 5
"""Constants that a lane holds: the numbers of its channel or row, or of the optimizer."""


@dataclass(frozen=True)
class Operation:
    """One operation of a lane: ``left * right + addend`` goes to a register, or a comparison keeps ``x`` or makes it 0.

    Operands: ``x`` and ``y``, the inputs taken last; ``result``; ``first_sum`` and ``second_sum``; ``one``;
    ``mask_one``, which is 1 where the mask is and else 0, in the cycle that takes ``x``; ``constant_0`` to
    ``constant_4``; a name of `LITERALS`; and as addend ``nothing``. ``takes``: the inputs that are taken in this cycle,
    ``""``, ``"x"`` or ``"xy"``. ``keeps``: empty, or what decides a comparison, ``positive`` (x > 0; NaN stays) or
    ``mask``. ``emits``: the value leaves, with ``rounds`` as bf16. ``function``: empty, or a name of `FUNCTIONS`.
    """

    left: str = "x"
    right: str = "one"
    addend: str = "nothing"
    to: str = "result"
    takes: str = ""
    keeps: str = ""
    emits: bool = False
    rounds: bool = False
    function: str = ""


Programs = dict[tuple[str, str, int], tuple[Operation, ...]]
"""Operations per value, by kind, phase and number of the pass."""

FUNCTIONS = {
    "root_seed": "a first guess at 1 / sqrt(2 * left), the sign of left ignored",
    "root_table": "minus a first guess at 1 / sqrt(2 * left) within 0.4 %, the sign of left ignored",
    "reciprocal_seed": "a first guess at 1 / left, the sign of left ignored",
    "logarithm_seed": "`LOGARITHM_OFFSET` and a first guess at log2(left), the sign of left ignored",
    "split": "left = n + f with a whole n, which the lane keeps, and f from 0 to 1: 1 + f",
    "scaled": "left * right + addend, times 2 to the power of the n kept last",
    "window_first": "x, the first value of a window; the lane begins to count places from 1",
    "window_next": "the greater one of x and first_sum; where it is x, or NaN, the lane keeps its place in the window",
    "place": "the place that the lane keeps, as a number",
    "where_equal": "left, where y equals right, else 0; plus addend",
    "maximum": "the greater one of x and first_sum; NaN stays. A pass with it starts at -Inf",
}
"""What an operation may do in place of a sum. Seeds are NaN where ``left`` is zero, Inf or NaN."""

ROOT_SEED = 0x5EF759DF
"""``ROOT_SEED - (bits >> 1)`` are the bits of a float32 within 4 % of 1 / sqrt(2 * value), whose own are ``bits``."""

TABLE_BITS, ENTRY_BITS = 7, 10
RECIPROCAL_TABLE = tuple(
    round((1 << ENTRY_BITS) * (2 / (1 + (index + 0.5) / (1 << TABLE_BITS)) - 1)) for index in range(1 << TABLE_BITS)
)
"""Upper bits of the fraction of 2 / m, by the upper bits of that of m: within 0.5 %. The seed of a power of two is its
reciprocal itself, so that a sigmoid of large arguments is 1: its gradient multiplies what is missing from 1 by much."""

ROOT_BITS = TABLE_BITS - 1
ROOT_TABLE = tuple(
    round((1 << ENTRY_BITS) * (2 / ((1 + (index + 0.5) / (1 << ROOT_BITS)) * (1 << odd)) ** 0.5 - 1))
    for odd in (0, 1)
    for index in range(1 << ROOT_BITS)
)
"""Upper bits of the fraction of 2 / sqrt(m), and then of 2 / sqrt(2 m), by the upper bits of that of m."""

GREATEST_POWER, LEAST_POWER = 126, -128
"""What `split` keeps of a ``left`` beyond them. 2 to the greatest one times 2 is finite, to the least one zero."""

EXPONENTIAL = (0.4521359, 0.4777697, -0.008004429, 0.07802411)
"""Coefficients of 2 ** (g - 1) for g from 1 to 2, the constant first: within 7.5e-5."""

LOGARITHM_OFFSET = 383.0
"""What ``logarithm_seed`` is more than the guess: 256 of the number's own exponent, 127 of the operand's."""

_LOG2_E = float(np.log2(np.e))
_GELU = 2.0 * float(np.sqrt(2.0 / np.pi))

LITERALS: dict[str, float] = {
    "minus_one": -1.0,
    "minus_half": -0.5,
    "two": 2.0,
    **{f"place_{place}": float(place) for place in range(3, 10)},
    "minus_two": -2.0,
    "three_halves": 1.5,
    "minus_tiny": -(2.0**-100),
    "minus_log_2": -float(np.log(2.0)),
    "logarithm_offset": LOGARITHM_OFFSET,
    **{f"exponential_{power}": value for power, value in enumerate(EXPONENTIAL)},
    "gelu_linear": _GELU,
    "gelu_slope": 3 * 0.044715 * _GELU,
    "minus_gelu_linear": -_GELU * _LOG2_E,
    "minus_gelu_cubic": -0.044715 * _GELU * _LOG2_E,
}
"""Numbers that are wired into a lane."""
