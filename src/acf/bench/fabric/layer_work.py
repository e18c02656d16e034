"""What comes with a layer's products in a training step: vector work, and the attention that follows a layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from acf.trace import BitTensor, TracedOp, VectorOp, kept_by
from acf.zoo.shapes import AttentionShape

OPTIMIZERS: dict[str, str] = {"resnet50": "sgd", "transformer-base": "adam"}
"""The optimizer with which each network's paper trains it."""


@dataclass(frozen=True)
class Skip:
    """How a layer takes part in skip connections, by names of layers; empty: it does not, or the step lacks the tensor.

    ``residual``: its input is added to the output. ``merges``: keeps the gradient that is added where the output is
    used twice. ``keeps``: how the layer's own gradient waits for such an addition, "output" (behind the activation, so
    it has the zeros of the input of ``zeros_of``) or "input".
    """

    residual: str = ""
    merges: str = ""
    keeps: str = ""
    zeros_of: str = ""

    def other(self, kind: str, phase: str) -> str:
        """The second operand of an addition."""
        if kind != "add":
            return ""
        if phase == "forward":
            return f"{self.residual}.activation" if self.residual else ""
        return kept_by(self.merges) if self.merges else ""


NO_SKIP = Skip()
"""Of a layer without a skip connection."""


@dataclass(frozen=True)
class LayerValues:
    """How many values a layer takes, gives and is updated in.

    ``pool_windows``: in how many windows of the pooling behind the layer an output is.
    """

    inputs: int
    outputs: int
    kept_weights: int
    pool_windows: float = 1.0


def vector_ops(
    name: str, kinds: Sequence[str], values: LayerValues, optimizer: str, skip: Skip = NO_SKIP
) -> list[VectorOp]:
    """Vector work of a layer whose products are forward, weight gradient, input gradient, in this order.

    ``kinds`` follow the forward product; their gradients, in reverse, precede the gradient products.
    """

    def on_outputs(kind: str, phase: str) -> VectorOp:
        windows = values.pool_windows if kind == "pool" else 1.0
        return VectorOp(name, kind, phase, values.outputs, 1, skip.other(kind, phase), windows)

    ops = [on_outputs(kind, "forward") for kind in kinds]
    for kind in reversed(kinds):
        ops.append(on_outputs(kind, "backward"))
        if kind == "add" and skip.keeps == "output":
            zeros_of = f"{skip.zeros_of}.activation" if skip.zeros_of else ""
            ops.append(VectorOp(name, "keep", "backward", values.outputs, 1, zeros_of))
    ops.append(VectorOp(name, optimizer, "update", values.kept_weights, 2))
    if skip.keeps == "input":
        ops.append(VectorOp(name, "keep", "backward", values.inputs, 3))
    return ops


class AttentionStep:
    """The products of attention and its softmax, in a step of ``tokens`` in sequences of ``sequence`` tokens.

    All heads of all sequences are one batch of matrices. No operand has zeros: masks of a decoder are not used.
    """

    def __init__(self, shape: AttentionShape, tokens: int, sequence: int) -> None:
        self.shape = shape
        self.length = min(sequence, tokens)
        self.batch = tokens // self.length * shape.heads

    @property
    def tensors(self) -> dict[str, BitTensor]:
        """All operands, ``[batch, tokens, channels]`` and ``[batch, tokens, tokens]``."""
        rows, square = (self.batch, self.length, self.shape.head_channels), (self.batch, self.length, self.length)
        shapes = dict.fromkeys(("query", "key", "value", "context_grad"), rows)
        shapes |= dict.fromkeys(("shares", "scores_grad"), square)
        return {f"{self.shape.name}.{name}": BitTensor.from_array(np.ones(size, bool)) for name, size in shapes.items()}

    @property
    def forward(self) -> list[TracedOp]:
        """Queries times keys, then shares times values."""
        return [
            self._op("scores", "forward", "query", "key", transposed=(False, True)),
            self._op("context", "forward", "shares", "value"),
        ]

    @property
    def backward(self) -> list[TracedOp]:
        """Gradients of values and shares, then, behind the softmax, of keys and queries."""
        return [
            self._op("context", "weight_grad", "context_grad", "shares", transposed=(True, False)),
            self._op("context", "input_grad", "context_grad", "value", transposed=(False, True)),
            self._op("scores", "weight_grad", "scores_grad", "query", transposed=(True, False)),
            self._op("scores", "input_grad", "scores_grad", "key"),
        ]

    def softmax(self, phase: str, after: int) -> VectorOp:
        """The softmax between the two products."""
        return VectorOp(self.shape.name, "softmax", phase, prod((self.batch, self.length, self.length)), after)

    def _op(self, name: str, phase: str, a: str, b: str, transposed: tuple[bool, bool] = (False, False)) -> TracedOp:
        roles = ("activation" if phase == "forward" else "gradient", "activation")
        keys = (f"{self.shape.name}.{a}", f"{self.shape.name}.{b}")
        return TracedOp(
            f"{self.shape.name}.{name}",
            phase,
            *keys,
            *transposed,
            batched=True,
            weighted=False,
            operand_roles=roles,
        )
