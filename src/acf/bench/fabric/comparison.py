"""Whole training steps on a fabric and on machines of equal peak: throughput, energy, utilisation, losses by cause."""

import resource
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from acf.bench import OnProgress
from acf.bench.fabric.workloads import EXAMPLES, StepSpec, layer_traces, step_traces
from acf.bench.traces import TENSORCORE_512
from acf.errors import ArchitectureError
from acf.options import option
from acf.sim import Result, simulate_parts, spec
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.algorithm1 import UpdateCost, update_cost
from acf.sim.registry import spec_of_kind

_LARGE = {"dram_pin_bytes_per_s": 1024e9, "dram_kind": "hbm2", "control_energy": "synthesised"}
_HBM3E = _LARGE | {"dram_pin_bytes_per_s": 4.8e12, "dram_sustained_share": 0.875}
_LEAN_MEMORY = {"on_chip_bytes": spec("acf-512-lean").on_chip_bytes, "memory_plan": "planned"}

PEERS: dict[str, dict[str, AcceleratorSpec]] = {
    "acf-512": {"tensorcore": TENSORCORE_512, "tensordash": spec("tensordash-512")},
    "acf-512-wide": {"tensorcore": TENSORCORE_512, "tensordash": spec("tensordash-512")},
    "acf-512-lean": {
        "tensorcore": spec("tensorcore-512", **_LEAN_MEMORY),
        "tensordash": spec("tensordash-512", **_LEAN_MEMORY),
    },
    "acf-16384": {"tensorcore": spec("tensorcore", **_LARGE), "tensordash": spec("tensordash", **_LARGE)},
    "acf-16384-hbm3e": {"tensorcore": spec("tensorcore", **_HBM3E), "tensordash": spec("tensordash", **_HBM3E)},
    "acf-h200": {},
}
"""For each fabric, machines with the same MACs, clock and DRAM, and with `acf-512-lean` the same on-chip memory and its
plan; `acf-h200` has those of `gpu-h200`, one of `GPUS`."""

GPUS = ("gpu-v100", "gpu-h200")
"""Rooflines of whole cards, for scale: their peaks differ from the fabric's."""


@dataclass(frozen=True)
class ComparisonSpec:
    """Steps of one network at several sparsities, and the machines to play them on: ``on`` and its peers of `PEERS`."""

    network: str = option("transformer-base", "resnet50 or transformer-base.")
    examples: int = option(0, "Images or tokens of a step; 0: 32 images, 4096 tokens.")
    sparsities: tuple[float, ...] = option((0.0, 0.5, 0.75, 0.9), "Shares of blocks to drop.", flags=("--sparsity",))
    block: int = option(StepSpec.block, "Side of a block.")
    on: str = option("acf-512", "acf-512, acf-512-wide, acf-512-lean, acf-16384, acf-16384-hbm3e or acf-h200.")
    gpus: bool = option(True, "Also the GPU rooflines.")
    gradient_zeros: str = option(
        "layers",
        "Zeros of output gradients at a ReLU: a fraction; layers: 0.5 right before one, 0 behind batch norm.",
    )
    sequence: int = option(StepSpec.sequence, "Transformer-Base: tokens of a sentence.", min=1)
    projection: bool = option(False, "Transformer-Base: also the dense projection onto the vocabulary and its loss.")
    update: bool = option(True, "Also what Algorithm 1 costs on the fabric.")
    seed: int = option(StepSpec.seed, "Seed of blocks and zeros.")
    zeros: Path | None = option(  # noqa: RUF009
        None, "JSON with the measured zeros of every layer, as acf bench zeros --out writes; without: synthetic ones."
    )

    @property
    def steps(self) -> list[StepSpec]:
        """One step for each sparsity."""
        examples = self.examples or EXAMPLES.get(self.network, 1)
        step = StepSpec(
            self.network,
            examples,
            0.0,
            self.block,
            seed=self.seed,
            gradient_zeros=self._gradient_zeros,
            sequence=self.sequence,
            projection=self.projection,
            zeros=self.zeros,
        )
        return [replace(step, sparsity=sparsity) for sparsity in self.sparsities]

    @property
    def _gradient_zeros(self) -> float | None:
        if self.gradient_zeros == "layers":
            return None
        try:
            return float(self.gradient_zeros)
        except ValueError:
            raise ArchitectureError(
                f"gradient_zeros {self.gradient_zeros!r} is neither a fraction nor layers; give one like 0.5"
            ) from None


