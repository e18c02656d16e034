"""A whole training step of a network on a CPU, dense and block-sparse: times that alternate, and where they go.

Dense and sparse run eagerly and compiled; the better way of each counts. Convolutional networks run channels last.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn import BlockSparsity, fuse_batch_norms_, sparsify_
from acf.ops.cpu.call import instruction_set
from acf.zoo.networks import NETWORKS

WARM_UP_STEPS = 2
PROFILED_STEPS = 2
CPU_STEP_BATCHES = {"mixer-s16": 8, "vit-s16": 8, "resnet18-cifar": 32, "vgg16-bn-cifar": 32}
"""The networks that are measured, and images per step."""

SPARSE_PRODUCTS = "acf::"
DENSE_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::mkldnn_convolution", "aten::convolution_backward")
PARTS = {"attention": "aten::_scaled_dot_product", "optimizer": "aten::_fused_adamw_"}
"""Parts of a step besides products, by how the profiler's names of their ops begin."""


@dataclass(frozen=True)
class CpuStepSpec:
    """One network at one block size and sparsity; ``dtype`` bfloat16 is autocast over float32 weights.

    ``instructions`` limits the dense libraries and the sparse kernels alike; empty: whatever the processor has.
    """

    network: str
    block: int
    sparsity: float
    dtype: str = "float32"
    rounds: int = 9
    instructions: str = ""

    def __post_init__(self) -> None:
        if self.network not in CPU_STEP_BATCHES:
            known = ", ".join(CPU_STEP_BATCHES)
            raise SparsityError(f"network {self.network!r} is not one of {known}; use one of these names")


@dataclass(frozen=True)
class Times:
    """Seconds of the rounds of one way to run a step."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The shortest."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class CpuStep:
    """Times of a step by "dense eager", "dense compiled", "sparse eager" and "sparse compiled", and where they go.

    ``parts`` are the seconds of the better dense and the better sparse step: products of sparse layers, products of
    dense layers, attention, optimizer, rest. ``instructions`` is the instruction set of the sparse kernels.
    """

    spec: CpuStepSpec
    threads: int
    instructions: str
    batch: int
    times: Mapping[str, Times]
    parts: Mapping[str, Mapping[str, float]]

    def better(self, kind: str) -> str:
        """The way with the shortest median of ``kind``, dense or sparse."""
        return min((way for way in self.times if way.startswith(kind)), key=lambda way: self.times[way].median)

    @property
    def ratio(self) -> float:
        """How many times as fast the sparse step is, by medians."""
        return self.times[self.better("dense")].median / self.times[self.better("sparse")].median

    @property
    def best_ratio(self) -> float:
        """The same by best times."""
        dense, sparse = (
            min(times.best for way, times in self.times.items() if way.startswith(kind)) for kind in ("dense", "sparse")
        )
        return dense / sparse

    @property
    def amdahl_bound(self) -> float:
        """The ratio if the layers made sparse took exactly ``1 - sparsity`` of their dense time and all else as dense.

        A sparse step may exceed it where all else gets faster too: the optimizer has fewer weights.
        """
        dense, sparse = self.parts["dense"], self.parts["sparse"]
        replaced = dense["dense products"] - sparse["dense products"]
        return sum(dense.values()) / (sum(dense.values()) - self.spec.sparsity * replaced)

    def record(self) -> dict[str, Any]:
        """Everything, for JSON."""
        figures = {"ratio": self.ratio, "best_ratio": self.best_ratio, "amdahl_bound": self.amdahl_bound}
        return asdict(self) | figures | {"better": [self.better("dense"), self.better("sparse")]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "CpuStep":
        """The step that `record` was made from."""
        return cls(
            spec=CpuStepSpec(**record["spec"]),
            threads=record["threads"],
            instructions=record["instructions"],
            batch=record["batch"],
            times={way: Times(tuple(times["seconds"])) for way, times in record["times"].items()},
            parts=record["parts"],
        )


def measure_cpu_step(spec: CpuStepSpec, batch: int | None = None) -> CpuStep:
    """Time the four ways in turn, ``spec.rounds`` times, then profile the better dense and the better sparse one."""
    batch = batch or CPU_STEP_BATCHES[spec.network]
    torch.manual_seed(0)
    steps: dict[str, Callable[[], None]] = {}
    for kind in ("dense", "sparse"):
        model = _model(spec, sparse=kind == "sparse")
        steps |= {f"{kind} eager": _step(model, model, spec, batch)}
        steps |= {f"{kind} compiled": _step(model, torch.compile(model), spec, batch)}
    times = {way: Times(tuple(seconds)) for way, seconds in _alternate(steps, spec.rounds).items()}
    step = CpuStep(spec, torch.get_num_threads(), instruction_set() or "none", batch, times, {})
    parts = {}
    for kind in ("dense", "sparse"):
        way = step.better(kind)
        shares = _profile(steps[way])
        parts[kind] = {part: share * times[way].median for part, share in shares.items()}
    return CpuStep(spec, step.threads, step.instructions, batch, times, parts)


def _model(spec: CpuStepSpec, sparse: bool) -> nn.Module:
    torch.manual_seed(0)
    model = NETWORKS[spec.network].build()
    if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if sparse:
        sparsify_(model, BlockSparsity(sparsity=spec.sparsity, block=spec.block), _is_inner_layer(model))
        fuse_batch_norms_(model)
    return model


def _is_inner_layer(model: nn.Module) -> Callable[[nn.Module, str], bool]:
    """All layers but the first, which reads pixels, and the classifier."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return lambda module, name: name not in (names[0], names[-1])


def _step(model: nn.Module, forward: Callable[[Tensor], Tensor], spec: CpuStepSpec, batch: int) -> Callable[[], None]:
    (images,) = NETWORKS[spec.network].example(batch)
    images = torch.randn_like(images)
    if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        images = images.to(memory_format=torch.channels_last)
    with torch.no_grad():
        classes = model.eval()(images[:1]).shape[1]
    model.train()
    labels = torch.randint(classes, (batch,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=spec.dtype == "bfloat16"):
            loss = nn.functional.cross_entropy(forward(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _alternate(steps: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every step in every round; with one thread processor time, which other programs hardly change."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {way: [] for way in steps}
    for measured in range(-WARM_UP_STEPS, rounds):
        for way, step in steps.items():
            start = clock()
            step()
            elapsed = clock() - start
            if measured >= 0:
                seconds[way].append(elapsed)
    return seconds


def _profile(step: Callable[[], None]) -> dict[str, float]:
    """The share of each part in a step's time, by the profiler's self times."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler:
        for _ in range(PROFILED_STEPS):
            step()
    shares = dict.fromkeys(("sparse products", "dense products", *PARTS, "rest"), 0.0)
    events = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    for event in events:
        shares[_part(event.key)] += event.self_cpu_time_total / total
    return shares


def _part(op: str) -> str:
    if op.startswith(SPARSE_PRODUCTS):
        return "sparse products"
    if op in DENSE_PRODUCTS:
        return "dense products"
    return next((part for part, beginning in PARTS.items() if op.startswith(beginning)), "rest")
