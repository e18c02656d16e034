"""What a lane does in a pooling, where it is a channel and a vector a pixel.

A vector of a pass is a window of pixels, or in the backward pass of a maximum the pixels of one stride.
"""

from acf.errors import RtlError
from acf.rtl.design.vector.operation import Operation, Programs
from acf.sim.vector import PASSES
from acf.trace import windows_per_value

_PLACES = ("one", "two", *(f"place_{place}" for place in range(3, 10)))
"""The places of a window, row by row from 1 on, as literals."""


def _maximum(values: int) -> tuple[Operation, ...]:
    """The greatest of the window's values, then its place; of equals the first."""
    first = Operation(to="first_sum", takes="x", function="window_first")
    others = [Operation(to="first_sum", takes="x", function="window_next")] * (values - 2)
    last = Operation(to="first_sum", takes="x", function="window_next", emits=True, rounds=True)
    return first, *others, last, Operation(function="place", emits=True, rounds=True)


def _where(place: int, addend: str = "nothing", to: str = "result", takes: str = "", emits: bool = False) -> Operation:
    """dy, the x of a window, where its greatest value is at ``place``, which is y; and what other windows give."""
    right = _PLACES[place - 1]
    return Operation("x", right, addend, to, takes, emits=emits, rounds=emits, function="where_equal")


POOL_PROGRAMS: Programs = {
    # x: the nine pixels of a window of 3 x 3, and the four of one of 2 x 2. Emits maximum and place.
    ("pool", "forward", 0): _maximum(9),
    ("pool", "forward", 1): _maximum(4),
    # Global average: sums of pixels.
    ("pool", "forward", 2): (Operation("x", "one", "first_sum", to="first_sum", takes="x"),),
    # Windows of 3 x 3 at stride 2 and their neighbours below and to the right; x: dy, y: place, of the window that is
    # both, the one below, the one to the right, the window itself. Emits dx of the pixels that it has alone or shares
    # with those: to the right of its centre, the centre, below the centre, below to the right.
    ("pool", "backward", 0): (
        _where(1, to="first_sum", takes="xy"),
        _where(3, "first_sum", to="first_sum", takes="xy"),
        _where(2, to="second_sum"),
        _where(7, "first_sum", to="first_sum", takes="xy"),
        _where(4),
        _where(6, "result", takes="xy", emits=True),
        _where(5, emits=True),
        _where(8, "second_sum", emits=True),
        _where(9, "first_sum", emits=True),
    ),
    # Windows of 2 x 2 at stride 2. x: dy, y: place. Emits dx of the four pixels, row by row.
    ("pool", "backward", 1): (
        _where(1, takes="xy", emits=True),
        *(_where(place, emits=True) for place in (2, 3, 4)),
    ),
    # Global average. x: dy, for every pixel. Constant 0: 1 / pixels.
    ("pool", "backward", 2): (Operation("x", "constant_0", takes="x", emits=True, rounds=True),),
}
"""Operations of a vector, by kind, phase and number of the pass."""

POOL_STEPS: Programs = {
    # x: a sum of pixels. Constant 0: 1 / pixels.
    ("pool", "mean", 0): (Operation("x", "constant_0", takes="x", emits=True, rounds=True),),
}
"""Work on a vector of sums; the simulator leaves it out."""

WINDOWS = ((3, 2), (2, 2), (1, 1))
"""Side and stride of the windows of every number of a pass; a global average takes pixel by pixel.

A vector of a pass stands for stride squared values of the pooling's input, which the simulator counts."""


def check_pool_programs() -> None:
    """Refuse passes that take more operations for a value of the input than the simulator charges."""
    for (kind, phase, number), program in POOL_PROGRAMS.items():
        side, stride = WINDOWS[number]
        windows = windows_per_value((side, side), (stride, stride))
        charged = sum(each.operations_per_value(windows) for each in PASSES[kind, phase])
        taken = len(program) / stride**2
        if taken > charged:
            raise RtlError(
                f"{kind} {phase} {number} has {taken} operations per value in gates, and the simulator charges "
                f"{charged:g}; change one of the two"
            )
