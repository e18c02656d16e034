"""Training steps of ResNet-50 and Transformer-Base at any block sparsity, one layer at a time.

Shapes are read from the zoo's modules. Blocks are drawn at random, as many as `acf.sparsify_` would keep; activations
and gradients are half zero next to a ReLU, at random positions, and dense elsewhere, unless a file gives the measured
shares of every layer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acf.bench.fabric.zeros import with_measured_zeros
from acf.errors import ArchitectureError
from acf.masks.distribution import LayerShape, kept_blocks
from acf.trace import BitTensor, Trace, TracedOp
from acf.zoo.shapes import ProductShape, network_shapes
from acf.zoo.synthetic import Zeros, as_convolution

RELU_ZEROS = 0.5


@dataclass(frozen=True)
class StepSpec:
    """A training step: which ``network``, how many ``examples`` (images, or tokens), how sparse, in which blocks.

    ``skew``: how unevenly block rows keep blocks: their weights are log-normal with this deviation, 0: equal.
    ``moved``: fraction of kept blocks that a topology update has moved elsewhere, at random.
    ``zeros``: file with the measured zeros of every layer, see `acf.bench.fabric.zeros`; None: synthetic ones.
    """

    network: str
    examples: int
    sparsity: float
    block: int = 16
    distribution: str = "uniform"
    seed: int = 0
    skew: float = 0.0
    moved: float = 0.0
    zeros: Path | None = None

    def __post_init__(self) -> None:
        if self.network not in WORKLOADS:
            raise ArchitectureError(f"network {self.network!r} is not one of {', '.join(WORKLOADS)}; use one of these")
        if self.examples < 1:
            raise ArchitectureError(f"examples {self.examples} must be at least 1; give the batch or the tokens")
        if not 0 <= self.sparsity < 1:
            raise ArchitectureError(f"sparsity {self.sparsity} must be at least 0 and below 1; give a share like 0.9")
        if self.skew < 0 or not 0 <= self.moved <= 1:
            raise ArchitectureError(
                f"skew {self.skew} must not be negative and moved {self.moved} must lie in [0, 1]; give 0 for neither"
            )

    @property
    def label(self) -> str:
        """The name of the step in reports."""
        return f"{self.network} {self.sparsity:.0%}" if self.sparsity else f"{self.network} dense"


@dataclass(frozen=True)
class StepLayer:
    """A layer of a step, the zeros of its operands, and whether its weight is block-sparse."""

    product: ProductShape
    zeros: Zeros
    sparse: bool = True

    @property
    def name(self) -> str:
        """The layer's name within its network."""
        return self.product.name


def resnet50() -> list[StepLayer]:
    """ResNet-50 on 224 x 224 pixels. Half of activations and gradients are zero, except the data and the scores.

    The stem and the classifier, a 1x1 convolution on one pixel, stay dense.
    """
    layers = [as_convolution(layer) for layer in network_shapes("resnet50").layers]
    stem, classifier = layers[0], layers[-1]
    return [
        StepLayer(
            layer,
            Zeros(0.0 if layer is stem else RELU_ZEROS, 0.0 if layer is classifier else RELU_ZEROS),
            sparse=layer not in (stem, classifier),
        )
        for layer in layers
    ]


def transformer_base() -> list[StepLayer]:
    """The linear layers of Transformer-Base, without embeddings and attention products.

    The only ReLU stands between the inner and the outer layer of a feed-forward part.
    """
    after_relu, before_relu = Zeros(RELU_ZEROS, 0.0), Zeros(0.0, RELU_ZEROS)
    around_relu = {"inner": before_relu, "outer": after_relu}
    return [
        StepLayer(layer, around_relu.get(layer.name.rpartition(".")[2], Zeros(0.0, 0.0)))
        for layer in network_shapes("transformer-base").layers
    ]


WORKLOADS: dict[str, Callable[[], Sequence[StepLayer]]] = {"resnet50": resnet50, "transformer-base": transformer_base}
"""The layers of a step, by network."""


EXAMPLES: dict[str, int] = {"resnet50": 32, "transformer-base": 4096}
"""Default images or tokens of a step."""


def step_layers(spec: StepSpec) -> Sequence[StepLayer]:
    """The layers of a step with their zeros, synthetic or measured."""
    layers = WORKLOADS[spec.network]()
    return with_measured_zeros(layers, spec.zeros, spec.network, spec.sparsity) if spec.zeros else layers


def layer_traces(spec: StepSpec, prefixes: tuple[str, ...] = ()) -> Iterator[Trace]:
    """All passes of every layer, one trace per layer: only one layer is in memory at a time.

    ``prefixes``: only layers whose names start with one of these; none: all of them.
    """
    layers = step_layers(spec)
    for index, layer in enumerate(layers):
        if not prefixes or layer.name.startswith(prefixes):
            yield _drawn_layer(layers, index, spec)


