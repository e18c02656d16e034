"""How the share of blocks that move falls over training."""

from collections.abc import Callable
from math import cos, pi

SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda progress: 0.5 * (1.0 + cos(pi * progress)),
    "constant": lambda progress: 1.0,
}
"""Factor on the initial fraction, by progress in [0, 1] from the first step to the last moving one."""
