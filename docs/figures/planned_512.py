"""Writes docs/results/fabric-planned.json: ResNet-50 at 90 % on `acf-512` whose own 32 MB are planned for the step.

    python docs/figures/planned_512.py

The published rows of `acf-512` let the least recently used tensor leave first (docs/results/fabric-steps.json).
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import acf
from acf.bench.fabric.comparison import play_step
from acf.bench.fabric.workloads import EXAMPLES, StepSpec
from acf.bench.provenance import commit_of
from acf.sim import spec

RESULTS = Path(__file__).parents[1] / "results"
NETWORK, SPARSITY = "resnet50", 0.9
FIELDS = ("network", "sparsity", "zeros", "seed", "step_utilization", "utilization", "step_seconds", "energy_j")
FIELDS += ("dram_bytes", "lost")


def row(zeros: Path | None) -> dict[str, Any]:
    """The step with synthetic zeros, or with those of a file."""
    step = StepSpec(NETWORK, EXAMPLES[NETWORK], SPARSITY, zeros=zeros)
    played = play_step(step, "acf-512", spec("acf-512", memory_plan="planned")).to_dict()
    return {name: played[name] for name in FIELDS}


def main() -> None:
    """Play both steps and write."""
    record = {
        "command": "python docs/figures/planned_512.py",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit_of(Path(acf.__file__).parent),
        "rows": [row(zeros) for zeros in (RESULTS / "zeros.json", None)],
    }
    (RESULTS / "fabric-planned.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
