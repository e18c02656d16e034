"""Speed of the CPU's block-sparse kernels against torch's dense product, as ratios from one interleaved run.

`acf bench kernels --device cpu` prints the tables; `run_cpu_bench` gives the same figures as data.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acf.bench.kernels.roofline import Ceilings, RooflinePoint
from acf.ops import Conv2dGeometry
from acf.ops.conv import block_conv2d_forward, block_conv2d_input_grad, block_conv2d_weight_grad
from acf.ops.cpu.call import instruction_set, with_instruction_set
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from acf.sparse import BlockLayout, BlockTopology, matrix_to_conv_weight


@dataclass(frozen=True)
class LinearShape:
    """A linear layer and the tokens it is given."""

    tokens: int
    out_features: int
    in_features: int

    @property
    def pixels(self) -> int:
        """Rows of the product: tokens."""
        return self.tokens

    @property
    def input_values(self) -> int:
        """Elements of the input."""
        return self.tokens * self.in_features

    @property
    def weight_columns(self) -> int:
        """Length of the reduction."""
        return self.in_features

    @property
    def outputs(self) -> int:
        """Output features."""
        return self.out_features

    def __str__(self) -> str:
        return f"linear {self.tokens}x{self.out_features}x{self.in_features}"


@dataclass(frozen=True)
class ConvShape:
    """A convolution with "same" padding over square images of ``size`` pixels a side."""

    batch: int
    in_channels: int
    out_channels: int
    size: int
    kernel: int = 3
    stride: int = 1
    channels_last: bool = True

    @property
    def pixels(self) -> int:
        """Rows of the product: output pixels of all images."""
        return self.batch * (-(-self.size // self.stride)) ** 2

    @property
    def input_values(self) -> int:
        """Elements of the input."""
        return self.batch * self.in_channels * self.size**2

    @property
    def weight_columns(self) -> int:
        """Length of the reduction."""
        return self.kernel**2 * self.in_channels

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.out_channels

    def __str__(self) -> str:
        layout = "nhwc" if self.channels_last else "nchw"
        stride = f"/{self.stride}" if self.stride > 1 else ""
        channels = f"{self.in_channels}->{self.out_channels}"
        return f"conv {self.batch}x{channels} {self.size}^2 k{self.kernel}{stride} {layout}"


@dataclass(frozen=True)
class PassTimes:
    """Best seconds of one pass, dense and sparse."""

    dense_seconds: float
    sparse_seconds: float

    @property
    def ratio(self) -> float:
        """How many times as fast the sparse pass is."""
        return self.dense_seconds / self.sparse_seconds


@dataclass(frozen=True)
class KernelRatios:
    """The three passes of one layer at one block size and sparsity."""

    shape: LinearShape | ConvShape
    block: int
    sparsity: float
    dtype: str
    instructions: str  # the native kernels' instruction set
    forward: PassTimes
    input_gradient: PassTimes
    weight_gradient: PassTimes

    @property
    def present_weights(self) -> int:
        """Weights in present blocks."""
        blocks = self.shape.outputs * self.shape.weight_columns // self.block**2
        return max(1, round((1.0 - self.sparsity) * blocks)) * self.block**2

    @property
    def operations(self) -> int:
        """Floating-point operations of one pass over the present blocks."""
        return 2 * self.shape.pixels * self.present_weights

    @property
    def bytes_moved(self) -> int:
        """The fewest bytes of one pass: input, output and present weights once each."""
        values = self.shape.input_values + self.shape.pixels * self.shape.outputs + self.present_weights
        return values * (2 if self.dtype == "bfloat16" else 4)

    @property
    def total(self) -> PassTimes:
        """All three passes together."""
        passes = (self.forward, self.input_gradient, self.weight_gradient)
        return PassTimes(sum(p.dense_seconds for p in passes), sum(p.sparse_seconds for p in passes))


@dataclass(frozen=True)
class StepRatio:
    """A whole training step: forward, loss, backward and optimizer."""

    model: str
    block: int
    sparsity: float
    step: PassTimes


LINEAR_SHAPES = (LinearShape(2048, 2048, 2048), LinearShape(2048, 2048, 512), LinearShape(512, 4096, 1024))
CONV_SHAPES = (
    ConvShape(32, 64, 64, 32),
    ConvShape(32, 128, 128, 32),
    ConvShape(32, 128, 128, 16),
    ConvShape(32, 256, 256, 16),
    ConvShape(32, 256, 256, 16, channels_last=False),
)


def bench_linear(
    shape: LinearShape, block: int, sparsity: float, dtype: torch.dtype = torch.float32, rounds: int = 9
) -> KernelRatios:
    """Time the three passes of a linear layer beside torch's own products."""
    layout = BlockLayout(shape.out_features, shape.in_features, block, block)
    weight, topology = _random_blocks(layout, sparsity, dtype)
    dense = layout.unpack(weight, topology.block_rows, topology.block_cols)
    x = torch.randn(shape.tokens, shape.in_features).to(dtype)
    output_grad = torch.randn(shape.tokens, shape.out_features).to(dtype)
    times = _interleaved(
        [
            (lambda: x @ dense.T, lambda: block_linear_forward(x, weight, None, *topology)),
            (lambda: output_grad @ dense, lambda: block_linear_input_grad(output_grad, weight, *topology)),
            (lambda: output_grad.T @ x, lambda: block_linear_weight_grad(output_grad, x, *topology, x.dtype)),
        ],
        rounds,
    )
    return KernelRatios(shape, block, sparsity, _dtype_name(dtype), instruction_set() or "none", *times)


