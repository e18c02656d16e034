"""Training steps of ResNet-50 and Transformer-Base at any block sparsity, one layer at a time.

Shapes are those of the networks; blocks are drawn at random as `acf.sparsify_` would keep them, and zeros of
activations and gradients at random with the share that the layer's surroundings give: half at a ReLU, none elsewhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.bench.simulators import resnet50_layers
from acf.errors import ArchitectureError
from acf.masks.distribution import LayerShape, kept_blocks
from acf.trace import BitTensor, Trace, TracedConv, TracedOp
from acf.zoo.synthetic import ConvLayer, Zeros

RELU_ZEROS = 0.5


@dataclass(frozen=True)
class StepSpec:
    """A training step: which ``network``, how many ``examples`` (images, or tokens), how sparse, in which blocks.

    ``skew``: how unevenly block rows keep blocks; their chances are log-normal with this deviation, 0: equal.
    ``moved``: the share of kept blocks that were dropped since and as many grown elsewhere, both at random.
    """

    network: str
    examples: int
    sparsity: float
    block: int = 16
    distribution: str = "uniform"
    seed: int = 0
    skew: float = 0.0
    moved: float = 0.0

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ArchitectureError(f"network {self.network!r} is not one of {', '.join(NETWORKS)}; use one of these")
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
        """The step as a report names it."""
        return f"{self.network} {self.sparsity:.0%}" if self.sparsity else f"{self.network} dense"


@dataclass(frozen=True)
class StepLayer:
    """A layer of a step: a convolution, or a matrix product of ``tokens`` rows, and the zeros around it.

    ``first`` marks the layer that reads the data: it has no input gradient. ``sparse`` layers have blocks.
    """

    name: str
    in_features: int
    out_features: int
    zeros: Zeros
    convolution: ConvLayer | None = None
    first: bool = False
    sparse: bool = True

    @property
    def weight_shape(self) -> tuple[int, int]:
        """Rows and columns of the weight as a matrix, channels innermost."""
        taps = self.convolution.kernel**2 if self.convolution else 1
        return self.out_features, self.in_features * taps


def resnet50() -> list[StepLayer]:
    """The convolutions of ResNet-50 at 224 x 224 and its classifier; the stem and the classifier stay dense."""
    layers = []
    for name, conv in resnet50_layers().items():
        stem, classifier = name == "conv1", name == "fc"
        zeros = Zeros(0.0 if stem else RELU_ZEROS, 0.0 if classifier else RELU_ZEROS)
        layers.append(StepLayer(name, conv.in_channels, conv.out_channels, zeros, conv, stem, not (stem or classifier)))
    return layers


def transformer_base() -> list[StepLayer]:
    """The weights of Transformer-Base: six encoder and six decoder layers of width 512; embeddings are lookups.

    Only the inner layer of the feed-forward part has a ReLU.
    """
    layers: list[StepLayer] = []
    for side, attentions in (("encoder", ("self",)), ("decoder", ("self", "cross"))):
        for index in range(6):
            for attention in attentions:
                parts = (f"{side}.{index}.{attention}.{part}" for part in ("query", "key", "value", "output"))
                layers.extend(StepLayer(part, 512, 512, Zeros(0.0, 0.0)) for part in parts)
            layers.append(StepLayer(f"{side}.{index}.inner", 512, 2048, Zeros(0.0, RELU_ZEROS)))
            layers.append(StepLayer(f"{side}.{index}.outer", 2048, 512, Zeros(RELU_ZEROS, 0.0)))
    return layers


NETWORKS: dict[str, Callable[[], list[StepLayer]]] = {"resnet50": resnet50, "transformer-base": transformer_base}
"""The networks by name."""


EXAMPLES: dict[str, int] = {"resnet50": 32, "transformer-base": 4096}
"""Images, or tokens, of a step where nothing else is asked for."""


def layer_traces(spec: StepSpec, prefixes: tuple[str, ...] = ()) -> Iterator[Trace]:
    """All passes of every layer, one trace per layer, so that one layer is in memory at a time.

    ``prefixes``: only layers whose names start with one of these; none: all of them.
    """
    layers = NETWORKS[spec.network]()
    for index, layer in enumerate(layers):
        if not prefixes or layer.name.startswith(prefixes):
            yield _drawn_layer(layers, index, spec)


def step_traces(spec: StepSpec) -> Iterator[Trace]:
    """The step in its own order: forward passes layer by layer, then the gradients from the last layer back.

    Every layer is drawn twice, the same both times, and held only while it is played.
    """
    layers = NETWORKS[spec.network]()
    for index in range(len(layers)):
        trace = _drawn_layer(layers, index, spec)
        yield Trace([op for op in trace.ops if op.phase == "forward"], trace.tensors, trace.label)
    for index in reversed(range(len(layers))):
        trace = _drawn_layer(layers, index, spec)
        yield Trace([op for op in trace.ops if op.phase != "forward"], trace.tensors, trace.label)


def _drawn_layer(layers: list[StepLayer], index: int, spec: StepSpec) -> Trace:
    layer, rng = layers[index], np.random.default_rng((spec.seed, index))
    weight = np.ones(layer.weight_shape, dtype=bool)
    if layer.sparse and spec.sparsity:
        sparse = [each.name for each in layers if each.sparse]
        kept = _kept(layers, spec)[sparse.index(layer.name)]
        present = _random_blocks(rng, layer.weight_shape, spec, kept)
        present = _moved(np.random.default_rng((spec.seed, index, 1)), present, spec.moved)
        weight = np.kron(present, np.ones((spec.block, spec.block), dtype=bool))
    return _layer_trace(layer, weight, spec, rng)


def _kept(layers: list[StepLayer], spec: StepSpec) -> list[int]:
    """Blocks that every sparse layer keeps."""
    shapes = []
    for layer in layers:
        if layer.sparse:
            rows, columns = layer.weight_shape
            if rows % spec.block or columns % spec.block:
                raise ArchitectureError(
                    f"block {spec.block} does not divide {layer.name}'s {rows} x {columns} weight; use a divisor of 64"
                )
            shapes.append(LayerShape(layer.name, layer.weight_shape, rows * columns // spec.block**2))
    return kept_blocks(shapes, spec.sparsity, spec.distribution)


def _random_blocks(rng: np.random.Generator, shape: tuple[int, int], spec: StepSpec, kept: int) -> NDArray[np.bool_]:
    """``kept`` blocks at random, bool ``[block rows, block columns]``.

    Distribution "balanced": as equal a number in every block row as can be.
    """
    rows, columns = shape[0] // spec.block, shape[1] // spec.block
    scores = rng.random((rows, columns))
    if spec.distribution == "balanced":
        ranks = scores.argsort(axis=1).argsort(axis=1) * rows + rng.permutation(rows)[:, None]
        return np.asarray(ranks < np.sort(ranks, axis=None)[kept - 1] + 1)
    if spec.skew:  # the first of a race in which a row's blocks are as quick as its chance is large
        scores = -np.log1p(-scores) / rng.lognormal(0.0, spec.skew, (rows, 1))
    return np.asarray(scores <= np.sort(scores, axis=None)[kept - 1])


def _moved(rng: np.random.Generator, present: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """``present`` after ``share`` of its blocks were dropped and as many grown where none was, if there is room."""
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

    conv: TracedConv | None = None
    input_shape: tuple[int, ...] = (spec.examples, layer.in_features)
    output_shape: tuple[int, ...] = (spec.examples, layer.out_features)
    if layer.convolution is not None:
        conv = layer.convolution.shape
        input_shape, output_shape = (*input_shape, *conv.input_size), (*output_shape, *conv.output_map)
    names = [f"{layer.name}.{role}" for role in ("activation", "weight", "output_grad")]
    activation, weights, gradient = names
    tensors = {
        activation: drawn(input_shape, layer.zeros.activations),
        weights: BitTensor.from_array(weight),
        gradient: drawn(output_shape, layer.zeros.gradients),
    }
    data = (activation,) if layer.first else ()
    needed = weights if layer.sparse and spec.sparsity else None
    linear = conv is None
    ops = [
        TracedOp(layer.name, "forward", activation, weights, False, linear, conv, external=(weights, *data)),
        TracedOp(layer.name, "weight_grad", gradient, activation, linear, False, conv, needed, data),
    ]
    if not layer.first:
        ops.append(TracedOp(layer.name, "input_grad", gradient, weights, conv=conv, external=(weights,)))
    return Trace(ops, tensors, spec.label)
