"""Schedules: how the fraction of blocks that move, or that are still to be pruned, falls over training."""

from collections.abc import Callable
from math import cos, pi

SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda progress: 0.5 * (1.0 + cos(pi * progress)),
    "linear": lambda progress: 1.0 - progress,
    "cubic": lambda progress: (1.0 - progress) ** 3,
    "constant": lambda progress: 1.0,
}
"""Factor on the initial fraction, by name; progress runs from 0 at the first step to 1 at the last t_k."""
