"""What a lane does in an update of Adam with decoupled weight decay (AdamW)."""

from acf.rtl.design.vector.operation import Operation, Programs

ADAM_PROGRAM: Programs = {
    # x: second moment, first moment, master weight; y: gradient. Constants: 1 - beta1, 1 - beta2, -2 / k^2, eps' / k,
    # 1 - rate * decay; with bias corrections c1 and c2, k = rate * sqrt(c2) / c1 and eps' = eps * sqrt(c2). Then the
    # weight changes by -k m / (sqrt(v) + eps'). A Newton step each follows the guesses at 1 / sqrt(2 * 2 v / k^2) and
    # at the reciprocal. Emits second moment, first moment, master weight and operand.
    ("adam", "update", 0): (
        Operation("y", "y", takes="xy"),
        Operation("x", "minus_one", "result"),
        Operation("result", "constant_1", "x", to="second_sum", emits=True),
        # A second moment of zero has no root to guess.
        Operation("second_sum", "constant_2", "minus_tiny", to="second_sum"),
        Operation("second_sum", to="first_sum", function="root_table"),
        Operation("first_sum", "first_sum"),
        Operation("result", "second_sum", "three_halves"),
        Operation("first_sum", "result", to="first_sum"),
        # (sqrt(v) + eps') / k, and minus its reciprocal.
        Operation("second_sum", "first_sum", "constant_3", to="second_sum"),
        Operation("second_sum", to="first_sum", function="reciprocal_seed"),
        Operation("second_sum", "first_sum", "minus_two"),
        Operation("first_sum", "result", to="first_sum"),
        Operation("x", "minus_one", "y", takes="x"),
        Operation("result", "constant_0", "x", to="second_sum", emits=True),
        Operation("x", "constant_4", takes="x"),
        Operation("second_sum", "first_sum", "result", emits=True),
        Operation("result", "one", emits=True, rounds=True),
    ),
}
"""Operations per value."""
