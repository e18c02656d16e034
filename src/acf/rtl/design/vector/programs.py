"""What a lane does in every pass of a CNN; Amaranth is not needed to read it.

A pass has as many operations per value as the simulator charges (`acf.sim.vector.PASSES`), one a cycle.
"""

from acf.errors import RtlError
from acf.rtl.design.vector.operation import Operation, Programs
from acf.sim.vector import PASSES

_NEWTON = (
    Operation("first_sum", "first_sum"),
    Operation("result", "second_sum", "constant_4"),
    Operation("first_sum", "result", to="first_sum"),
)
"""An iteration towards 1 / sqrt(v): first_sum *= 1.5 - v / 2 * first_sum^2; second_sum is -v / 2, constant 4 is 1.5."""


def _x_hat(takes: str) -> Operation:
    """``(x - mean) / deviation``: constant 0 is 1 / deviation, constant 1 is -mean / deviation."""
    return Operation("x", "constant_0", "constant_1", takes=takes)


PROGRAMS: Programs = {
    # Sum and sum of squares of each lane's channel.
    ("batch_norm", "forward", 0): (
        Operation("x", "one", "first_sum", to="first_sum", takes="x"),
        Operation("x", "x", "second_sum", to="second_sum"),
    ),
    # Scale and shift.
    ("batch_norm", "forward", 1): (Operation("x", "constant_0", "constant_1", takes="x", emits=True, rounds=True),),
    # x: the saved input, y: dy. Sums of dy and of dy * x_hat.
    ("batch_norm", "backward", 0): (
        _x_hat("xy"),
        Operation("y", "one", "first_sum", to="first_sum"),
        Operation("y", "result", "second_sum", to="second_sum"),
    ),
    # dx = constant 4 * dy + (constant 2 * x_hat + constant 3).
    ("batch_norm", "backward", 1): (
        _x_hat("xy"),
        Operation("result", "constant_2", "constant_3"),
        Operation("y", "constant_4", "result", emits=True, rounds=True),
    ),
    ("relu", "forward", 0): (Operation(takes="x", keeps="positive", emits=True, rounds=True),),
    ("relu", "backward", 0): (Operation(takes="x", keeps="mask", emits=True, rounds=True),),
    ("add", "forward", 0): (Operation("x", "one", "y", takes="xy", emits=True, rounds=True),),
    ("add", "backward", 0): (Operation("x", "one", "y", takes="xy", emits=True, rounds=True),),
    # x: gradient, then momentum; y: master weight. Constants: weight decay, momentum, minus the learning rate.
    ("sgd", "update", 0): (
        Operation("y", "constant_0", "x", takes="xy"),
        Operation("x", "constant_1", "result", takes="x", emits=True),
        Operation("result", "constant_2", "y", emits=True),
        Operation("result", "one", "nothing", emits=True, rounds=True),
    ),
}
"""Operations per value, by kind, phase and number of the pass."""

CHANNEL_PROGRAMS: Programs = {
    # x, y: sum and sum of squares over n values. Constants: -1 / 2n, -eps / 2, gamma, beta, 1.5. Emits scale, shift,
    # 1 / deviation and -mean / deviation; first_sum becomes 1 / deviation, second_sum minus the mean.
    ("batch_norm", "statistics", 0): (
        Operation("x", "constant_0", to="first_sum", takes="xy"),
        Operation("first_sum", "first_sum"),
        Operation("first_sum", "first_sum", "result"),
        Operation("y", "constant_0", "result"),
        Operation("result", "one", "constant_1", to="second_sum"),
        Operation("second_sum", to="first_sum", function="root_seed"),
        *(3 * _NEWTON),
        Operation("first_sum", "constant_2", emits=True),
        Operation("x", "constant_0", to="second_sum"),
        Operation("second_sum", "one", "second_sum", to="second_sum"),
        Operation("second_sum", "result", "constant_3", emits=True),
        Operation("first_sum", "one", emits=True),
        Operation("second_sum", "first_sum", emits=True),
    ),
    # x, y: sums of dy and of dy * x_hat. Constants: -1 / n, scale. Emits constants 2, 3 and 4 of the backward pass.
    ("batch_norm", "gradients", 0): (
        Operation("y", "constant_0", takes="xy"),
        Operation("result", "constant_1", emits=True),
        Operation("x", "constant_0"),
        Operation("result", "constant_1", emits=True),
        Operation("one", "constant_1", emits=True),
    ),
}
"""Work on a vector of numbers per channel between the passes of a batch normalisation; the simulator leaves it out."""

ALL_PROGRAMS = PROGRAMS | CHANNEL_PROGRAMS
"""All of them, in the order of their numbers."""


def check_programs(programs: Programs) -> None:
    """Refuse programs that do not take the cycles of the simulator's passes."""
    for (kind, phase, number), program in programs.items():
        charged = PASSES[kind, phase][number].operations
        if len(program) != charged:
            raise RtlError(
                f"{kind} {phase} {number} has {len(program)} operations in gates, and the simulator charges {charged}; "
                "change one of the two"
            )
