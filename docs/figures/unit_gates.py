"""Cycles in which gates clock each unit beside those that the lean fabric is charged for, on products in lockstep.

    python docs/figures/unit_gates.py

The fabric is `acf-512-lean` with two mesh rows and two mesh columns, compiled by Verilator; `acf.sim.fabric.activity`
counts what is charged. Writes ``unit_gates`` of docs/results/energy-synthesis.json.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import acf
import acf.sim
from acf.bench.provenance import commit_of
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.lockstep.run import run_lockstep
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.activity import Activity, program_activity

RECORD = Path(__file__).parents[1] / "results" / "energy-synthesis.json"
FABRIC = acf.sim.spec("acf-512-lean", mesh_rows=2, mesh_columns=2)
SIDE = 128
CASES = ((0.0, 0.0), (0.5, 0.9))
"""Zeros of the streamed operand, share of absent blocks."""


def product(zeros: float, sparsity: float) -> Product:
    """``SIDE`` x ``SIDE`` x ``SIDE``, values and blocks drawn at random."""
    rng = np.random.default_rng(0)
    tile = FABRIC.tile
    present = rng.random((SIDE // tile, SIDE // tile)) >= sparsity
    a = rng.standard_normal((SIDE, SIDE)) * (rng.random((SIDE, SIDE)) >= zeros)
    return Product(bf16_bits(a), bf16_bits(rng.standard_normal((SIDE, SIDE)) * np.kron(present, np.ones((tile, tile)))))


def compared(fabric: FabricSimulation, zeros: float, sparsity: float) -> dict[str, Any]:
    """Unit-cycles by kind of unit: clocked in gates, and charged."""
    assert isinstance(FABRIC, AdaptiveFabric)
    both = run_lockstep(product(zeros, sparsity), fabric)
    if both.divergence:
        raise SystemExit(f"gates and model differ: {both.divergence}")
    worked = sum(
        end - begin
        for begins, ends in zip(both.model.events["begin"], both.model.events["end"], strict=True)
        for begin, end in zip(begins, ends, strict=True)
    )
    activity = Activity(both.fabric.cycles, work_cycles=worked, **program_activity(FABRIC, both.program))
    charged, awake = activity.busy_cycles(FABRIC), both.fabric.awake_cycles
    rows = FABRIC.mesh_rows
    clocked = {
        "scu": sum(awake["SCU"]),
        "cluster": sum(awake["cluster"]),
        "row controller": sum(awake["line"][:rows]),
        "column controller": sum(awake["line"][rows:]),
    }
    return {
        "zeros": zeros,
        "sparsity": sparsity,
        "cycles": both.fabric.cycles,
        "is_split_k": both.program.reduces,
        "clocked": clocked,
        "charged": {name: charged[name] for name in clocked},
    }


def main() -> None:
    """Run both products and write."""
    fabric = FabricSimulation.of(FabricSizes(FABRIC, command_depth=512, memory_flits=4096), "verilator", "-O1")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    record["unit_gates"] = {
        "command": "python docs/figures/unit_gates.py",
        "commit": commit_of(Path(acf.__file__).parent),
        "date": datetime.now(UTC).date().isoformat(),
        "units": {"scu": FABRIC.scus, "cluster": FABRIC.clusters, "row controller": 2, "column controller": 2},
        "runs": [compared(fabric, *case) for case in CASES],
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
