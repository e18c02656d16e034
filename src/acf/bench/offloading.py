"""`acf bench offload`: training on a device beside training on the host, and the speed of an offloaded step."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.bench import OnProgress
from acf.errors import DataError
from acf.masks import BlockDST
from acf.nn import BlockSparseLinear, BlockSparsity, sparsify_
from acf.offloading import StepUsage, offload
from acf.options import option
from acf.report.timeline import save_device_timeline
from acf.runtime import Device, RtlSpec
from acf.sim import simulate
from acf.sim.registry import spec as architecture
from acf.trace import capture
from acf.train import attach
from acf.units import si
from acf.zoo.networks import NETWORKS
from acf.zoo.networks.gpt import Gpt, GptSpec

Batch = tuple[Tensor, Tensor]


def _silent(text: str, share: float) -> None:
    """Show no progress."""


LAST = 10
"""Losses at the end of a run whose mean is compared."""


@dataclass(frozen=True)
class OffloadSpec:
    """What to train, how long, and on what."""

    workload: str = option("cnn", "cnn or transformer: losses; resnet18: speed of a step; mlp: bits of rtl and sim.")
    steps: int = option(100, "Training steps; of resnet18 and mlp a few do.", min=1)
    architecture: str = option("acf-512", "What the device models.")
    sparsity: float = option(0.5, "Share of blocks of 16 to train without; blocks move every 10 steps.")
    batch: int = option(16, "Examples of a step.", min=1)
    seed: int = option(0, "Seed of weights and batches.")
    timeline: str = option("", "Of cnn and transformer: write the device's timeline, host copies included, as JSON.")

    def __post_init__(self) -> None:
        if self.timeline and self.workload not in WORKLOADS:
            raise DataError(
                f"workload {self.workload!r} has no timeline; leave --timeline out, or use {' or '.join(WORKLOADS)}"
            )


@dataclass(frozen=True)
class Workload:
    """How to build a model, make its batches, and what its loss is."""

    build: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], Batch]
    loss: Callable[[Tensor, Tensor], Tensor]


def _images(count: int, generator: torch.Generator) -> Batch:
    """Noise with a bright stripe, whose place is the class."""
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = torch.randn(count, 3, 32, 32, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, 3 * label : 3 * label + 3] += 2
    return images, labels


def _sequences(count: int, generator: torch.Generator) -> Batch:
    """Tokens that count up by a step of their own, modulo 64; the label is the next token."""
    first = torch.randint(0, 64, (count, 1), generator=generator)
    strides = torch.randint(1, 4, (count, 1), generator=generator)
    tokens = (first + strides * torch.arange(17)) % 64
    return tokens[:, :-1], tokens[:, 1:]


WORKLOADS: dict[str, Workload] = {
    "cnn": Workload(lambda: NETWORKS["small-cnn"].build(width=16), _images, F.cross_entropy),
    "transformer": Workload(
        lambda: Gpt(GptSpec(vocabulary=64, context=16, width=128, layers=1)),
        _sequences,
        lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten()),
    ),
}
"""Models that train in seconds on the host, by name."""


@dataclass(frozen=True)
class OffloadComparison:
    """Losses of the same run on the host and on a device, and the device's last step."""

    workload: str
    host_losses: tuple[float, ...]
    device_losses: tuple[float, ...]
    last_step: StepUsage
    table: str

    @property
    def final_losses(self) -> tuple[float, float]:
        """Mean of the last losses, on the host and on the device."""
        host, device = (sum(each[-LAST:]) / len(each[-LAST:]) for each in (self.host_losses, self.device_losses))
        return host, device

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        host, device = self.final_losses
        return asdict(self) | {"final_host_loss": host, "final_device_loss": device}