def bench_conv2d(
    shape: ConvShape, block: int, sparsity: float, dtype: torch.dtype = torch.float32, rounds: int = 9
) -> KernelRatios:
    """Time the three passes of a convolution beside torch's own."""
    padding = shape.kernel // 2
    geometry = Conv2dGeometry((shape.kernel,) * 2, (shape.stride,) * 2, (padding,) * 2)
    layout = BlockLayout(shape.out_channels, shape.kernel**2 * shape.in_channels, block, block)
    weight, topology = _random_blocks(layout, sparsity, dtype)
    matrix = layout.unpack(weight, topology.block_rows, topology.block_cols)
    memory_format = torch.channels_last if shape.channels_last else torch.contiguous_format
    dense = matrix_to_conv_weight(matrix, geometry.kernel_size).to(memory_format=memory_format)
    x = torch.randn(shape.batch, shape.in_channels, shape.size, shape.size).to(dtype)
    x = x.to(memory_format=memory_format)
    y = nn.functional.conv2d(x, dense, None, shape.stride, padding)
    output_grad = torch.randn_like(y)
    lists = geometry.as_lists()

    def dense_gradient(of_input: bool, of_weight: bool) -> tuple[Tensor, ...]:
        gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            *(output_grad, x, dense, None, lists[1], lists[2], lists[3], False, [0, 0], 1),
            [of_input, of_weight, False],
        )
        return gradients

    times = _interleaved(
        [
            (
                lambda: nn.functional.conv2d(x, dense, None, shape.stride, padding),
                lambda: block_conv2d_forward(x, weight, None, *topology, *lists),
            ),
            (
                lambda: dense_gradient(True, False),
                lambda: block_conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *lists),
            ),
            (
                lambda: dense_gradient(False, True),
                lambda: block_conv2d_weight_grad(output_grad, x, *topology, *lists, x.dtype),
            ),
        ],
        rounds,
    )
    return KernelRatios(shape, block, sparsity, _dtype_name(dtype), instruction_set() or "none", *times)


def bench_training_step(
    name: str,
    models: tuple[nn.Module, nn.Module],
    batch: tuple[Tensor, Tensor],
    block: int,
    sparsity: float,
    rounds: int = 9,
) -> StepRatio:
    """Time a step (forward, cross entropy, backward, AdamW) on ``batch`` of the dense and the sparse of ``models``."""
    x, target = batch

    def step_of(model: nn.Module) -> Callable[[], object]:
        optimizer = torch.optim.AdamW(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(x), target))
            optimizer.step()

        return step

    (times,) = _interleaved([(step_of(models[0]), step_of(models[1]))], rounds)
    return StepRatio(name, block, sparsity, times)


def bench_mlp_step(block: int, sparsity: float, width: int = 2048, tokens: int = 2048, rounds: int = 9) -> StepRatio:
    """A four-layer ReLU perceptron of ``width`` features with a dense classifier of 10 classes."""
    from acf.nn import BlockSparsity, sparsify_

    def model() -> nn.Sequential:
        torch.manual_seed(0)
        hidden = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(width, 10))

    sparse = model()
    sparsify_(sparse, BlockSparsity(sparsity=sparsity, block=block), filter_fn=_is_hidden_layer)
    x, target = torch.randn(tokens, width), torch.randint(10, (tokens,))
    name = f"mlp 4x{width}, {tokens} tokens"
    return bench_training_step(name, (model(), sparse), (x, target), block, sparsity, rounds)


