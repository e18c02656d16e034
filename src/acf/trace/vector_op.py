"""Vector work of a training step: what is no matrix product, such as normalisation, activation and optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

from acf.errors import TraceError

VECTOR_KINDS: dict[str, tuple[str, ...]] = {
    "batch_norm": ("forward", "backward"),
    "layer_norm": ("forward", "backward"),
    "relu": ("forward", "backward"),
    "gelu": ("forward", "backward"),
    "softmax": ("forward", "backward"),
    "add": ("forward", "backward"),
    "keep": ("backward",),
    "pool": ("forward", "backward"),
    "cross_entropy": ("forward", "backward"),
    "sgd": ("update",),
    "adam": ("update",),
}
"""Kinds of vector work, and the phases in which each occurs.

layer_norm: any normalisation over one row, as RMSNorm; gelu: any smooth activation; add: a residual connection;
keep: a gradient that waits for the addition where its skip connection begins, no operation; pool: counted over its
input; sgd: with momentum; adam: also AdamW.
"""


@dataclass(frozen=True)
class VectorOp:
    """Vector work on ``elements`` values; ``after`` products of the trace come before it.

    ``phase`` is "forward", "backward" or "update" (the optimizer, on the kept weights of the product before it).
    ``other``: what an addition reads as its second operand, the operand of an earlier product or, backwards, what a
    "keep" keeps (`kept_by`); of a "keep" the operand that has its zeros. Empty: not known.
    ``windows``: of a pooling, in how many windows a value of its input is (`windows_per_value`).
    """

    name: str
    kind: str
    phase: str
    elements: int
    after: int
    other: str = ""
    windows: float = 1.0

    def __post_init__(self) -> None:
        if self.phase not in VECTOR_KINDS.get(self.kind, ()):
            known = ", ".join(f"{kind} ({', '.join(phases)})" for kind, phases in VECTOR_KINDS.items())
            raise TraceError(f"{self.name}: no vector work {self.kind!r} in phase {self.phase!r}; use one of {known}")
        if self.elements < 0 or self.after < 0:
            raise TraceError(
                f"{self.name}: elements {self.elements} and after {self.after} must not be negative; "
                "the trace is damaged, capture it again"
            )
        if not 1 <= self.windows < inf:
            raise TraceError(
                f"{self.name}: a value in {self.windows} windows of a pooling, which must be at least 1; "
                "the trace is damaged, capture it again"
            )


def kept_by(name: str) -> str:
    """The tensor that a "keep" of this name keeps, as the ``other`` of the addition that reads it."""
    return f"{name}.keep.kept"


def windows_per_value(kernel: Sequence[int], stride: Sequence[int]) -> float:
    """In how many windows of a pooling a value is, away from the edges; 1 where windows do not overlap.

    >>> windows_per_value((3, 3), (2, 2))
    2.25
    """
    return prod(max(1.0, size / step) for size, step in zip(kernel, stride, strict=True))
