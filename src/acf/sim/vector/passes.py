"""The passes over memory that each kind of vector work takes: operations per value, tensors read and written, waits.

An operation is what a lane does in a cycle: a multiply-add, a comparison, a conversion. What takes a lane several
cycles is charged as several operations (`EXPONENTIAL`, `DIVISION`, `ROOT`), an assumption.
"""

from dataclasses import dataclass

EXPONENTIAL = 4
"""Operations of an exponential or logarithm: range reduction and a polynomial."""

DIVISION = ROOT = 4
"""Operations of a division or square root: a table and two Newton steps."""

TENSOR_BITS: dict[str, int | None] = {
    "saved": None,
    "gradient": None,
    "other": None,
    "kept": None,
    "mask": 1,
}
"""Bits per value of the tensors that passes keep; None: as wide as an operand.

saved: what the forward pass keeps for the backward pass; gradient: the incoming gradient, between the two passes of a
batch normalisation; other: the second operand of an addition; kept: a gradient that becomes one; mask: which outputs
of a ReLU were positive.
"""


@dataclass(frozen=True)
class Pass:
    """One pass over the values: its input streams in, and its result streams on.

    ``reads`` and ``writes`` name tensors of `TENSOR_BITS` besides. With ``waits`` the pass starts only when the pass
    before it is complete, because it needs a sum over the whole tensor. ``emits`` is False where nothing but sums
    results. ``per_window``: takes ``operations`` for every window of a pooling that a value is in (`VectorOp.windows`).
    ``state_bytes`` per value are read from DRAM and written back: fp32 master weights and moments.
    """

    operations: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    waits: bool = False
    emits: bool = True
    per_window: bool = False
    state_bytes: int = 0

    def operations_per_value(self, windows: float) -> float:
        """Operations for a value that is in so many windows of a pooling."""
        return self.operations * (windows if self.per_window else 1.0)


PASSES: dict[tuple[str, str], tuple[Pass, ...]] = {
    # Sum and sum of squares while the product's results arrive; then scale and shift.
    ("batch_norm", "forward"): (Pass(2, writes=("saved",), emits=False), Pass(1, reads=("saved",), waits=True)),
    # Sum dy and dy * x_hat (x_hat: a multiply-add); then dx = a dy + b x_hat + c, x_hat computed again.
    ("batch_norm", "backward"): (
        Pass(3, reads=("saved",), writes=("gradient",), emits=False),
        Pass(3, reads=("saved", "gradient"), waits=True),
    ),
    # Sums over a row, then subtract, scale, shift: a row is complete long before the tensor.
    ("layer_norm", "forward"): (Pass(5, writes=("saved",)),),
    # x_hat, sums for gamma and beta, dy * gamma, two row sums, three multiply-adds.
    ("layer_norm", "backward"): (Pass(9, reads=("saved",)),),
    ("relu", "forward"): (Pass(1, writes=("mask",)),),
    ("relu", "backward"): (Pass(1, reads=("mask",)),),
    # tanh approximation: a cubic, an exponential and a division.
    ("gelu", "forward"): (Pass(6 + EXPONENTIAL + DIVISION, writes=("saved",)),),
    ("gelu", "backward"): (Pass(10 + EXPONENTIAL + DIVISION, reads=("saved",)),),
    # Scale, row maximum, subtract, exponential, row sum, multiply with the reciprocal.
    ("softmax", "forward"): (Pass(5 + EXPONENTIAL, writes=("saved",)),),
    # Row sum of dy * y, subtract, multiply, scale.
    ("softmax", "backward"): (Pass(4, reads=("saved",)),),
    ("add", "forward"): (Pass(1, reads=("other",)),),
    ("add", "backward"): (Pass(1, reads=("other",)),),
    ("keep", "backward"): (Pass(0, writes=("kept",), emits=False),),
    # Windows of 3 x 3 at stride 2 compare 2.25 times per input value; the gradient goes where the maximum was, and what
    # the windows of a value give is added.
    ("pool", "forward"): (Pass(3, writes=("mask",)),),
    ("pool", "backward"): (Pass(1, reads=("mask",), per_window=True),),
    ("cross_entropy", "forward"): (Pass(5 + EXPONENTIAL, writes=("saved",)),),
    ("cross_entropy", "backward"): (Pass(2, reads=("saved",)),),
    # Decay, momentum, step, rounding to the operand's type; master weight and momentum in fp32.
    ("sgd", "update"): (Pass(4, state_bytes=8),),
    # Two moments, bias corrections, root, division, decay, step, rounding; master weight and both moments in fp32.
    ("adam", "update"): (Pass(9 + ROOT + DIVISION, state_bytes=12),),
}
"""Passes by kind and phase of `acf.trace.VectorOp`."""
