"""Training steps of ResNet-50 and Transformer-Base at any block sparsity, one layer at a time.

Shapes are read from the zoo's modules. Blocks are drawn at random, as many as `acf.sparsify_` would keep. Activations
behind a ReLU are half zero, at random positions. Output gradients are half zero only where a ReLU follows the layer
directly: behind a batch normalisation they have no zeros. A file may give the measured shares of every layer instead.
Vector work and attention come with their layers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acf.bench.fabric.layer_work import NO_SKIP, OPTIMIZERS, AttentionStep, LayerValues, Skip, vector_ops
from acf.bench.fabric.zeros import with_measured_zeros
from acf.errors import ArchitectureError
from acf.masks.distribution import LayerShape, kept_blocks
from acf.trace import BitTensor, Trace, TracedOp, windows_per_value
from acf.zoo.networks.transformer import VOCABULARY
from acf.zoo.shapes import AttentionShape, ProductShape, network_shapes
from acf.zoo.synthetic import Zeros, as_convolution

RELU_ZEROS = 0.5


@dataclass(frozen=True)
class StepSpec:
    """A training step: which ``network``, how many ``examples`` (images, or tokens), how sparse, in which blocks.

    ``skew``: how unevenly block rows keep blocks: their weights are log-normal with this deviation, 0: equal.
    ``moved``: fraction of kept blocks that a topology update has moved elsewhere, at random.
    ``gradient_zeros``: fraction of zeros in output gradients of layers that lead to a ReLU; None: half where it follows
    directly, none behind a batch normalisation. ``sequence``: tokens that attend to each other. WMT'14 has 26 words in
    a sentence (116 M English words in 4.5 M pairs), which are about 32 subword tokens. ``projection``: with the dense
    product onto the vocabulary and its loss.
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
    gradient_zeros: float | None = None
    sequence: int = 32
    projection: bool = False
    zeros: Path | None = None

    def __post_init__(self) -> None:
        if self.network not in WORKLOADS:
            raise ArchitectureError(f"network {self.network!r} is not one of {', '.join(WORKLOADS)}; use one of these")
        if self.examples < 1:
            raise ArchitectureError(f"examples {self.examples} must be at least 1; give the batch or the tokens")
        if not 0 <= self.sparsity < 1:
            raise ArchitectureError(f"sparsity {self.sparsity} must be at least 0 and below 1; give a share like 0.9")
        if self.gradient_zeros is not None and not 0 <= self.gradient_zeros < 1:
            raise ArchitectureError(
                f"gradient_zeros {self.gradient_zeros} must be at least 0 and below 1; give a fraction like 0.5"
            )
        if self.gradient_zeros is not None and self.zeros is not None:
            raise ArchitectureError(
                f"gradient_zeros {self.gradient_zeros} and measured zeros of {self.zeros} exclude each other; give one"
            )
        if self.sequence < 1:
            raise ArchitectureError(f"sequence {self.sequence} must be at least 1; give the tokens of a sentence")
        if self.projection and self.network != "transformer-base":
            raise ArchitectureError(
                f"{self.network} has no vocabulary to project onto; leave projection off, or use transformer-base"
            )
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
    """A layer of a step, the zeros of its operands, and whether its weight is block-sparse.

    ``vector``: kinds of vector work on its output, in order (`acf.trace.VECTOR_KINDS`). ``attention`` runs after the
    layer's forward product, with its softmax. ``skip``: its part in skip connections, where the step has their tensors.
    ``pool_windows``: of a pooling among ``vector``, in how many windows a value is.
    """

    product: ProductShape
    zeros: Zeros
    sparse: bool = True
    vector: tuple[str, ...] = ()
    attention: AttentionShape | None = None
    skip: Skip = NO_SKIP
    pool_windows: float = 1.0

    @property
    def name(self) -> str:
        """The layer's name within its network."""
        return self.product.name


def resnet50() -> list[StepLayer]:
    """ResNet-50 on 224 x 224 pixels. Half of the activations are zero, except the data; no gradients are.

    The stem and the classifier, a 1x1 convolution on one pixel, stay dense. Every convolution is followed by batch
    normalisation; the residual is added behind the last one of a bottleneck.
    """
    layers = [as_convolution(layer) for layer in network_shapes("resnet50").layers]
    stem, classifier = layers[0], layers[-1]
    names = [layer.name for layer in layers]
    return [
        StepLayer(
            layer,
            Zeros(0.0 if layer is stem else RELU_ZEROS, 0.0),
            sparse=layer not in (stem, classifier),
            vector=_STEM_VECTOR if layer is stem else _resnet_vector(layer.name),
            skip=_resnet_skip(layer.name, names),
            pool_windows=windows_per_value((3, 3), (2, 2)),
        )
        for layer in layers
    ]


_STEM_VECTOR = ("batch_norm", "relu", "pool")


def _resnet_vector(name: str) -> tuple[str, ...]:
    """Vector work behind a layer of ResNet-50."""
    own = {"conv3": ("batch_norm", "add", "relu"), "downsample": ("batch_norm",), "fc": ("cross_entropy",)}
    return own.get(name.rpartition(".")[2], ("batch_norm", "relu"))


