"""How quick the TensorDash model is: one wide layer at growing batch, and a whole ResNet-50 training step."""

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acf.sim import simulate
from acf.trace import Trace
from acf.zoo.synthetic import ConvLayer, Zeros, conv_step

RELU_ZEROS = Zeros(activations=0.5, gradients=0.5)
VGG_LAYER = ConvLayer(512, 512, 14)
OnProgress = Callable[[str, float], None]


@dataclass(frozen=True)
class SimulatorTiming:
    """Time of one simulation; making the random operands is not counted."""

    name: str
    architecture: str
    dense_macs: int
    seconds: float
    peak_memory_bytes: int

    @property
    def macs_per_s(self) -> float:
        """Multiply-accumulates of the dense products over the time to simulate them."""
        return self.dense_macs / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"macs_per_s": self.macs_per_s}


def resnet50_layers() -> dict[str, ConvLayer]:
    """The 53 convolutions of ResNet-50 at 224 x 224 and its classifier as a 1x1 convolution on one pixel."""
    layers = {"conv1": ConvLayer(3, 64, 224, kernel=7, stride=2)}
    channels, size = 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            name = f"layer{stage}.{block}"
            layers[f"{name}.conv1"] = ConvLayer(channels, width, size, kernel=1)
            layers[f"{name}.conv2"] = ConvLayer(width, width, size, stride=stride)
            layers[f"{name}.conv3"] = ConvLayer(width, 4 * width, size // stride, kernel=1)
            if block == 0:
                layers[f"{name}.downsample"] = ConvLayer(channels, 4 * width, size, kernel=1, stride=stride)
            channels, size = 4 * width, size // stride
    return layers | {"fc": ConvLayer(2048, 1000, 1, kernel=1)}


def resnet50_steps(batch: int) -> Iterator[Trace]:
    """The three passes of every layer, one layer's trace at a time, half of activations and gradients zero.

    The data layer has no zeros in its input and no input gradient.
    """
    for seed, (name, layer) in enumerate(resnet50_layers().items()):
        is_data = name == "conv1"
        zeros = Zeros(0.0, 0.5) if is_data else RELU_ZEROS
        trace = conv_step({name: (layer, zeros)}, batch, seed)
        ops = [op for op in trace.ops if not (is_data and op.phase == "input_grad")]
        yield Trace(ops, trace.tensors, trace.label)


def time_traces(name: str, traces: Iterator[Trace], architecture: str = "tensordash") -> SimulatorTiming:
    """Play traces one after another and add up the time that playing takes."""
    seconds, dense_macs = 0.0, 0
    for trace in traces:
        start = time.perf_counter()
        result = simulate(trace, architecture)
        seconds += time.perf_counter() - start
        dense_macs += sum(op.dense_macs for op in result.ops)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return SimulatorTiming(name, architecture, dense_macs, seconds, peak)


def run_simulator_bench(
    on_progress: OnProgress, resnet_batch: int = 32, captured: Sequence[Path] = ()
) -> list[SimulatorTiming]:
    """A 512-filter VGG layer at batch 8, 16 and 32, forward and all passes, the whole ResNet-50 step, captured traces.

    A captured trace is mapped from its file; what is read of it while it is played counts.
    """
    loaded = [Trace.load(path) for path in captured]
    time_traces("warm up", iter([conv_step({"conv": (ConvLayer(8, 8, 4), RELU_ZEROS)}, 1, 0)]))
    timings = []
    for batch in (8, 16, 32):
        on_progress(f"VGG layer, batch {batch}", batch / 200)
        step = conv_step({"conv": (VGG_LAYER, RELU_ZEROS)}, batch, seed=0)
        forward = Trace(step.ops[:1], step.tensors, step.label)
        timings.append(time_traces(f"VGG 512 filters, forward, batch {batch}", iter([forward])))
        timings.append(time_traces(f"VGG 512 filters, 3 passes, batch {batch}", iter([step])))
    on_progress(f"ResNet-50 step, batch {resnet_batch}", 0.2)
    timings.append(time_traces(f"ResNet-50 step, batch {resnet_batch}, 224x224", resnet50_steps(resnet_batch)))
    for trace in loaded:
        on_progress(trace.label, 0.9)
        timings.append(time_traces(trace.label, iter([trace])))
    on_progress("done", 1.0)
    return timings