def step_traces(spec: StepSpec) -> Iterator[Trace]:
    """The step in execution order: forward passes layer by layer, then the gradients from the last layer back.

    Every layer is drawn twice, identically, so that only one is in memory at a time.
    """
    layers = step_layers(spec)
    for index in range(len(layers)):
        trace = _drawn_layer(layers, index, spec)
        yield Trace([op for op in trace.ops if op.phase == "forward"], trace.tensors, trace.label)
    for index in reversed(range(len(layers))):
        trace = _drawn_layer(layers, index, spec)
        yield Trace([op for op in trace.ops if op.phase != "forward"], trace.tensors, trace.label)


def _drawn_layer(layers: Sequence[StepLayer], index: int, spec: StepSpec) -> Trace:
    layer, rng = layers[index], np.random.default_rng((spec.seed, index))
    weight = np.ones(layer.product.weight_shape, dtype=bool)
    if layer.sparse and spec.sparsity:
        sparse = [each.name for each in layers if each.sparse]
        kept = _kept(layers, spec)[sparse.index(layer.name)]
        present = _random_blocks(rng, layer.product.weight_shape, spec, kept)
        present = _moved(np.random.default_rng((spec.seed, index, 1)), present, spec.moved)
        weight = np.kron(present, np.ones((spec.block, spec.block), dtype=bool))
    return _layer_trace(layer, weight, spec, rng)


def _kept(layers: Sequence[StepLayer], spec: StepSpec) -> list[int]:
    """Blocks that every sparse layer keeps."""
    shapes = []
    for layer in layers:
        if layer.sparse:
            rows, columns = layer.product.weight_shape
            if rows % spec.block or columns % spec.block:
                raise ArchitectureError(
                    f"block {spec.block} does not divide {layer.name}'s {rows} x {columns} weight; use a divisor of 64"
                )
            shapes.append(LayerShape(layer.name, layer.product.weight_shape, rows * columns // spec.block**2))
    return kept_blocks(shapes, spec.sparsity, spec.distribution)


def _random_blocks(rng: np.random.Generator, shape: tuple[int, int], spec: StepSpec, kept: int) -> NDArray[np.bool_]:
    """``kept`` blocks at random, bool ``[block rows, block columns]``.

    Distribution "balanced": the numbers of blocks per block row differ by at most one.
    """
    rows, columns = shape[0] // spec.block, shape[1] // spec.block
    scores = rng.random((rows, columns))
    if spec.distribution == "balanced":
        ranks = scores.argsort(axis=1).argsort(axis=1) * rows + rng.permutation(rows)[:, None]
        return np.asarray(ranks < np.sort(ranks, axis=None)[kept - 1] + 1)
    if spec.skew:  # exponential race: sampling without replacement, a row's blocks in proportion to its weight
        scores = -np.log1p(-scores) / rng.lognormal(0.0, spec.skew, (rows, 1))
    return np.asarray(scores <= np.sort(scores, axis=None)[kept - 1])


def _moved(rng: np.random.Generator, present: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """``present`` after ``share`` of its blocks were dropped and as many regrown elsewhere, as far as there is room."""
    kept, empty = np.flatnonzero(present), np.flatnonzero(~present)
    count = min(round(share * kept.size), empty.size)
    after = present.copy()
    after.flat[rng.choice(kept, count, replace=False)] = False
    after.flat[rng.choice(empty, count, replace=False)] = True
    return after


def _layer_trace(layer: StepLayer, weight: NDArray[np.bool_], spec: StepSpec, rng: np.random.Generator) -> Trace:
    def drawn(shape: tuple[int, ...], zeros: float) -> BitTensor:
        if zeros == 0.0:
            return BitTensor.from_array(np.ones(shape, dtype=bool))
        return BitTensor.from_array(rng.random(shape, dtype=np.float32) >= zeros)

    product, conv = layer.product, layer.product.conv
    names = [f"{layer.name}.{role}" for role in ("activation", "weight", "output_grad")]
    activation, weights, gradient = names
    tensors = {
        activation: drawn(product.input_shape(spec.examples), layer.zeros.activations),
        weights: BitTensor.from_array(weight),
        gradient: drawn(product.output_shape(spec.examples), layer.zeros.gradients),
    }
    data = (activation,) if product.reads_data else ()
    needed = weights if layer.sparse and spec.sparsity else None
    linear = conv is None
    ops = [
        TracedOp(layer.name, "forward", activation, weights, False, linear, conv, external=(weights, *data)),
        TracedOp(layer.name, "weight_grad", gradient, activation, linear, False, conv, needed, data),
    ]
    if not product.reads_data:
        ops.append(TracedOp(layer.name, "input_grad", gradient, weights, conv=conv, external=(weights,)))
    return Trace(ops, tensors, spec.label)
