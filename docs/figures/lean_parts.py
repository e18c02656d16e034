"""Writes docs/results/energy-lean.json: what each part of `acf-512-lean` saves, and what a planned memory saves.

    python docs/figures/lean_parts.py
    python docs/figures/lean_parts.py --memory              # only the memory, with the record's parts

Parts: the products of sampled layers on the lean fabric, and with one part as in `acf-512-wide`. Memory: DRAM traffic
of the whole ResNet-50 step at 90 % on `tensorcore-512`, by plan and size of its on-chip memory.
"""

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import acf
from acf.bench.fabric.workloads import StepSpec, layer_traces, step_traces
from acf.bench.provenance import commit_of
from acf.sim import simulate, simulate_parts, spec

RECORD = Path(__file__).parents[1] / "results" / "energy-lean.json"
SAMPLES = {
    "resnet50": (16, ("layer1.1.", "layer2.1.", "layer3.1.", "layer4.1.")),
    "transformer-base": (2048, ("encoder.0",)),
}
PARTS = {
    "all of them": {},
    "without clock gates of units": {"clock_gating": "enables"},
    "with stall counters": {"stall_counters": "all"},
    "with one bank for each memory of a cluster": {"local_bank_bytes": 1 << 20},
    "with 64 slots for parallel tiles": {"parallel_slots": 64},
}
MADE = {"date": datetime.now(UTC).date().isoformat(), "commit": commit_of(Path(acf.__file__).parent)}
MEGABYTES = {"lru": (24, 32, 48, 64, 128), "planned": (24, 32, 48, 64, 128)}


def products_j(network: str, sparsity: float, changes: dict) -> dict[str, float]:
    examples, prefixes = SAMPLES[network]
    machine = spec("acf-512-lean", memory_model="rate", **changes)
    energy: Counter[str] = Counter()
    for trace in layer_traces(StepSpec(network, examples, sparsity), prefixes):
        for op in simulate(trace, machine).ops:
            energy.update(op.energy_j)
    return dict(energy)


def dram_bytes(plan: str, megabytes: int) -> int:
    machine = spec("tensorcore-512", memory_plan=plan, on_chip_bytes=megabytes << 20)
    return simulate_parts(step_traces(StepSpec("resnet50", 32, 0.9)), machine).dram_bytes


def parts() -> dict[str, Any]:
    """The record without memory."""
    found = [
        {"network": network, "sparsity": sparsity, "part": part, "energy_j": products_j(network, sparsity, changes)}
        for network, sparsity in (("resnet50", 0.9), ("resnet50", 0.0), ("transformer-base", 0.0))
        for part, changes in PARTS.items()
    ]
    return {"command": "python docs/figures/lean_parts.py"} | MADE | {"parts": found}


def memory() -> dict[str, Any]:
    """DRAM traffic by plan and size, with the commit and the day it was played at."""
    found = [
        {"plan": plan, "megabytes": size, "dram_bytes": dram_bytes(plan, size)}
        for plan, sizes in MEGABYTES.items()
        for size in sizes
    ]
    return {"memory_at": MADE, "memory": found}


def main() -> None:
    """Play both, or the memory alone, and write."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if sys.argv[1:] == ["--memory"] else parts()
    record |= memory()
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
