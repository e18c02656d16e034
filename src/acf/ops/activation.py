"""The activations that products take in: value and slope (derivative) of each, in plain torch."""

from collections.abc import Callable
from math import pi, sqrt

import torch
from torch import Tensor

ValueAndSlope = tuple[Tensor, Tensor]


def _gelu(x: Tensor) -> ValueAndSlope:
    cumulative = 0.5 + 0.5 * torch.erf(x / sqrt(2))
    return x * cumulative, cumulative + x * torch.exp(-0.5 * x * x) / sqrt(2 * pi)


def _gelu_tanh(x: Tensor) -> ValueAndSlope:
    """The GELU's approximation by tanh, of which ``0.5 + 0.5 tanh(u) = sigmoid(2 u)``."""
    gate = torch.sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))
    rise = 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x)
    return x * gate, gate + x * gate * (1 - gate) * rise


def _silu(x: Tensor) -> ValueAndSlope:
    gate = torch.sigmoid(x)
    return x * gate, gate * (1 + x * (1 - gate))


def _relu(x: Tensor) -> ValueAndSlope:
    return torch.relu(x), (~(x <= 0)).to(x.dtype)


ACTIVATIONS: dict[str, Callable[[Tensor], ValueAndSlope]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "relu": _relu,
}
"""All slopes lie between -0.13 and 1.13, which the GPU's bytes of packed slopes rely on."""
