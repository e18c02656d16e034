"""Writes docs/results/energy-baseline.json: dense tensor cores that reuse operands better, beside `acf-512-lean`.

    python docs/figures/baseline_reuse.py

In `tensorcore-512` a read of on-chip memory serves four of its eight cores (``multicast``). Here it serves all eight,
and, as the bound of every reuse in scratchpads, operands come from scratchpads alone: what reads of on-chip memory take
is inversely proportional to ``multicast``, so twice the energy with eight less that with four is the energy without.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import acf
from acf.bench.fabric.comparison import PEERS, play_step
from acf.bench.fabric.workloads import EXAMPLES, StepSpec
from acf.bench.provenance import commit_of
from acf.sim import spec

RESULTS = Path(__file__).parents[1] / "results"
FABRIC = "acf-512-lean"
PEER = PEERS[FABRIC]["tensorcore"]
STEPS = (("resnet50", 0.9, None), ("resnet50", 0.9, RESULTS / "zeros.json"), ("resnet50", 0.0, None))
STEPS += (("transformer-base", 0.9, None), ("transformer-base", 0.0, None))
EVERY_CORE = 8


def energy_j(network: str, sparsity: float, zeros: Path | None, multicast: int) -> float:
    """Joules of the step on tensor cores whose reads of on-chip memory serve so many cores."""
    machine = spec("tensorcore-512", multicast=multicast, on_chip_bytes=PEER.on_chip_bytes, memory_plan="planned")
    step = StepSpec(network, EXAMPLES[network], sparsity, zeros=zeros)
    return play_step(step, "tensorcore", machine).energy_j


def row(network: str, sparsity: float, zeros: Path | None) -> dict[str, Any]:
    """Joules by cores that share a read; ``scratchpads``: without reads of on-chip memory."""
    shared, all_share = (energy_j(network, sparsity, zeros, cores) for cores in (4, EVERY_CORE))
    return {
        "network": network,
        "sparsity": sparsity,
        "zeros": zeros.name if zeros else "synthetic",
        "four_cores_j": shared,
        "all_cores_j": all_share,
        "scratchpads_j": 2 * all_share - shared,
    }


def main() -> None:
    """Play every step and write."""
    record = {
        "command": "python docs/figures/baseline_reuse.py",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit_of(Path(acf.__file__).parent),
        "rows": [row(*step) for step in STEPS],
    }
    (RESULTS / "energy-baseline.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
