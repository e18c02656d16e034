"""How a share falls over training: of the blocks that move, or of the blocks still to be pruned."""

from collections.abc import Callable
from math import cos, pi

SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda progress: 0.5 * (1.0 + cos(pi * progress)),
    "linear": lambda progress: 1.0 - progress,
    "cubic": lambda progress: (1.0 - progress) ** 3,
    "constant": lambda progress: 1.0,
}
"""Factor on the initial share, by progress in [0, 1] from the first step to the last moving one."""