@dataclass(frozen=True)
class PlayedStep:
    """One step on one machine.

    ``seconds``, ``utilization`` and ``products_energy_j`` are of the matrix products; ``step_seconds``,
    ``step_utilization`` and ``energy_j`` of the whole step, between the bounds of `acf.sim.StepTime`. ``lost``: share
    of the whole step's MAC slots by cause, "vector" where products wait for vector work; with ``step_utilization`` they
    add up to 1. ``update``: Algorithm 1 on a fabric, `UpdateCost` and its share of a run. ``host_seconds`` is the time
    that simulation took. ``zeros`` names the file of measured zeros, or says "synthetic"; ``seed`` is that of blocks
    and zeros. ``counters``: what a fabric's control is charged for, see `acf.sim.fabric.activity`.
    """

    network: str
    sparsity: float
    machine: str
    cycles: int
    seconds: float
    step_seconds: float
    step_seconds_bounds: tuple[float, float]
    examples_per_s: float
    energy_j: float
    products_energy_j: float
    energy_breakdown_j: dict[str, float]
    dram_bytes: int
    utilization: float
    step_utilization: float
    lost: dict[str, float]
    by_op: tuple[dict[str, Any], ...]
    host_seconds: float
    host_peak_bytes: int
    update: dict[str, Any] | None = None
    zeros: str = "synthetic"
    seed: int = 0
    counters: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def play_step(step: StepSpec, machine: str, spec: AcceleratorSpec | str) -> PlayedStep:
    """Simulate a whole step with one layer in memory at a time."""
    begin = time.perf_counter()
    result = simulate_parts(step_traces(step), spec)
    host_seconds = time.perf_counter() - begin
    return _played(step, machine, result, host_seconds)


def play_on_fabric(step: StepSpec, name: str, update: bool = True) -> PlayedStep:
    """`play_step` on a fabric, and with ``update`` what Algorithm 1 costs it."""
    fabric = spec_of_kind(AdaptiveFabric, name)
    begin = time.perf_counter()
    result = simulate_parts(step_traces(step), fabric)
    cost = update_cost(layer_traces(step), fabric, result) if update else None
    played = _played(step, name, result, time.perf_counter() - begin)
    return replace(played, update=_update(cost, result) if cost else None)


def _update(cost: UpdateCost, result: Result) -> dict[str, Any]:
    return cost.to_dict() | {"share_of_run": cost.share_of_run(result.step_cycles)}


def _played(step: StepSpec, machine: str, result: Result, host_seconds: float) -> PlayedStep:
    slots = max(1, result.step_cycles * result.macs_per_cycle)
    lost = Counter({"vector": (result.step_cycles - result.cycles) * result.macs_per_cycle})
    for op in result.ops:
        lost.update(op.lost_slots)
    bounds = (result.step.least_cycles, result.step.most_cycles) if result.step else (result.cycles, result.cycles)
    return PlayedStep(
        network=step.network,
        sparsity=step.sparsity,
        machine=machine,
        cycles=result.cycles,
        seconds=result.seconds,
        step_seconds=result.step_seconds,
        step_seconds_bounds=(bounds[0] / result.clock_hz, bounds[1] / result.clock_hz),
        examples_per_s=step.examples / result.step_seconds,
        energy_j=result.energy_j,
        products_energy_j=result.products_energy_j,
        energy_breakdown_j=result.energy_breakdown_j,
        dram_bytes=result.dram_bytes,
        utilization=result.utilization,
        step_utilization=result.step_utilization,
        lost={reason: count / slots for reason, count in lost.items() if count},
        by_op=_by_op(result),
        host_seconds=host_seconds,
        host_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        zeros=step.zeros.name if step.zeros else "synthetic",
        seed=step.seed,
        counters=result.counters,
    )


def _by_op(result: Result) -> tuple[dict[str, Any], ...]:
    """Utilisation of every product, and the largest cause of its losses."""
    rows = []
    for op in result.ops:
        slots = op.cycles * result.macs_per_cycle
        reason, count = max(op.lost_slots.items(), key=lambda item: item[1], default=("", 0))
        rows.append(
            {
                "name": op.name,
                "phase": op.phase,
                "cycles": op.cycles,
                "utilization": op.effectual_macs / slots if slots else 0.0,
                "most_lost_to": reason if count else "",
                "most_lost": count / slots if slots else 0.0,
            }
        )
    return tuple(rows)


def compare_steps(
    steps: Sequence[StepSpec], fabric: str, gpus: bool, on_progress: OnProgress, update: bool = True
) -> list[PlayedStep]:
    """Simulate every step on ``fabric``, on its peers and, with ``gpus``, on the GPU rooflines.

    ``update``: also what Algorithm 1 costs on the fabric.
    """
    if fabric not in PEERS:
        raise ArchitectureError(f"fabric {fabric!r} is not one of {', '.join(PEERS)}; use one of these names")
    machines: dict[str, AcceleratorSpec | str] = {fabric: fabric, **PEERS[fabric]}
    if gpus:
        machines |= {name: name for name in GPUS}
    played = []
    for index, step in enumerate(steps):
        for place, (name, machine) in enumerate(machines.items()):
            on_progress(f"{step.label} on {name}", (index + place / len(machines)) / len(steps))
            on_fabric = name == fabric
            played.append(play_on_fabric(step, name, update) if on_fabric else play_step(step, name, machine))
    on_progress("done", 1.0)
    return played
