"""Whole training steps on a fabric and on machines of equal peak: throughput, energy, utilisation, losses by cause."""

import resource
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from acf.bench import OnProgress
from acf.bench.fabric.workloads import EXAMPLES, StepSpec, step_traces
from acf.bench.traces import TENSORCORE_512
from acf.errors import ArchitectureError
from acf.options import option
from acf.sim import Result, simulate_parts, spec
from acf.sim.accelerator import AcceleratorSpec

_LARGE = {"dram_pin_bytes_per_s": 1024e9, "dram_kind": "hbm2", "control_energy": "synthesised"}

PEERS: dict[str, dict[str, AcceleratorSpec]] = {
    "acf-512": {"tensorcore": TENSORCORE_512, "tensordash": spec("tensordash-512")},
    "acf-512-wide": {"tensorcore": TENSORCORE_512, "tensordash": spec("tensordash-512")},
    "acf-16384": {"tensorcore": spec("tensorcore", **_LARGE), "tensordash": spec("tensordash", **_LARGE)},
}
"""For each fabric, machines with the same MACs, clock and DRAM."""

GPUS = ("gpu-v100", "gpu-h200")
"""Rooflines of whole cards, for scale: their peaks differ from the fabric's."""


@dataclass(frozen=True)
class ComparisonSpec:
    """Steps of one network at several sparsities, and the machines to play them on: ``on`` and its peers of `PEERS`."""

    network: str = option("transformer-base", "resnet50 or transformer-base.")
    examples: int = option(0, "Images or tokens of a step; 0: 32 images, 4096 tokens.")
    sparsities: tuple[float, ...] = option((0.0, 0.5, 0.75, 0.9), "Shares of blocks to drop.")
    block: int = option(StepSpec.block, "Side of a block.")
    on: str = option("acf-512", "acf-512, acf-512-wide or acf-16384.")
    gpus: bool = option(True, "Also the GPU rooflines.")

    @property
    def steps(self) -> list[StepSpec]:
        """One step for each sparsity."""
        examples = self.examples or EXAMPLES.get(self.network, 1)
        return [StepSpec(self.network, examples, sparsity, self.block) for sparsity in self.sparsities]


@dataclass(frozen=True)
class PlayedStep:
    """One step on one machine. ``lost``: fraction of MAC slots by cause; with ``utilization`` they add up to 1.

    ``seconds`` are of the matrix products, ``step_seconds`` of the whole step where the machine models the rest.
    ``host_seconds`` is the time that simulation took.
    """

    network: str
    sparsity: float
    machine: str
    cycles: int
    seconds: float
    step_seconds: float
    examples_per_s: float
    energy_j: float
    energy_breakdown_j: dict[str, float]
    dram_bytes: int
    utilization: float
    lost: dict[str, float]
    by_op: tuple[dict[str, Any], ...]
    host_seconds: float
    host_peak_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def play_step(step: StepSpec, machine: str, spec: AcceleratorSpec | str) -> PlayedStep:
    """Simulate a whole step with one layer in memory at a time."""
    begin = time.perf_counter()
    result = simulate_parts(step_traces(step), spec)
    host_seconds = time.perf_counter() - begin
    slots = max(1, result.cycles * result.macs_per_cycle)
    lost: Counter[str] = Counter()
    for op in result.ops:
        lost.update(op.lost_slots)
    return PlayedStep(
        network=step.network,
        sparsity=step.sparsity,
        machine=machine,
        cycles=result.cycles,
        seconds=result.seconds,
        step_seconds=result.step_cycles / result.clock_hz,
        examples_per_s=step.examples / result.seconds,
        energy_j=result.energy_j,
        energy_breakdown_j=result.energy_breakdown_j,
        dram_bytes=result.dram_bytes,
        utilization=result.utilization,
        lost={reason: count / slots for reason, count in lost.items() if count},
        by_op=_by_op(result),
        host_seconds=host_seconds,
        host_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
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


def compare_steps(steps: Sequence[StepSpec], fabric: str, gpus: bool, on_progress: OnProgress) -> list[PlayedStep]:
    """Simulate every step on ``fabric``, on its peers and, with ``gpus``, on the GPU rooflines."""
    if fabric not in PEERS:
        raise ArchitectureError(f"fabric {fabric!r} is not one of {', '.join(PEERS)}; use one of these names")
    machines: dict[str, AcceleratorSpec | str] = {fabric: fabric, **PEERS[fabric]}
    if gpus:
        machines |= {name: name for name in GPUS}
    played = []
    for index, step in enumerate(steps):
        for place, (name, machine) in enumerate(machines.items()):
            on_progress(f"{step.label} on {name}", (index + place / len(machines)) / len(steps))
            played.append(play_step(step, name, machine))
    on_progress("done", 1.0)
    return played
