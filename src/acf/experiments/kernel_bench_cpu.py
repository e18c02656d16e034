"""Speed of the CPU's block-sparse kernels against torch's dense product, as ratios from one interleaved run.

``python -m acf.experiments.kernel_bench_cpu`` prints the table; `bench_linear`, `bench_conv2d` and
`bench_training_step` are the same figures as data.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acf.ops.conv import Conv2dGeometry, _block_conv2d, _block_conv2d_input_grad, _block_conv2d_weight_grad
from acf.ops.linear import _block_linear, _block_linear_input_grad, _block_linear_weight_grad
from acf.sparse import BlockLayout, BlockTopology, matrix_to_conv_weight


@dataclass(frozen=True)
class LinearShape:
    """A linear layer and the tokens it is given."""

    tokens: int
    out_features: int
    in_features: int

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
    forward: PassTimes
    input_gradient: PassTimes
    weight_gradient: PassTimes

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
            (lambda: x @ dense.T, lambda: _block_linear(x, weight, *topology)),
            (lambda: output_grad @ dense, lambda: _block_linear_input_grad(output_grad, weight, *topology)),
            (lambda: output_grad.T @ x, lambda: _block_linear_weight_grad(output_grad, x, *topology)),
        ],
        rounds,
    )
    return KernelRatios(shape, block, sparsity, _dtype_name(dtype), *times)


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
                lambda: _block_conv2d(x, weight, *topology, *lists),
            ),
            (
                lambda: dense_gradient(True, False),
                lambda: _block_conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *lists),
            ),
            (
                lambda: dense_gradient(False, True),
                lambda: _block_conv2d_weight_grad(output_grad, x, *topology, *lists),
            ),
        ],
        rounds,
    )
    return KernelRatios(shape, block, sparsity, _dtype_name(dtype), *times)


def bench_training_step(
    name: str,
    dense: nn.Module,
    sparse: nn.Module,
    x: Tensor,
    target: Tensor,
    block: int,
    sparsity: float,
    rounds: int = 9,
) -> StepRatio:
    """Time a step (forward, cross entropy, backward, AdamW) of a model and of its sparse twin."""

    def step_of(model: nn.Module) -> Callable[[], object]:
        optimizer = torch.optim.AdamW(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(x), target))
            optimizer.step()

        return step

    (times,) = _interleaved([(step_of(dense), step_of(sparse))], rounds)
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
    return bench_training_step(f"mlp 4x{width}, {tokens} tokens", model(), sparse, x, target, block, sparsity, rounds)


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
    return bench_training_step(name, model(), sparse, x, target, block, sparsity, rounds)


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


def format_ratios(results: Sequence[KernelRatios]) -> str:
    """A Markdown table of ratios to dense."""
    lines = [
        "| layer | block | sparsity | dtype | forward | input gradient | weight gradient | all three |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        passes = (result.forward, result.input_gradient, result.weight_gradient, result.total)
        ratios = " | ".join(f"{part.ratio:.2f}x" for part in passes)
        lines.append(f"| {result.shape} | {result.block} | {result.sparsity:.0%} | {result.dtype} | {ratios} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table for the shapes, blocks and sparsities asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--sparsities", type=float, nargs="+", default=[0.9, 0.75, 0.5])
    parser.add_argument("--layers", choices=["linear", "conv", "step", "all"], default="all")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dtype: torch.dtype = getattr(torch, options.dtype)
    results: list[KernelRatios] = []
    for block in options.blocks:
        for sparsity in options.sparsities:
            if options.layers in ("linear", "all"):
                results += [bench_linear(s, block, sparsity, dtype, options.rounds) for s in LINEAR_SHAPES]
            if options.layers in ("conv", "all"):
                results += [bench_conv2d(s, block, sparsity, dtype, options.rounds) for s in CONV_SHAPES]
    if results:
        print(format_ratios(results))
    if options.layers in ("step", "all"):
        for block in options.blocks:
            for result in (bench_mlp_step(block, 0.9), bench_cnn_step(block, 0.9)):
                print(f"{result.model}: block {block}, {result.sparsity:.0%}: {result.step.ratio:.2f}x per step")


if __name__ == "__main__":
    main()
