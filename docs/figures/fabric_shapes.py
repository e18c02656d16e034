"""Writes docs/results/energy-shapes.json: how well fabrics of 512 MACs in other shapes use them.

    python docs/figures/fabric_shapes.py [SHAPE ...]

A shape is clusters x SCUs of a cluster x lanes of an SCU. Small training steps at 90 % (ResNet-50 with 4 images,
Transformer-Base with 1,024 tokens, synthetic zeros, seed 0) are played as `acf bench fabric` plays them. With names of
`SHAPES` these alone are played, and the other rows of the record stay, each with the commit and the day of its own.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import acf
from acf.bench.fabric.comparison import play_step
from acf.bench.fabric.workloads import StepSpec
from acf.bench.provenance import commit_of
from acf.files import write_whole
from acf.sim import spec
from acf.sim.accelerator import AcceleratorSpec

RECORD = Path(__file__).parents[1] / "results" / "energy-shapes.json"
EXAMPLES = {"resnet50": 4, "transformer-base": 1024}
SPARSITY = 0.9
COMMIT = commit_of(Path(acf.__file__).parent)


def four_lanes(rows: int, columns: int, scus: int, lanes: int) -> AcceleratorSpec:
    """`acf-512-lanes4` in another shape; an SCU holds the sums of all rows of a tile that it owns."""
    return spec(
        "acf-512-lanes4",
        mesh_rows=rows,
        mesh_columns=columns,
        scus_per_cluster=scus,
        lanes=lanes,
        held_rows=spec("acf-512-lanes4").tile // scus,
    )


SHAPES: dict[str, AcceleratorSpec] = {
    "8 x 8 x 8 x 1, both operands skipped (`acf-512`)": spec("acf-512"),
    "8 x 8 x 2 x 4": four_lanes(8, 8, 2, 4),
    "4 x 8 x 8 x 2": four_lanes(4, 8, 8, 2),
    "4 x 8 x 4 x 4": four_lanes(4, 8, 4, 4),
    "4 x 4 x 8 x 4 (`acf-512-lanes4`)": spec("acf-512-lanes4"),
    "4 x 4 x 4 x 8": four_lanes(4, 4, 4, 8),
    "4 x 4 x 2 x 16, links of 64 bytes (`acf-512-wide`)": spec("acf-512-wide"),
}
"""Machines by shape. Links have 32 bytes, and zeros of the serial operand are skipped, where nothing else is said."""


def played(shape: str, network: str) -> dict[str, Any]:
    """One row of the record."""
    step = play_step(StepSpec(network, EXAMPLES[network], SPARSITY), shape, SHAPES[shape])
    kept = ("cycles", "step_seconds", "utilization", "step_utilization", "lost")
    figures = {name: getattr(step, name) for name in kept}
    made = {"commit": COMMIT, "date": datetime.now(UTC).date().isoformat()}
    return {"shape": shape, "network": network, "examples": EXAMPLES[network], "sparsity": SPARSITY} | figures | made


def main(shapes: list[str]) -> None:
    """Play and write after every row."""
    rows = {(row["shape"], row["network"]): row for row in _rows() if row["shape"] not in shapes}
    for shape in shapes:
        for network in EXAMPLES:
            rows[shape, network] = played(shape, network)
            _write([rows[place] for place in ((each, of) for each in SHAPES for of in EXAMPLES) if place in rows])


def _rows() -> list[dict[str, Any]]:
    return json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.exists() else []


def _write(rows: list[dict[str, Any]]) -> None:
    record = {
        "command": "python docs/figures/fabric_shapes.py",
        "date": max(row["date"] for row in rows),
        "commit": ", ".join(sorted({row["commit"] for row in rows})),
        "rows": rows,
    }
    write_whole(RECORD, (json.dumps(record, indent=1) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:] or list(SHAPES))
