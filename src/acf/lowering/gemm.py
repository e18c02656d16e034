"""One matrix product over zero patterns: what every accelerator model and the fabric's lowering start from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from acf.lowering.packed_rows import PackedRows
from acf.trace.bits import BoolArray


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Gemm:
    """``a [m, k] @ b [k, n]`` as zero patterns; ``needed [m, n]`` marks the outputs that are kept, None: all.

    Both operands are packed along the reduction: ``left`` has the m rows of a, ``right`` the n columns of b. The bool
    matrices ``a`` and ``b`` are unpacked on first use.

    ``phase`` says what the operands are: ``a`` activations (forward) or gradients (the others), ``b`` weights, or
    activations in a weight gradient. ``taps``: positions of a convolution's kernel, over which the channels repeat,
    channels innermost: along ``k``, and along ``n`` in a weight gradient. ``transposed``: for each operand, whether
    memory, channels innermost, holds it transposed to the reduction. ``weighted`` is False where neither an operand
    nor the output is a weight, as in attention.
    """

    left: PackedRows
    right: PackedRows
    needed: BoolArray | None
    phase: str
    taps: int
    transposed: tuple[bool, bool]
    weighted: bool

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
        left = a if isinstance(a, PackedRows) else PackedRows.from_bool(a)
        right = b if isinstance(b, PackedRows) else PackedRows.from_bool(b.T)
        vars(self).update(left=left, right=right, needed=needed, phase=phase)
        vars(self).update(taps=taps, transposed=transposed, weighted=weighted)

    def __str__(self) -> str:
        kept = "" if self.needed is None else f", {self.needed.mean():.1%} of the outputs kept"
        return (
            f"{self.phase} [{self.m} x {self.k}] @ [{self.k} x {self.n}], "
            f"density {1 - self.left.zeros_share:.1%} x {1 - self.right.zeros_share:.1%}{kept}, "
            f"{self.effectual_macs()} of {self.dense_macs} MACs effectual"
        )

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
        """Multiply-accumulates of kept outputs whose operands are both non-zero, counted exactly, and only once."""
        return self._kept_pairs

    @cached_property
    def _kept_pairs(self) -> int:
        if self.needed is None:
            return self.nonzero_pairs
        pairs = 0
        for row, columns in enumerate(self.needed):
            if columns.any():
                pairs += int(np.bitwise_count(self.left.words[row] & self.right.words[columns]).sum(dtype=np.int64))
        return pairs
