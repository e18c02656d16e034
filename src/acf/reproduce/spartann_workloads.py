"""SparTANN's workloads: the backward passes of AlexNet's and GoogLeNet's convolutions at a given gradient density."""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import torch

from acf.errors import TraceError
from acf.trace import BitTensor, Trace, TracedOp
from acf.zoo.networks.alexnet import AlexNet
from acf.zoo.networks.googlenet import GoogLeNet
from acf.zoo.shapes import ProductShape, layer_shapes


@cache
def alexnet() -> tuple[ProductShape, ...]:
    """The convolutions of AlexNet in two columns, for 227 x 227 pixels (Krizhevsky et al., 2012)."""
    with torch.device("meta"):
        shapes = layer_shapes(AlexNet(columns=2), torch.ones(1, 3, 227, 227))
    return tuple(layer for layer in shapes.layers if layer.conv)


@cache
def googlenet() -> tuple[ProductShape, ...]:
    """The convolutions of GoogLeNet (Szegedy et al., 2015, Table 1) without the auxiliary classifiers.

    Within an inception module the 1x1 convolutions come first: `backward_trace` draws zeros in this order.
    """
    with torch.device("meta"):
        shapes = layer_shapes(GoogLeNet(branch_kernel=5), torch.ones(1, 3, 224, 224))
    layers = [layer for layer in shapes.layers if layer.conv]
    modules = list(dict.fromkeys(_module(layer) for layer in layers))
    return tuple(sorted(layers, key=lambda layer: (modules.index(_module(layer)), layer.taps)))


def _module(layer: ProductShape) -> str:
    """The inception module that a layer stands in, or its own name."""
    return layer.name.partition(".branches")[0]


def backward_trace(layers: tuple[ProductShape, ...], density: float | Mapping[str, float], seed: int = 0) -> Trace:
    """Input and weight gradients of one image: non-zero output gradients at random, weights and activations dense.

    ``density``: share of non-zero gradients, one for all layers or by the name of the layer.
    """
    densities = density if isinstance(density, Mapping) else dict.fromkeys((layer.name for layer in layers), density)
    for each in densities.values():
        if not 0 <= each <= 1:
            raise TraceError(f"density {each} is not within 0 to 1; give the share of non-zero gradients")
    rng = np.random.default_rng(seed)
    trace = Trace([], {}, "gradients")
    for index, layer in enumerate(layers):
        for role, tensor in _tensors(layer, densities[layer.name], rng):
            trace.tensors[f"{index}.{role}"] = tensor
        gradient, activation, weight = (f"{index}.{role}" for role in ("gradient", "activation", "weight"))
        name = f"conv{index}"
        trace.ops.append(TracedOp(name, "weight_grad", gradient, activation, conv=layer.conv))
        if not layer.reads_data:
            trace.ops.append(TracedOp(name, "input_grad", gradient, weight, conv=layer.conv, external=(weight,)))
    return trace


def _tensors(layer: ProductShape, density: float, rng: np.random.Generator) -> Iterator[tuple[str, BitTensor]]:
    gradient = rng.random(layer.output_shape(1)) < density
    yield "gradient", BitTensor.from_array(gradient)
    yield "activation", BitTensor.from_array(np.ones(layer.input_shape(1), dtype=bool))
    yield "weight", BitTensor.from_array(np.ones(layer.weight_shape, dtype=bool))
