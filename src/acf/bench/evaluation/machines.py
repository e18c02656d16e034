"""The traced steps of the runs on simulated machines."""

from collections.abc import Mapping, Sequence
from typing import Any

from acf.bench import OnProgress
from acf.bench.evaluation.ablation import FABRIC, INTERCONNECTS
from acf.bench.evaluation.run import STAGES, MachineStep
from acf.bench.evaluation.store import EvaluationStore
from acf.trace import Trace

MACHINES = (
    "tensorcore-512",
    "tensordash-512",
    "spartann",
    "sat",
    "acf-512",
    "acf-512-wide",
    "acf-512-lean",
    "acf-h200",
    "gpu-v100",
    "gpu-h200",
    "gpu-v100-tensordash",
    "gpu-h200-tensordash",
)
"""What the traced steps are played on: fabrics, published accelerators, and rooflines of GPUs."""


def check_machines(names: Sequence[str]) -> tuple[str, ...]:
    """Refuse a name that no architecture has, before anything is trained."""
    from acf.sim.registry import find_architecture  # a machine that only trains may lack the simulator

    for name in names:
        find_architecture(name)
    return tuple(dict.fromkeys(names))


def _architecture(name: str) -> Any:
    """The machine of that name, or the fabric with another interconnect."""
    from acf.sim.registry import spec

    fields = INTERCONNECTS.get(name)
    return spec(FABRIC, name=name, **fields) if fields else name


def simulate_traces(
    store: EvaluationStore, machines: Sequence[str], on_progress: OnProgress, only: Mapping[str, str] | None = None
) -> None:
    """Play every kept trace of finished runs on ``machines``; what was played before is not repeated.

    ``only`` names machines that play the traces of a single system.
    """
    if not machines:
        return
    from acf.sim import simulate

    systems = dict.fromkeys(run.system for run in store.runs())
    known = {(step.system, step.stage, step.machine) for step in store.machine_steps()}
    wanted = [
        (system, stage, machine)
        for system in systems
        for stage in STAGES
        for machine in machines
        if (system, stage, machine) not in known
        and (only or {}).get(machine, system) == system
        and store.trace(system, stage).exists()
    ]
    examples = float(store.fact("captured_examples") or 1.0)
    loaded: tuple[tuple[str, str], Trace] | None = None
    for number, (system, stage, machine) in enumerate(wanted):
        on_progress(f"{system}, {stage}, on {machine}", number / len(wanted))
        if loaded is None or loaded[0] != (system, stage):
            loaded = (system, stage), Trace.load(store.trace(system, stage))
        result = simulate(loaded[1], _architecture(machine))
        store.add_machine_step(
            MachineStep(
                system=system,
                stage=stage,
                machine=machine,
                examples=examples,
                step_seconds=result.step_seconds,
                energy_j=result.energy_j,
                utilization=result.step_utilization,
                notes=result.notes,
            )
        )