def train_losses(model: nn.Module, workload: Workload, spec: OffloadSpec) -> Iterator[float]:
    """Train with AdamW, blocks moving every 10 steps, and give the loss of every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    moving = bool(spec.sparsity)
    policy = BlockDST(total_steps=max(20, spec.steps), every=10, fraction=0.3)
    topology = attach(model, optimizer, policy) if moving else None
    generator = torch.Generator().manual_seed(spec.seed)
    for _ in range(spec.steps):
        inputs, labels = workload.batch(spec.batch, generator)
        optimizer.zero_grad()
        loss = workload.loss(model(inputs), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        yield loss.item()
    if topology is not None:
        topology.detach()


def _model(workload: Workload, spec: OffloadSpec) -> nn.Module:
    torch.manual_seed(spec.seed)
    model = workload.build()
    if spec.sparsity:
        sparsify_(model, BlockSparsity(sparsity=spec.sparsity, block=16))
    return model


def compare_training(spec: OffloadSpec, on_progress: OnProgress) -> OffloadComparison:
    """Train once on the host and once on the simulated device, with the same weights, batches and moves."""
    if spec.workload not in WORKLOADS:
        raise DataError(f"workload {spec.workload!r} is not one of {', '.join(WORKLOADS)}; use one of these names")
    workload = WORKLOADS[spec.workload]
    host = tuple(train_losses(_model(workload, spec), workload, spec))
    model, losses = _model(workload, spec), []
    device = Device("sim", spec.architecture)
    with offload(model, device, keep_timeline=bool(spec.timeline)) as run:
        for loss in train_losses(model, workload, spec):
            losses.append(loss)
            on_progress(f"step {len(losses)}, loss {loss:.3f}", len(losses) / spec.steps)
    if spec.timeline:
        save_device_timeline(device.timeline, spec.timeline, f"{spec.workload} on {spec.architecture}")
    return OffloadComparison(spec.workload, host, tuple(losses), run.steps[-1], run.table())


@dataclass(frozen=True)
class StepSpeed:
    """Seconds of this machine: to simulate a captured step, and to run steps offloaded, the first of which compiles.

    ``cpu_s``: processor time over all threads, which says more where other programs run beside it.
    """

    simulate_s: float
    simulate_cpu_s: float
    offload_s: tuple[float, ...]
    offload_cpu_s: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The last offloaded step over the simulation of the same step."""
        return self.offload_s[-1] / self.simulate_s

    @property
    def cpu_ratio(self) -> float:
        """The same in processor time."""
        return self.offload_cpu_s[-1] / self.simulate_cpu_s


