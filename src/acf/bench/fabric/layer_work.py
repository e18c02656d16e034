"""What comes with a layer's products in a training step: vector work, and the attention that follows a layer."""

from collections.abc import Sequence
from math import prod

import numpy as np

from acf.trace import BitTensor, TracedOp, VectorOp
from acf.zoo.shapes import AttentionShape

OPTIMIZERS: dict[str, str] = {"resnet50": "sgd", "transformer-base": "adam"}
"""The optimizer with which each network's paper trains it."""


def vector_ops(
    name: str, kinds: Sequence[str], outputs: int, kept_weights: int, optimizer: str, residual: str = ""
) -> list[VectorOp]:
    """Vector work of a layer whose products are forward, weight gradient, input gradient, in this order.

    ``kinds`` follow the forward product; their gradients, in reverse, precede the gradient products. ``residual``: the
    operand of an earlier product that is added, if the step has it.
    """
    forward = [VectorOp(name, kind, "forward", outputs, 1, residual if kind == "add" else "") for kind in kinds]
    backward = [VectorOp(name, kind, "backward", outputs, 1) for kind in reversed(kinds)]
    return [*forward, *backward, VectorOp(name, optimizer, "update", kept_weights, 2)]


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
