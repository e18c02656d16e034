"""Speed of the TensorDash model itself: one wide layer at growing batch, and a whole ResNet-50 training step."""

import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acf.bench import OnProgress
from acf.sim import simulate
from acf.trace import Trace
from acf.zoo.shapes import network_shapes
from acf.zoo.synthetic import Zeros, as_convolution, conv_step, square_convolution

RELU_ZEROS = Zeros(activations=0.5, gradients=0.5)


@dataclass(frozen=True)
class SimulatorTiming:
    """Host time of one simulation, without making the random operands.

    ``seconds`` is elapsed time; ``processor_seconds`` counts this process alone, whatever else the machine does.
    """

    name: str
    architecture: str
    dense_macs: int
    seconds: float
    processor_seconds: float
    peak_memory_bytes: int

    @property
    def macs_per_s(self) -> float:
        """Multiply-accumulates of the dense products over the time to simulate them."""
        return self.dense_macs / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"macs_per_s": self.macs_per_s}


def resnet50_steps(batch: int) -> Iterator[Trace]:
    """The three passes of every layer, one layer's trace at a time, half of activations and gradients zero.

    The first layer has no zeros in its input and no input gradient; the classifier is a 1x1 convolution on one pixel.
    """
    for seed, layer in enumerate(network_shapes("resnet50").layers):
        zeros = Zeros(0.0, 0.5) if layer.reads_data else RELU_ZEROS
        yield conv_step({layer.name: (as_convolution(layer), zeros)}, batch, seed)


def time_traces(name: str, traces: Iterator[Trace], architecture: str = "tensordash") -> SimulatorTiming:
    """Simulate traces one after another, and add up the host time that simulation takes."""
    seconds, processor_seconds, dense_macs = 0.0, 0.0, 0
    for trace in traces:
        start, processor_start = time.perf_counter(), time.process_time()
        result = simulate(trace, architecture)
        seconds += time.perf_counter() - start
        processor_seconds += time.process_time() - processor_start
        dense_macs += sum(op.dense_macs for op in result.ops)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return SimulatorTiming(name, architecture, dense_macs, seconds, processor_seconds, peak)


def run_simulator_bench(
    on_progress: OnProgress, resnet_batch: int = 32, captured: Sequence[Path] = ()
) -> list[SimulatorTiming]:
    """A 512-filter VGG layer at batch 8, 16 and 32, forward and all passes; a ResNet-50 step; ``captured`` traces.

    Captured traces are memory-mapped, so their time includes reading the file.
    """
    loaded = [Trace.load(path) for path in captured]
    time_traces("warm up", iter([conv_step({"conv": (square_convolution(8, 8, 4), RELU_ZEROS)}, 1, 0)]))
    vgg_layer = network_shapes("vgg16").layer("features.28")  # the last convolution, 512 channels on 14 x 14
    timings = []
    for batch in (8, 16, 32):
        on_progress(f"VGG layer, batch {batch}", batch / 200)
        step = conv_step({"conv": (vgg_layer, RELU_ZEROS)}, batch, seed=0)
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
