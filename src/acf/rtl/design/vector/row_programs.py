"""What a lane does in the passes of a transformer, where a lane has a row of values: softmax, loss, norms, GELU.

Vector number k of a pass has value k of as many rows as there are lanes, so that sums and maxima of rows are those of
lanes. All passes of a kind together have at most the operations per value that the simulator charges; between them
`STEPS_BETWEEN` work on one vector of numbers per row, which it does not charge.
"""

from acf.errors import RtlError
from acf.rtl.design.vector.operation import Operation, Programs
from acf.sim.vector import PASSES


def _exponential(part: str) -> tuple[Operation, ...]:
    """2 to the power of ``result``, with ``part`` as the register of the fraction."""
    return (
        Operation("result", to=part, function="split"),
        Operation(part, "exponential_3", "exponential_2"),
        Operation("result", part, "exponential_1"),
        Operation("result", part, "exponential_0", function="scaled"),
    )


_RECIPROCAL = (Operation("second_sum", "first_sum", "two"), Operation("first_sum", "result", to="first_sum"))
"""An iteration towards -1 / second_sum, which is negative, in first_sum."""

_SHARE = (
    Operation("x", "x"),
    Operation("result", "minus_gelu_cubic", "minus_gelu_linear"),
    Operation("result", "x"),
    *_exponential("first_sum"),
    Operation("result", "minus_one", "minus_one", to="second_sum"),
    Operation("second_sum", to="first_sum", function="reciprocal_seed"),
    *_RECIPROCAL,
)
"""The share of x that GELU keeps, 1 / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))), in first_sum."""


def _taking(takes: str, program: tuple[Operation, ...]) -> tuple[Operation, ...]:
    first, *others = program
    return (Operation(first.left, first.right, first.addend, first.to, takes=takes), *others)


_POWERS = (
    # Constants 0 and 1: scale * log2(e), and minus that times the row's maximum.
    Operation("x", "constant_0", "constant_1", takes="x"),
    *_exponential("second_sum")[:-1],
    Operation("result", "second_sum", "exponential_0", function="scaled", emits=True, rounds=True),
    Operation("result", "one", "first_sum", to="first_sum"),
)
"""exp(scale * (x - maximum)), emitted, and its sum."""

ROW_PROGRAMS: Programs = {
    ("softmax", "forward", 0): (Operation(to="first_sum", takes="x", function="maximum"),),
    ("softmax", "forward", 1): _POWERS,
    # Constant 0: 1 / sum.
    ("softmax", "forward", 2): (Operation("x", "constant_0", takes="x", emits=True, rounds=True),),
    # x: the output, y: dy. The row's sum of their products; then constants 0 and 1: scale, minus scale times that sum.
    ("softmax", "backward", 0): (Operation("x", "y", "first_sum", to="first_sum", takes="xy"),),
    ("softmax", "backward", 1): (
        Operation("y", "constant_0", "constant_1", takes="xy"),
        Operation("result", "x", emits=True, rounds=True),
    ),
    # The mask is 1 at the label: second_sum becomes its logit. Then as a softmax of scale 1.
    ("cross_entropy", "forward", 0): (
        Operation("mask_one", "x", "second_sum", to="second_sum", takes="x"),
        Operation(to="first_sum", function="maximum"),
    ),
    ("cross_entropy", "forward", 1): _POWERS,
    # x: what the forward pass emitted. Constants 0 and 1: 1 / (rows * sum), -1 / rows.
    ("cross_entropy", "backward", 0): (
        Operation("mask_one", "constant_1", takes="x"),
        Operation("x", "constant_0", "result", emits=True, rounds=True),
    ),
    ("layer_norm", "forward", 0): (
        Operation("x", "one", "first_sum", to="first_sum", takes="x"),
        Operation("x", "x", "second_sum", to="second_sum"),
    ),
    # x, then beta; y: gamma. Constants 0 and 1: 1 / deviation, -mean / deviation. Emits x_hat and the output.
    ("layer_norm", "forward", 1): (
        Operation("x", "constant_0", "constant_1", takes="xy", emits=True, rounds=True),
        Operation("result", "y", "x", takes="x", emits=True, rounds=True),
    ),
    # x: x_hat, then dy; y: gamma. Sums of dy * gamma and of dy * gamma * x_hat of each row.
    ("layer_norm", "backward", 0): (
        Operation("x", "y", takes="xy"),
        Operation("x", "y", "first_sum", to="first_sum", takes="x"),
        Operation("x", "result", "second_sum", to="second_sum"),
    ),
    # The same inputs. dx = constant 4 * dy * gamma + (constant 2 * x_hat + constant 3).
    ("layer_norm", "backward", 1): (
        Operation("x", "constant_2", "constant_3", takes="xy"),
        Operation("x", "y", to="first_sum", takes="x"),
        Operation("first_sum", "constant_4", "result", emits=True, rounds=True),
    ),
    # Here a lane is a column. x: x_hat, y: dy. Sums of dy and of dy * x_hat, the gradients of beta and gamma.
    ("layer_norm", "backward", 2): (
        Operation("y", "one", "first_sum", to="first_sum", takes="xy"),
        Operation("y", "x", "second_sum", to="second_sum"),
    ),
    ("gelu", "forward", 0): (
        *_taking("x", _SHARE),
        Operation("first_sum", "x", emits=True, rounds=True),
    ),
    # x: the saved input, y: dy. With w = x times the slope of the exponent: dy * share * (1 + w * (1 - share)).
    ("gelu", "backward", 0): (
        *_taking("xy", _SHARE),
        Operation("x", "x"),
        Operation("result", "gelu_slope", "gelu_linear"),
        Operation("result", "x"),
        Operation("first_sum", "minus_one", "one", to="second_sum"),
        Operation("result", "second_sum", "one"),
        Operation("result", "first_sum"),
        Operation("result", "y", emits=True, rounds=True),
    ),
}
"""Operations per value, by kind, phase and number of the pass."""

