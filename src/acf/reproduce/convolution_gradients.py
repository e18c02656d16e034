"""The backward passes of AlexNet's and GoogLeNet's convolutions with gradients of a given density, for SparTANN."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from acf.errors import TraceError
from acf.trace import BitTensor, Trace, TracedConv, TracedOp


@dataclass(frozen=True)
class Convolution:
    """A square convolution on a ``size`` x ``size`` image; ``first`` reads the data and needs no input gradient."""

    size: int
    in_channels: int
    out_channels: int
    kernel: int
    padding: int = 0
    stride: int = 1
    groups: int = 1
    first: bool = False

    @property
    def shape(self) -> TracedConv:
        """The geometry of the convolution."""
        size, kernel, stride, padding = ((edge, edge) for edge in (self.size, self.kernel, self.stride, self.padding))
        return TracedConv(kernel, stride, padding, input_size=size, groups=self.groups)


ALEXNET = (
    Convolution(227, 3, 96, 11, stride=4, first=True),
    Convolution(27, 96, 256, 5, padding=2, groups=2),
    Convolution(13, 256, 384, 3, padding=1),
    Convolution(13, 384, 384, 3, padding=1, groups=2),
    Convolution(13, 384, 256, 3, padding=1, groups=2),
)
"""Krizhevsky et al., 2012, with the two groups of the original."""

# Image size, input channels, then outputs of: 1x1; 1x1 before 3x3, 3x3; 1x1 before 5x5, 5x5; 1x1 after pooling.
_INCEPTIONS = (
    (28, 192, 64, 96, 128, 16, 32, 32),
    (28, 256, 128, 128, 192, 32, 96, 64),
    (14, 480, 192, 96, 208, 16, 48, 64),
    (14, 512, 160, 112, 224, 24, 64, 64),
    (14, 512, 128, 128, 256, 24, 64, 64),
    (14, 512, 112, 144, 288, 32, 64, 64),
    (14, 528, 256, 160, 320, 32, 128, 128),
    (7, 832, 256, 160, 320, 32, 128, 128),
    (7, 832, 384, 192, 384, 48, 128, 128),
)


def _inception(
    size: int, inputs: int, one: int, before_3: int, three: int, before_5: int, five: int, pool: int
) -> Iterator[Convolution]:
    yield from (Convolution(size, inputs, outputs, 1) for outputs in (one, before_3, before_5, pool))
    yield Convolution(size, before_3, three, 3, padding=1)
    yield Convolution(size, before_5, five, 5, padding=2)


GOOGLENET = (
    Convolution(224, 3, 64, 7, padding=3, stride=2, first=True),
    Convolution(56, 64, 64, 1),
    Convolution(56, 64, 192, 3, padding=1),
    *(convolution for row in _INCEPTIONS for convolution in _inception(*row)),
)
"""Szegedy et al., 2015, Table 1, without the auxiliary classifiers."""


def backward_trace(layers: tuple[Convolution, ...], density: float, seed: int = 0, label: str = "gradients") -> Trace:
    """Input and weight gradients of one image: non-zero output gradients at random, weights and activations dense."""
    if not 0 <= density <= 1:
        raise TraceError(f"density {density} is not within 0 to 1; give the share of non-zero gradients")
    rng = np.random.default_rng(seed)
    trace = Trace([], {}, label)
    for index, layer in enumerate(layers):
        for role, tensor in _tensors(layer, density, rng):
            trace.tensors[f"{index}.{role}"] = tensor
        gradient, activation, weight = (f"{index}.{role}" for role in ("gradient", "activation", "weight"))
        name = f"conv{index}"
        trace.ops.append(TracedOp(name, "weight_grad", gradient, activation, conv=layer.shape))
        if not layer.first:
            trace.ops.append(TracedOp(name, "input_grad", gradient, weight, conv=layer.shape, external=(weight,)))
    return trace


def _tensors(layer: Convolution, density: float, rng: np.random.Generator) -> Iterator[tuple[str, BitTensor]]:
    shape = layer.shape
    gradient = rng.random((1, layer.out_channels, *shape.output_map)) < density
    yield "gradient", BitTensor.from_array(gradient)
    yield "activation", BitTensor.from_array(np.ones((1, layer.in_channels, *shape.input_size), dtype=bool))
    inputs = layer.kernel**2 * layer.in_channels // layer.groups
    yield "weight", BitTensor.from_array(np.ones((layer.out_channels, inputs), dtype=bool))
