"""Shapes of a network's matrix products, read from the module itself by running it on torch's meta device."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from acf.errors import TraceError
from acf.trace import TracedConv
from acf.zoo.networks import NETWORKS
from acf.zoo.networks.transformer import Attention, SelfAttention


@dataclass(frozen=True)
class ProductShape:
    """The product of a convolution (im2col) or linear layer with its weight.

    For one example the forward pass is ``[positions, fan_in] x [fan_in, out_channels]``; positions are output pixels or
    tokens. ``reads_data`` marks a layer on the network's input, whose input gradient nobody needs.
    """

    name: str
    in_channels: int
    out_channels: int
    positions: int
    conv: TracedConv | None = None
    reads_data: bool = False

    @property
    def taps(self) -> int:
        """Elements of the kernel; 1 for a linear layer."""
        return prod(self.conv.kernel_size) if self.conv else 1

    @property
    def weight_shape(self) -> tuple[int, int]:
        """Rows and columns of the weight as a matrix: ``[out_channels, fan_in]``."""
        return self.out_channels, self.taps * self.in_channels // (self.conv.groups if self.conv else 1)

    @property
    def weights(self) -> int:
        """Number of weights."""
        return prod(self.weight_shape)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one example's forward pass."""
        return self.positions * self.weights

    def input_shape(self, examples: int) -> tuple[int, ...]:
        """``[images, in_channels, h, w]`` of a convolution, ``[tokens, in_channels]`` of a linear layer."""
        return (examples, self.in_channels, *(self.conv.input_size if self.conv else ()))

    def output_shape(self, examples: int) -> tuple[int, ...]:
        """``[images, out_channels, h, w]`` of a convolution, ``[tokens, out_channels]`` of a linear layer."""
        return (examples, self.out_channels, *(self.conv.output_map if self.conv else ()))


@dataclass(frozen=True)
class AttentionShape:
    """Scores ``[queries, keys]`` and contexts ``[queries, head_channels]`` of every head, for one example."""

    name: str
    heads: int
    queries: int
    keys: int
    head_channels: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one example's forward pass."""
        return 2 * self.heads * self.queries * self.keys * self.head_channels


@dataclass(frozen=True)
class NetworkShapes:
    """The products of one example's forward pass, in the order in which they run."""

    layers: tuple[ProductShape, ...]
    attentions: tuple[AttentionShape, ...] = ()

    def layer(self, name: str) -> ProductShape:
        """The layer of that name."""
        return {layer.name: layer for layer in self.layers}[name]


def layer_shapes(module: nn.Module, *example: Tensor) -> NetworkShapes:
    """The shapes of ``module`` for the forward arguments ``example``, a batch of one, both on the meta device.

    Seen are `nn.Conv2d`, `nn.Linear` and the zoo's attention modules. The network runs in evaluation mode.
    """
    layers: list[ProductShape] = []
    attentions: list[AttentionShape] = []
    handles = [*_watch(module, _LAYERS, layers), *_watch(module, _ATTENTIONS, attentions)]
    was_training = module.training
    try:
        with torch.enable_grad():  # what needs no gradient then is the data
            module.eval()(*example)
    finally:
        module.train(was_training)
        for handle in handles:
            handle.remove()
    return NetworkShapes(tuple(layers), tuple(attentions))


def _watch(module: nn.Module, kinds: Mapping[type[nn.Module], Any], found: list[Any]) -> Iterator[RemovableHandle]:
    """Let every submodule of one of ``kinds`` append its shape to ``found`` when it runs."""
    for name, layer in module.named_modules():
        if describe := kinds.get(type(layer)):
            yield layer.register_forward_hook(
                lambda layer, inputs, output, name=name, describe=describe: found.append(describe(name, layer, inputs))
            )


@cache
def network_shapes(name: str) -> NetworkShapes:
    """The shapes of a network of `NETWORKS`.

    >>> sum(layer.macs for layer in network_shapes("resnet50").layers)
    4089184256
    """
    with torch.device("meta"):
        network = NETWORKS[name]
        return layer_shapes(network.build(), *network.example())


def _convolution(name: str, layer: nn.Conv2d, inputs: tuple[Tensor, ...]) -> ProductShape:
    maps = inputs[0]
    conv = TracedConv(
        input_size=(maps.shape[2], maps.shape[3]),
        kernel_size=_pair(layer.kernel_size),
        stride=_pair(layer.stride),
        padding=_pair(layer.padding),
        dilation=_pair(layer.dilation),
        groups=layer.groups,
    )
    positions = prod(conv.output_map)
    return ProductShape(name, layer.in_channels, layer.out_channels, positions, conv, not maps.requires_grad)


def _pair(sizes: Sequence[int] | str) -> tuple[int, int]:
    if isinstance(sizes, str):
        raise TraceError(f"padding {sizes!r} of a convolution is a name; give it in pixels")
    vertical, horizontal = sizes
    return vertical, horizontal


def _linear(name: str, layer: nn.Linear, inputs: tuple[Tensor, ...]) -> ProductShape:
    positions = inputs[0].numel() // layer.in_features
    reads_data = not inputs[0].requires_grad
    return ProductShape(name, layer.in_features, layer.out_features, positions, reads_data=reads_data)


def _attention(name: str, layer: Attention, inputs: tuple[Tensor, ...]) -> AttentionShape:
    queries, keys = inputs[:2]
    return AttentionShape(name, layer.heads, queries.shape[1], keys.shape[1], queries.shape[2] // layer.heads)


def _self_attention(name: str, layer: SelfAttention, inputs: tuple[Tensor, ...]) -> AttentionShape:
    tokens, width = inputs[0].shape[1:]
    return AttentionShape(name, layer.heads, tokens, tokens, width // layer.heads)


_LAYERS = {nn.Conv2d: _convolution, nn.Linear: _linear}
_ATTENTIONS = {Attention: _attention, SelfAttention: _self_attention}