def _resnet_skip(name: str, names: Sequence[str]) -> Skip:
    """The skip connections at a layer of a ResNet of bottlenecks, each of which adds its input as it is or downsampled.

    A bottleneck's gradient goes along its skip connection to the addition of the bottleneck before it.
    """
    block, _, layer = name.rpartition(".")
    blocks = list(dict.fromkeys(each.rpartition(".")[0] for each in names if each.endswith(".conv3")))
    is_first = block == blocks[0]
    if layer == "downsample":
        return Skip(keeps="" if is_first else "input")
    if layer != "conv3":
        return NO_SKIP
    following = dict(pairwise(blocks)).get(block, "")
    ends = [end for end in (f"{following}.downsample", f"{following}.conv3") if end in names]
    if f"{block}.downsample" in names:
        return Skip(merges=ends[0] if ends else "")
    zeros_of = f"{following}.conv1" if following else ""
    return Skip(f"{block}.conv1", ends[0] if ends else "", "" if is_first else "output", zeros_of)


def transformer_base() -> list[StepLayer]:
    """The linear layers of Transformer-Base and its attention, without embeddings, dropout and output projection.

    The only ReLU stands between the inner and the outer layer of a feed-forward part. Attention runs after the layer of
    its values; behind its output and behind the feed-forward part, the residual is added and normalised.
    """
    after_relu, before_relu = Zeros(RELU_ZEROS, 0.0), Zeros(0.0, RELU_ZEROS)
    around_relu = {"inner": before_relu, "outer": after_relu}
    vector = {"inner": ("relu",), "outer": ("add", "layer_norm"), "output": ("add", "layer_norm")}
    shapes = network_shapes("transformer-base")
    attentions = {f"{attention.name}.value": attention for attention in shapes.attentions}
    return [
        StepLayer(
            layer,
            around_relu.get(layer.name.rpartition(".")[2], Zeros(0.0, 0.0)),
            vector=vector.get(layer.name.rpartition(".")[2], ()),
            attention=attentions.get(layer.name),
        )
        for layer in shapes.layers
    ]


WORKLOADS: dict[str, Callable[[], Sequence[StepLayer]]] = {"resnet50": resnet50, "transformer-base": transformer_base}
"""The layers of a step, by network."""


EXAMPLES: dict[str, int] = {"resnet50": 32, "transformer-base": 4096}
"""Default images or tokens of a step."""


def step_layers(spec: StepSpec) -> list[StepLayer]:
    """The layers of a step, with the zeros, synthetic or measured, and the projection that ``spec`` asks for."""
    layers = list(WORKLOADS[spec.network]())
    if spec.zeros is not None:
        layers = with_measured_zeros(layers, spec.zeros, spec.network, spec.sparsity)
    elif spec.gradient_zeros is not None:
        zeros, leads_to_relu = spec.gradient_zeros, {"relu", "batch_norm"}
        layers = [
            replace(layer, zeros=replace(layer.zeros, gradients=zeros)) if leads_to_relu & set(layer.vector) else layer
            for layer in layers
        ]
    if spec.projection:
        shape = ProductShape("projection", layers[-1].product.out_channels, VOCABULARY, 1)
        layers.append(StepLayer(shape, Zeros(0.0, 0.0), sparse=False, vector=("cross_entropy",)))
    return layers


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
        yield _half(_drawn_layer(layers, index, spec), forward=True)
    for index in reversed(range(len(layers))):
        yield _half(_drawn_layer(layers, index, spec), forward=False)


def _half(trace: Trace, forward: bool) -> Trace:
    """The forward passes of a layer's trace, or what follows them."""
    passes = sum(op.phase == "forward" for op in trace.ops)
    first = 0 if forward else passes
    ops = [op for op in trace.ops if (op.phase == "forward") == forward]
    vector = [replace(op, after=op.after - first) for op in trace.vector_ops if (op.phase == "forward") == forward]
    return Trace(ops, trace.tensors, trace.label, vector)


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
    optimizer = OPTIMIZERS.get(spec.network, "sgd")
    sizes = (tensors[activation].size, tensors[gradient].size, tensors[weights].nonzeros)
    values = LayerValues(*sizes, layer.pool_windows)
    vector = vector_ops(layer.name, layer.vector, values, optimizer, layer.skip)
    trace = Trace(ops, tensors, spec.label, vector)
    return trace if layer.attention is None else _with_attention(trace, layer.attention, spec)


def _with_attention(trace: Trace, shape: AttentionShape, spec: StepSpec) -> Trace:
    """The layer's trace with attention after its forward product and, backwards, before its gradients."""
    attention = AttentionStep(shape, spec.examples, spec.sequence)
    forward, gradients = trace.ops[:1], trace.ops[1:]
    ops = [*forward, *attention.forward, *attention.backward, *gradients]
    added = len(ops) - len(trace.ops)
    vector = [
        attention.softmax("forward", 2),
        attention.softmax("backward", 5),
        *(op if op.phase == "forward" else replace(op, after=op.after + added) for op in trace.vector_ops),
    ]
    return Trace(ops, trace.tensors | attention.tensors, trace.label, vector)
