"""What the commands run on a fabric or a component, as Specs. Amaranth is not needed to read them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.options import option


@dataclass(frozen=True)
class Layer:
    """A block-sparse layer: ``tokens x inputs`` activations times ``inputs x outputs`` weights.

    ``zeros``: share of zero activations; ``sparsity``: share of absent weight blocks of a tile's size.
    """

    tokens: int = option(64, "Rows of the left operand.", min=1)
    inputs: int = option(64, "Length of the reduction.", min=1)
    outputs: int = option(64, "Columns of the right operand.", min=1)
    zeros: float = option(0.5, "Share of zeros in the left operand.", min=0.0, max=1.0)
    sparsity: float = option(0.75, "Share of absent blocks in the right.", min=0.0, max=1.0)
    seed: int = option(0, "Seed of the operands.", min=0)

    def operands(self, tile: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Random activations ``[tokens, inputs]`` and weights ``[inputs, outputs]`` of the forward pass."""
        rng = np.random.default_rng(self.seed)
        activations = (self.tokens, self.inputs)
        a = rng.standard_normal(activations) * (rng.random(activations) >= self.zeros)
        blocks = rng.random((-(-self.inputs // tile), -(-self.outputs // tile))) >= self.sparsity
        present = np.kron(blocks, np.ones((tile, tile)))[: self.inputs, : self.outputs]
        return a, rng.standard_normal((self.inputs, self.outputs)) * present


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device in simulation: AXI4 masters, its latency, and the depth of the command memories."""

    masters: int = option(1, "AXI4 masters; must divide mesh rows and columns.", min=1)
    latency: int = option(50, "Cycles of memory until the first beat.", min=0, max=65535)
    command_depth: int = option(64, "Commands that a controller holds at a time.", min=2)


@dataclass(frozen=True)
class LayerSizes:
    """Sizes of the layers, whose weight blocks have a tile's size.

    The linear layer takes ``tokens`` rows; the convolution ``images`` of ``side x side`` pixels, padded by one.
    """

    tokens: int = option(128, "Rows of the linear layer and of its gradient.", min=1)
    features: int = option(512, "Inputs and outputs of the linear layer.", min=1)
    images: int = option(1, "Images of the convolution.", min=1)
    side: int = option(14, "Height and width of an image.", min=1)
    channels: int = option(128, "Input and output channels of the convolution.", min=1)
    zeros: float = option(0.5, "Share of zeros in the activations; gradients have none.", min=0.0, max=1.0)
    sparsity: float = option(0.9, "Share of absent weight blocks.", min=0.0, max=1.0)
    seed: int = option(0, "Seed of the operands.", min=0)


@dataclass(frozen=True)
class PowerWorkload:
    """What runs while toggles are counted: a component for ``cycles``, or a fabric for a square product."""

    cycles: int = option(2000, "Cycles to run a component.", min=1)
    zeros: float = option(0.5, "mac, fabric: share of zeros in one operand.", min=0.0, max=1.0)
    sparsity: float = option(0.5, "fabric: share of absent blocks.", min=0.0, max=1.0)
    size: int = option(32, "fabric: rows, reduction and columns of the product.", min=1)
    seed: int = option(0, "Seed of the inputs.", min=0)

    @property
    def layer(self) -> Layer:
        """The product of a fabric."""
        return Layer(self.size, self.size, self.size, self.zeros, self.sparsity, self.seed)
