"""Device times of functions that take turns, and the passes of a convolution to be timed."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from triton.testing import do_bench

from acf.ops import Conv2dGeometry
from acf.ops.conv import block_conv2d_forward, block_conv2d_input_grad, block_conv2d_weight_grad
from acf.sparse import BlockTopology

ROUNDS = 5
Passes = dict[str, Callable[[], object]]


def medians(functions: Mapping[str, Callable[[], object]], repeat_ms: int = 20) -> dict[str, float]:
    """Median device milliseconds of each function over several rounds that alternate between them.

    Alternating spreads changes of the clock (the chip slows down as it heats) evenly over all of them. Launches are
    replayed from CUDA graphs: otherwise a time shorter than Python takes to launch would be Python's.
    """
    replays = {name: graphed(function) for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, replay in replays.items():
            times[name].append(do_bench(replay, warmup=5, rep=repeat_ms, return_mode="median"))
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def graphed(function: Callable[[], object]) -> Callable[[], object]:
    """``function`` as a CUDA graph, so that the time measured is the device's alone."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def sparse_conv_passes(
    x: Tensor, gradient: Tensor, weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry
) -> Passes:
    """Our three passes of a convolution."""
    pairs = geometry.as_lists()
    return {
        "forward": lambda: block_conv2d_forward(x, weight, None, *topology, *pairs),
        "input_grad": lambda: block_conv2d_input_grad(gradient, weight, *topology, list(x.shape), *pairs),
        "weight_grad": lambda: block_conv2d_weight_grad(gradient, x, *topology, *pairs, x.dtype),
    }


def dense_conv_passes(x: Tensor, gradient: Tensor, dense: Tensor, geometry: Conv2dGeometry) -> Passes:
    """cuDNN's three passes of the same convolution."""
    _, stride, padding, dilation = geometry.as_lists()

    def backward(of_input: bool) -> object:
        return torch.ops.aten.convolution_backward(
            gradient, x, dense, None, stride, padding, dilation, False, [0, 0], 1, [of_input, not of_input, False]
        )

    return {
        "dense_forward": lambda: torch.conv2d(x, dense, None, stride, padding, dilation),
        "dense_input_grad": lambda: backward(True),
        "dense_weight_grad": lambda: backward(False),
    }
