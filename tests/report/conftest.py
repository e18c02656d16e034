"""A small study: two workloads on three architectures, and a training run for each workload."""

import pytest

from acf.metrics import TrainingRecord
from acf.sim.result import OpResult, Result

MACHINES = {"tensordash": (500e6, 65, 16), "procrustes": (1e9, 45, 32), "mesh-8x8": (800e6, 28, 64)}
DENSITIES = {"dense": 1.0, "sparse 90 %": 0.1}
LAYERS = ("conv1", "conv2", "conv3", "fc1", "fc2")
PHASES = ("forward", "input_grad", "weight_grad")


def operation(layer: str, phase: str, cycles: int, macs_per_cycle: int) -> OpResult:
    slots = cycles * macs_per_cycle
    effectual = slots // 2
    memory = slots // 4
    return OpResult(
        name=layer,
        phase=phase,
        cycles=cycles,
        dense_macs=2 * slots,
        effectual_macs=effectual,
        lost_slots={"memory": memory, "sync": slots - effectual - memory},
        dram_bytes=1024 * cycles,
        energy_j={"mac": effectual * 1e-12, "dram": cycles * 2e-9},
    )


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [
        Result(
            architecture=name,
            workload=workload,
            clock_hz=clock_hz,
            technology_nm=node_nm,
            macs_per_cycle=macs,
            ops=tuple(
                operation(layer, phase, int(density * (1000 + 100 * i + 30 * j)), macs)
                for i, layer in enumerate(LAYERS)
                for j, phase in enumerate(PHASES)
            ),
            notes=(f"{name}: energy per MAC as published at {node_nm} nm",),
        )
        for workload, density in DENSITIES.items()
        for name, (clock_hz, node_nm, macs) in MACHINES.items()
    ]


@pytest.fixture(scope="module")
def training() -> list[TrainingRecord]:
    return [
        TrainingRecord(
            label=label,
            test_accuracy=0.95 - 0.01 * index,
            weight_sparsity=1 - density,
            losses=tuple(2 / (1 + step / 50) for step in range(200)),
            test_accuracies=((100, 0.8), (200, 0.95 - 0.01 * index)),
            moved_blocks=((50, 12), (100, 7)) if density < 1 else (),
            seconds=12.5,
        )
        for index, (label, density) in enumerate(DENSITIES.items())
    ]
