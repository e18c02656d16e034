"""Training steps with random zeros, as traces: the workloads of the papers' synthetic experiments."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from acf.errors import TraceError
from acf.trace import BitTensor, Trace, TracedOp
from acf.zoo.shapes import ProductShape, layer_shapes, network_shapes


@dataclass(frozen=True)
class Zeros:
    """Fractions of zeros of activations, output gradients and weights, 0 to 1."""

    activations: float
    gradients: float
    weights: float = 0.0


def square_convolution(
    in_channels: int, out_channels: int, size: int, kernel: int = 3, stride: int = 1
) -> ProductShape:
    """A convolution over ``size`` x ``size`` pixels, padded by half its kernel."""
    with torch.device("meta"):
        layer = nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2)
        maps = torch.ones(1, in_channels, size, size, requires_grad=True)  # as if another layer had made them
        return replace(layer_shapes(layer, maps).layers[0], name="conv")


def as_convolution(layer: ProductShape) -> ProductShape:
    """A linear layer on one token as a 1x1 convolution on one pixel; a convolution as it is."""
    if layer.conv is not None:
        return layer
    return replace(square_convolution(layer.in_channels, layer.out_channels, 1, kernel=1), name=layer.name)


def squeezenet_layer(name: str) -> ProductShape:
    """A layer of SqueezeNet 1.1 at 224 x 224, such as "features.3.expand3": fire2's 3x3 branch."""
    return network_shapes("squeezenet").layer(name)


def conv_step(layers: dict[str, tuple[ProductShape, Zeros]], batch: int, seed: int) -> Trace:
    """The three products of every convolution, by name; zeros independent and identically distributed."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, BitTensor] = {}
    ops: list[TracedOp] = []
    for name, (layer, zeros) in layers.items():
        if (conv := layer.conv) is None:
            raise TraceError(f"layer {name!r} is no convolution; pass it through as_convolution first")
        keys = [f"{name}.{role}" for role in ("activation", "weight", "output_grad")]
        shapes = (layer.input_shape(batch), layer.weight_shape, layer.output_shape(batch))
        fractions = (zeros.activations, zeros.weights, zeros.gradients)
        for key, shape, fraction in zip(keys, shapes, fractions, strict=True):
            tensors[key] = BitTensor.from_array(rng.random(shape, dtype=np.float32) >= fraction)
        activation, weight, gradient = keys
        ops += [
            TracedOp(name, "forward", activation, weight, conv=conv, external=(weight,)),
            TracedOp(name, "weight_grad", gradient, activation, conv=conv),
        ]
        if not layer.reads_data:
            ops.append(TracedOp(name, "input_grad", gradient, weight, conv=conv, external=(weight,)))
    return Trace(ops, tensors, "synthetic")


def one_layer(layer: ProductShape, zeros: float, batch: int, seed: int) -> Trace:
    """One convolution whose activations and output gradients have that fraction of zeros, its weights none."""
    return conv_step({"conv": (layer, Zeros(zeros, zeros))}, batch, seed)