STEPS_BETWEEN: Programs = {
    # x: a row's maximum or sum. Constant 0: minus scale (times log2(e) before exponentials).
    ("softmax", "shift", 0): (Operation("x", "constant_0", takes="x", emits=True),),
    # x: a row's sum of exponentials. Constant 0: 1 / rows, or 1. Emits constant 0 / sum.
    ("softmax", "reciprocal", 0): (
        Operation("x", "minus_one", to="second_sum", takes="x"),
        Operation("second_sum", to="first_sum", function="reciprocal_seed"),
        *(2 * _RECIPROCAL),
        Operation("first_sum", "constant_0", emits=True),
    ),
    # x: a row's sum of exponentials, then its label's logit; y: its maximum. Emits log(sum) + maximum - logit. With a
    # guess g at log2(sum): sum * 2 ** -g = 1 + d for a small d, and log(sum) = g log(2) + d (1 - d / 2).
    ("cross_entropy", "loss", 0): (
        Operation("x", function="logarithm_seed", takes="xy"),
        Operation("result", "minus_one", "logarithm_offset"),
        *_exponential("first_sum"),
        Operation("x", "result", "minus_one", to="second_sum"),
        Operation("second_sum", "minus_half", "one"),
        Operation("result", "second_sum", "y", to="second_sum"),
        Operation("x", function="logarithm_seed"),
        Operation("result", "minus_one", "logarithm_offset"),
        Operation("result", "minus_log_2", "second_sum", to="second_sum"),
        Operation("x", "minus_one", "second_sum", takes="x", emits=True),
    ),
}
"""Work on a vector of numbers per row. Layer normalisation takes that of a batch normalisation, with a scale of 1."""


def check_row_programs() -> None:
    """Refuse passes that take more cycles than the simulator charges for their kind."""
    taken: dict[tuple[str, str], int] = {}
    for (kind, phase, _), program in ROW_PROGRAMS.items():
        taken[kind, phase] = taken.get((kind, phase), 0) + len(program)
    for (kind, phase), operations in taken.items():
        charged = sum(each.operations for each in PASSES[kind, phase])
        if operations > charged:
            raise RtlError(
                f"{kind} {phase} has {operations} operations in gates, and the simulator charges {charged}; "
                "change one of the two"
            )
