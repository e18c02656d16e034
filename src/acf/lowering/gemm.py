"""One plain matrix product over zero patterns."""

from functools import cached_property

import numpy as np

from acf.lowering.packed_rows import PackedRows
from acf.trace.bits import BoolArray


class Gemm:
    """``a [m, k] @ b [k, n]`` as patterns; ``needed [m, n]`` marks the outputs that are kept, None: all.

    Both operands are packed along the reduction: ``left`` has the m rows of a, ``right`` the n columns of b. The bool
    matrices ``a`` and ``b`` are made when first asked for.

    ``phase`` says what the operands are: ``a`` activations (forward) or gradients (the others), ``b`` weights, or
    activations in a weight gradient. ``taps`` is how often the channels of a convolution repeat, channels innermost:
    along ``k``, and along ``n`` in a weight gradient. ``transposed`` says for each operand whether memory, which holds
    channels innermost, has it the other way round than the reduction runs. ``weighted`` is False where no operand and
    no output is a weight, as in attention.
    """

    def __init__(
        self,
        a: BoolArray | PackedRows,
        b: BoolArray | PackedRows,
        needed: BoolArray | None = None,
        phase: str = "forward",
        taps: int = 1,
        transposed: tuple[bool, bool] = (False, False),
        weighted: bool = True,
    ) -> None:
        """``a`` as bool ``[m, k]`` or packed rows, ``b`` as bool ``[k, n]`` or packed columns."""
        self.left = a if isinstance(a, PackedRows) else PackedRows.from_bool(a)
        self.right = b if isinstance(b, PackedRows) else PackedRows.from_bool(b.T)
        self.needed = needed
        self.phase = phase
        self.taps = taps
        self.transposed = transposed
        self.weighted = weighted

    @cached_property
    def a(self) -> BoolArray:
        """The left operand, bool ``[m, k]``."""
        return self.left.to_bool()

    @cached_property
    def b(self) -> BoolArray:
        """The right operand, bool ``[k, n]``."""
        return self.right.to_bool().T

    @property
    def m(self) -> int:
        """Rows of the output."""
        return self.left.rows

    @property
    def k(self) -> int:
        """Length of the reduction."""
        return self.left.length

    @property
    def n(self) -> int:
        """Columns of the output."""
        return self.right.rows

    @property
    def dense_macs(self) -> int:
        """Multiply-accumulates of the dense product."""
        return self.m * self.k * self.n

    @cached_property
    def nonzero_pairs(self) -> int:
        """Multiply-accumulates whose operands are both non-zero, kept output or not, counted exactly."""
        return int((self.left.column_counts * self.right.column_counts).sum())

    def effectual_macs(self) -> int:
        """Multiply-accumulates of kept outputs whose operands are both non-zero, counted exactly."""
        if self.needed is None:
            return self.nonzero_pairs
        pairs = 0
        for row, columns in enumerate(self.needed):  # the bits that a kept output's row and column share
            if columns.any():
                pairs += int(np.bitwise_count(self.left.words[row] & self.right.words[columns]).sum(dtype=np.int64))
        return pairs