def bench_cnn_step(block: int, sparsity: float, channels: int = 256, size: int = 16, rounds: int = 9) -> StepRatio:
    """Four 3x3 convolutions with ReLU over 32 images, channels last, and a dense classifier of 10 classes."""
    from acf.nn import BlockSparsity, sparsify_

    def model() -> nn.Sequential:
        torch.manual_seed(0)
        hidden = [layer for _ in range(4) for layer in (nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
        return nn.Sequential(*hidden, *head)

    sparse = model()
    sparsify_(sparse, BlockSparsity(sparsity=sparsity, block=block), filter_fn=_is_hidden_layer)
    x = torch.randn(32, channels, size, size).to(memory_format=torch.channels_last)
    target = torch.randint(10, (32,))
    name = f"cnn 4x{channels} {size}^2, 32 images"
    return bench_training_step(name, (model(), sparse), (x, target), block, sparsity, rounds)


def _is_hidden_layer(module: nn.Module, name: str) -> bool:
    return not (isinstance(module, nn.Linear) and module.out_features == 10)


def _random_blocks(layout: BlockLayout, sparsity: float, dtype: torch.dtype) -> tuple[Tensor, BlockTopology]:
    """A packed random weight with ``1 - sparsity`` of the blocks, in a random order of slots."""
    generator = torch.Generator().manual_seed(0)
    present = max(1, round((1.0 - sparsity) * layout.block_count))
    chosen = torch.randperm(layout.block_count, generator=generator)[:present]
    topology = BlockTopology.build(layout, chosen // layout.grid_cols, chosen % layout.grid_cols)
    weight = torch.randn(present, layout.block_height, layout.block_width, generator=generator)
    return weight.to(dtype), topology


def _interleaved(pairs: Sequence[tuple[Callable[[], object], Callable[[], object]]], rounds: int) -> list[PassTimes]:
    """Best time of each dense and sparse action; they take turns, so a busy machine disturbs them alike.

    With one thread it is processor time, which other people's programs hardly change; else elapsed time.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    actions = [action for pair in pairs for action in pair]
    best = [float("inf")] * len(actions)
    for measured in range(rounds + 1):
        for index, action in enumerate(actions):
            start = clock()
            action()
            seconds = clock() - start
            if measured:  # the first round warms up
                best[index] = min(best[index], seconds)
    return [PassTimes(best[2 * pair], best[2 * pair + 1]) for pair in range(len(pairs))]


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class CpuBenchSpec:
    """What to measure: block sizes, sparsities, kinds of layers (linear, conv, step), dtype and repetitions.

    Layers are measured with each of ``instructions`` in turn; empty: with the best of this machine.
    """

    blocks: tuple[int, ...] = (16, 32, 64)
    sparsities: tuple[float, ...] = (0.9, 0.75, 0.5)
    kinds: tuple[str, ...] = ("linear", "conv", "step")
    dtype: torch.dtype = torch.float32
    rounds: int = 9
    instructions: tuple[str, ...] = ()


@dataclass(frozen=True)
class CpuBenchResult:
    """Ratios of layers and of whole steps, and the machine's ceilings in the same run."""

    ceilings: Ceilings
    layers: tuple[KernelRatios, ...]
    steps: tuple[StepRatio, ...]


def run_cpu_bench(spec: CpuBenchSpec, on_progress: Callable[[str, float], None]) -> CpuBenchResult:
    """Measure everything ``spec`` names."""
    torch.manual_seed(0)
    layers: list[KernelRatios] = []
    steps: list[StepRatio] = []
    cases = [(block, sparsity) for block in spec.blocks for sparsity in spec.sparsities]
    for index, (block, sparsity) in enumerate(cases):
        on_progress(f"blocks of {block}, {sparsity:.0%}", index / len(cases))
        layers += _bench_layers(spec, block, sparsity)
        if "step" in spec.kinds:
            steps += [bench_mlp_step(block, sparsity), bench_cnn_step(block, sparsity)]
    return CpuBenchResult(measure_ceilings(), tuple(layers), tuple(steps))


def _bench_layers(spec: CpuBenchSpec, block: int, sparsity: float) -> Iterator[KernelRatios]:
    """Each shape with each instruction set, so that a layer's figures lie close together in time."""
    shapes = [*(LINEAR_SHAPES if "linear" in spec.kinds else ()), *(CONV_SHAPES if "conv" in spec.kinds else ())]
    for shape in shapes:
        for instructions in spec.instructions or ("",):
            with with_instruction_set(instructions) if instructions else nullcontext():
                if isinstance(shape, LinearShape):
                    yield bench_linear(shape, block, sparsity, spec.dtype, spec.rounds)
                else:
                    yield bench_conv2d(shape, block, sparsity, spec.dtype, spec.rounds)


def measure_ceilings(size: int = 2048, rounds: int = 5) -> Ceilings:
    """Rate of a float32 product of ``size`` cubed and of a copy of 256 MB."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    source = torch.empty(1 << 28, dtype=torch.int8)
    target = torch.empty_like(source)
    (times,) = _interleaved([(lambda: a @ b, lambda: target.copy_(source))], rounds)
    return Ceilings(2 * size**3 / times.dense_seconds, 2 * source.numel() / times.sparse_seconds)


def roofline_points(layers: Sequence[KernelRatios]) -> list[RooflinePoint]:
    """Every pass of every layer as a point of the roofline."""
    points = []
    for layer in layers:
        operations, moved = layer.operations, layer.bytes_moved
        for name, times in (
            ("forward", layer.forward),
            ("input gradient", layer.input_gradient),
            ("weight gradient", layer.weight_gradient),
        ):
            label = f"{layer.shape}, blocks of {layer.block}, {layer.sparsity:.0%}"
            points.append(RooflinePoint(name, label, operations / moved, operations / times.sparse_seconds))
    return points
