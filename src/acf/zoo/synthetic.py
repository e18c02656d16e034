"""Layers with random zeros as traces of a training step: what the papers' synthetic experiments run on."""

from dataclasses import dataclass

import numpy as np

from acf.trace import BitTensor, Trace, TracedConv, TracedOp


@dataclass(frozen=True)
class ConvLayer:
    """A square convolution, "same" padding where the kernel is odd."""

    in_channels: int
    out_channels: int
    size: int
    kernel: int = 3
    stride: int = 1

    @property
    def shape(self) -> TracedConv:
        """Its geometry."""
        sides = (self.kernel, self.kernel), (self.stride, self.stride), (self.kernel // 2, self.kernel // 2)
        return TracedConv(*sides, input_size=(self.size, self.size))


@dataclass(frozen=True)
class Zeros:
    """Shares of zeros of activations, output gradients and weights."""

    activations: float
    gradients: float
    weights: float = 0.0


# SqueezeNet 1.1 begins with conv1 and fire2: squeeze 1x1, expand 1x1, expand 3x3.
SQUEEZENET_EXPAND_3X3 = ConvLayer(16, 64, 55)
SQUEEZENET_EXPAND_1X1 = ConvLayer(16, 64, 55, kernel=1)
SQUEEZENET_LAYERS = (  # of SqueezeNet 1.1: channels and images that tiles do not divide
    SQUEEZENET_EXPAND_3X3,
    ConvLayer(64, 16, 55, kernel=1),
    ConvLayer(32, 128, 27),
    ConvLayer(48, 192, 13),
    ConvLayer(64, 256, 13),
    ConvLayer(384, 48, 13, kernel=1),
)


def conv_step(layers: dict[str, tuple[ConvLayer, Zeros]], batch: int, seed: int) -> Trace:
    """The three products of every layer, zeros independent and identically distributed."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, BitTensor] = {}
    ops: list[TracedOp] = []
    for name, (layer, zeros) in layers.items():
        conv = layer.shape
        keys = [f"{name}.{role}" for role in ("activation", "weight", "output_grad")]
        shapes = (
            (batch, layer.in_channels, layer.size, layer.size),
            (layer.out_channels, layer.kernel**2 * layer.in_channels),
            (batch, layer.out_channels, *conv.output_map),
        )
        shares = (zeros.activations, zeros.weights, zeros.gradients)
        for key, shape, share in zip(keys, shapes, shares, strict=True):
            tensors[key] = BitTensor.from_array(rng.random(shape, dtype=np.float32) >= share)
        activation, weight, gradient = keys
        ops += [
            TracedOp(name, "forward", activation, weight, conv=conv, external=(weight,)),
            TracedOp(name, "weight_grad", gradient, activation, conv=conv),
            TracedOp(name, "input_grad", gradient, weight, conv=conv, external=(weight,)),
        ]
    return Trace(ops, tensors, "synthetic")


def one_layer(layer: ConvLayer, zeros: float, batch: int, seed: int) -> Trace:
    """One layer whose activations and gradients have the same share of zeros, its weights none."""
    return conv_step({"conv": (layer, Zeros(zeros, zeros))}, batch, seed)
