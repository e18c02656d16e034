"""Measure dense training steps on this GPU, of the shapes that `acf bench fabric` plays on modelled machines.

    python examples/gpu_steps.py > steps.json

ResNet-50: 32 images of 224 x 224, channels last, SGD with momentum. Transformer-Base: 4,096 tokens in 128 sentences of
32, encoder and decoder without embeddings, dropout and projection onto the vocabulary, Adam. bfloat16 autocast over
float32 weights; forward, backward and optimizer are one CUDA graph, first of eager code, then compiled.
"""

import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.metrics.meters import EnergyMeter
from acf.zoo.networks.resnet import ResNet50
from acf.zoo.networks.transformer import DecoderLayer, EncoderLayer, TransformerSpec

Step = tuple[torch.optim.Optimizer, Callable[[], Tensor]]

TIMED_SECONDS = 1.5
"""Long against the time between two readings of the board's energy counter."""


class Body(nn.Module):
    """Encoder and decoder of Transformer-Base; both arguments ``[sentences, tokens, 512]``."""

    def __init__(self) -> None:
        super().__init__()
        spec = TransformerSpec(dropout=0.0)
        self.encoder = nn.ModuleList(EncoderLayer(spec) for _ in range(6))
        self.decoder = nn.ModuleList(DecoderLayer(spec) for _ in range(6))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """The decoder's output."""
        for layer in self.encoder:
            source = layer(source)
        for layer in self.decoder:
            target = layer(target, source)
        return target


def resnet_step(compiled: bool) -> Step:
    """ResNet-50 with its optimizer and loss."""
    model = ResNet50().cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(32, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (32,), device="cuda")

    def loss() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return F.cross_entropy(model(images), labels)

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    return optimizer, torch.compile(loss) if compiled else loss


def transformer_step(compiled: bool) -> Step:
    """Transformer-Base with its optimizer and loss; each kind of layer is compiled once."""
    model = Body().cuda()
    if compiled:
        for layer in (*model.encoder, *model.decoder):
            layer.compile()
    source, target = (torch.randn(128, 32, 512, device="cuda") for _ in range(2))

    def loss() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return model(source, target).float().square().mean()

    return torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=True), loss


STEPS: dict[str, Callable[[bool], Step]] = {"resnet50": resnet_step, "transformer-base": transformer_step}


def captured(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> torch.cuda.CUDAGraph:
    """Forward, backward and optimizer as one CUDA graph."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            step()
    torch.cuda.synchronize()
    return graph


def measured(name: str, compiled: bool) -> dict[str, object]:
    """Milliseconds and joules of a step."""
    torch.manual_seed(0)
    graph = captured(*STEPS[name](compiled))
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    replays = 0
    with EnergyMeter("cuda", synchronize=torch.cuda.synchronize) as meter:
        begun = time.perf_counter()
        while time.perf_counter() - begun < TIMED_SECONDS:
            for _ in range(20):
                graph.replay()
            torch.cuda.synchronize()
            replays += 20
    reading = meter.reading
    return {
        "network": name,
        "compiled": compiled,
        "step_ms": 1e3 * reading.seconds / replays,
        "step_j": None if reading.joules is None else reading.joules / replays,
        "energy_source": reading.source,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main() -> None:
    """Print every step as JSON."""
    if not torch.cuda.is_available():
        print("skipped: these steps are measured on a GPU, and torch sees none")
        return
    torch.backends.cudnn.benchmark = True
    print(json.dumps([measured(name, compiled) for compiled in (False, True) for name in STEPS], indent=1))


if __name__ == "__main__":
    main()
