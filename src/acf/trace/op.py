"""A traced operation: one product of a training step, and the names of its operands among the trace's tensors."""

from dataclasses import dataclass
from typing import Any

from acf.errors import TraceError
from acf.ops import Conv2dGeometry

PHASES = ("forward", "input_grad", "weight_grad")
"""forward: activations x weights; input_grad: gradients x weights; weight_grad: gradients x activations."""

ROLES: dict[str, tuple[str, str]] = {
    "forward": ("activation", "weight"),
    "input_grad": ("gradient", "weight"),
    "weight_grad": ("gradient", "activation"),
}
"""What the operands ``a`` and ``b`` of each phase are."""


@dataclass(frozen=True)
class Matmul:
    """A product ``a [m, k] @ b [k, n]`` given as arrays, for `Trace.from_matmuls`; only zero patterns are kept."""

    name: str
    phase: str
    a: Any
    b: Any


@dataclass(frozen=True, kw_only=True)
class TracedConv(Conv2dGeometry):
    """The geometry of a 2-D convolution that ran on feature maps of ``input_size`` (height, width), in ``groups``."""

    input_size: tuple[int, int]
    groups: int = 1

    def __post_init__(self) -> None:
        pairs = (*self.input_size, *self.kernel_size, *self.stride, *self.dilation, self.groups)
        if any(type(size) is not int for size in (*pairs, *self.padding)) or min(pairs) < 1 or min(self.padding) < 0:
            raise TraceError(
                f"{self} is no convolution: input, kernel, stride, dilation and groups must be whole numbers of at "
                "least 1, padding of at least 0; the trace is damaged, capture it again"
            )

    @property
    def output_map(self) -> tuple[int, int]:
        """Height and width of the output's feature maps."""
        return self.output_size(*self.input_size)

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return self.kernel_size[0] * self.kernel_size[1]


@dataclass(frozen=True)
class TracedOp:
    """A matrix product over named tensors of the trace.

    Without ``conv`` the operands are matrices ``a`` and ``b``, transposed where the flags say so. With ``conv`` they
    are ``[batch, channels, h, w]`` activations and gradients and an ``[out, kh*kw*in]`` weight, and `acf.lowering`
    turns them into matrices as the phase requires. ``needed`` names the mask of kept output elements where not all
    are kept, as in the weight gradient of a block-sparse layer. ``external`` names operands that come from outside the
    training step (input data, weights); the others were computed during it.

    ``batched`` operands are ``[batch, rows, columns]``: one matrix product for every index. In a product of
    activations, as in attention, ``weighted`` is False; "weight_grad" is then the gradient of ``b``, and nothing is
    updated. ``operand_roles`` overrides the phase's `ROLES`.
    """

    name: str
    phase: str
    a: str
    b: str
    transpose_a: bool = False
    transpose_b: bool = False
    conv: TracedConv | None = None
    needed: str | None = None
    external: tuple[str, ...] = ()
    batched: bool = False
    weighted: bool = True
    operand_roles: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise TraceError(f"phase {self.phase!r} is not one of {', '.join(PHASES)}; use one of these names")
        if self.batched and (self.conv is not None or self.needed is not None):
            raise TraceError(
                f"{self.name}: a batch of products has neither a convolution nor a mask of kept outputs; "
                "the trace is damaged, capture it again"
            )

    @property
    def operands(self) -> tuple[str, str]:
        """The names of the two operands."""
        return self.a, self.b

    @property
    def roles(self) -> tuple[str, str]:
        """What the two operands are: "activation", "weight" or "gradient"."""
        return self.operand_roles or ROLES[self.phase]