def measure_step(spec: OffloadSpec, on_progress: OnProgress) -> StepSpeed:
    """Steps of ResNet-18 on ``spec.batch`` CIFAR-sized images: simulated from its trace, and offloaded."""
    torch.manual_seed(spec.seed)
    model = NETWORKS["resnet18-cifar"].build(classes=10)
    if spec.sparsity:
        sparsify_(model, BlockSparsity(sparsity=spec.sparsity, block=16))
    images, labels = _images(spec.batch, torch.Generator().manual_seed(spec.seed))
    on_progress("capturing", 0.0)
    with capture(model) as trace:
        torch.autograd.backward(F.cross_entropy(model(images), labels))
    on_progress("simulating the trace", 0.1)
    simulated = [_seconds(lambda: simulate(trace, spec.architecture)) for _ in range(2)][-1]  # the first one compiles

    def step() -> None:
        torch.autograd.backward(F.cross_entropy(model(images), labels))

    offloaded = []
    with offload(model, Device("sim", spec.architecture)):
        for number in range(spec.steps):
            on_progress(f"offloaded step {number}", 0.3 + 0.7 * number / spec.steps)
            offloaded.append(_seconds(step))
    walls, processor = zip(*offloaded, strict=True)
    return StepSpeed(*simulated, walls, processor)


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor time of a call."""
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


SMALL_FABRIC = {
    "mesh_rows": 2,
    "mesh_columns": 2,
    "scus_per_cluster": 1,
    "tile": 8,
    "link_bytes": 16,
    "queue_packets": 2,
    "parallel_slots": 4,
    "accumulator_tiles": 2,
    "prefetch_packets": 2,
}
"""A fabric in gates that simulates a small product in seconds."""

GATE_LIMITS: dict[str, Any] = {
    "memory_bytes": 1 << 15,
    "index_words": 128,
    "blocks": 16,
    "column_tiles": 4,
    "depths": 4,
}
"""The largest products of the MLP; compiling the gates takes most of the time, and more the larger they may be."""

MOVE_EVERY = 2
"""Steps of the MLP between two topology updates."""


@dataclass(frozen=True)
class MlpSpec:
    """A two-layer MLP: features before, between and behind its layers, and examples of a step."""

    widths: tuple[int, int, int] = (16, 16, 16)
    batch: int = 4
    block: int = 8


@dataclass(frozen=True)
class BitComparison:
    """A two-layer MLP trained in gates and on the simulator: losses, and whether every weight has the same bits.

    ``moved_blocks``: blocks that are elsewhere after training; ``_s``: seconds of device time of all products.
    """

    rtl_losses: tuple[float, ...]
    sim_losses: tuple[float, ...]
    is_equal: bool
    moved_blocks: int
    rtl_compute_s: float
    sim_compute_s: float


@dataclass(frozen=True, eq=False)
class _Trained:
    losses: tuple[float, ...]
    state: dict[str, Tensor]
    moved_blocks: int
    compute_s: float


def compare_bits(
    steps: int, seed: int = 0, rtl: RtlSpec | None = None, mlp: MlpSpec | None = None, on_progress: OnProgress = _silent
) -> BitComparison:
    """Train a sparse two-layer MLP on "rtl", which walks its own index, and on "sim" with the same programs."""
    rtl = rtl or RtlSpec(architecture("acf-512", **SMALL_FABRIC), **GATE_LIMITS)
    simulated = _train_mlp(Device("sim", rtl.fabric, walked=True), steps, seed, mlp or MlpSpec())
    on_progress("compiling the gates", 0.1)
    gates = _train_mlp(Device("rtl", rtl), steps, seed, mlp or MlpSpec(), on_progress)
    pairs = ((gates.state[name], simulated.state[name]) for name in simulated.state)
    is_equal = gates.losses == simulated.losses and all(torch.equal(one, other) for one, other in pairs)
    return BitComparison(
        rtl_losses=gates.losses,
        sim_losses=simulated.losses,
        is_equal=is_equal,
        moved_blocks=gates.moved_blocks,
        rtl_compute_s=gates.compute_s,
        sim_compute_s=simulated.compute_s,
    )


def _train_mlp(device: Device, steps: int, seed: int, mlp: MlpSpec, on_progress: OnProgress = _silent) -> _Trained:
    torch.manual_seed(seed)
    first, hidden, last = mlp.widths
    model = nn.Sequential(nn.Linear(first, hidden), nn.ReLU(), nn.Linear(hidden, last))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=mlp.block))
    before = _block_places(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topology = attach(model, optimizer, BlockDST(total_steps=10 * steps, every=MOVE_EVERY, fraction=0.5))
    generator, losses = torch.Generator().manual_seed(seed), []
    with offload(model, device) as run:
        for step in range(steps):
            x, target = (torch.randn(mlp.batch, width, generator=generator) for width in (first, last))
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.item())
            on_progress(f"step {step + 1}, loss {losses[-1]:.3f}", (step + 1) / steps)
    topology.detach()
    compute_s = sum(each.compute_s for each in run.steps)
    return _Trained(tuple(losses), model.state_dict(), len(_block_places(model) - before), compute_s)


def _block_places(model: nn.Module) -> set[tuple[str, int, int]]:
    """Layer, block row and block column of every present block."""
    layers = [(name, each) for name, each in model.named_modules() if isinstance(each, BlockSparseLinear)]
    return {
        (name, *place)
        for name, layer in layers
        for place in zip(layer.topology.block_rows.tolist(), layer.topology.block_cols.tolist(), strict=True)
    }


def run_offload_bench(spec: OffloadSpec, on_progress: OnProgress) -> tuple[dict[str, Any], str]:
    """The figures of a workload as plain values, and as text."""
    if spec.workload == "resnet18":
        speed = measure_step(spec, on_progress)
        steps = ", ".join(f"{each:.1f} s" for each in speed.offload_s)
        ratios = f"last {speed.ratio:.2f}x, {speed.cpu_ratio:.2f}x in processor time"
        text = f"trace simulated in {speed.simulate_s:.1f} s; offloaded steps: {steps}; {ratios}"
        return asdict(speed) | {"ratio": speed.ratio, "cpu_ratio": speed.cpu_ratio}, text
    if spec.workload == "mlp":
        bits = compare_bits(spec.steps, spec.seed, on_progress=on_progress)
        verdict = "the same bits" if bits.is_equal else "DIFFERENT bits"
        losses = ", ".join(f"{loss:.4f}" for loss in bits.rtl_losses)
        times = f"products of {si(bits.rtl_compute_s, 's')} in gates, {si(bits.sim_compute_s, 's')} by the model"
        text = f"{spec.steps} steps in gates and on the simulator: {verdict}; {bits.moved_blocks} of the blocks moved; "
        return asdict(bits), f"{text}{times}; losses {losses}"
    compared = compare_training(spec, on_progress)
    host, device = compared.final_losses
    losses = f"mean of the last {LAST} losses: {host:.4f} on the host, {device:.4f} on {spec.architecture}"
    text = f"{compared.table}\n{losses}, from {compared.host_losses[0]:.4f}"
    written = f"\ntimeline: {spec.timeline}; open it at ui.perfetto.dev" if spec.timeline else ""
    return compared.to_dict(), text + written
