"""Cycles in which gates clock each unit beside those that the lean fabric is charged for, on products in lockstep.

    python docs/figures/unit_gates.py

The fabric is `acf-512-lean` with two mesh rows and two mesh columns, compiled by Verilator; `acf.sim.fabric.activity`
counts what is charged. Then what the published steps would take if units were clocked as much longer than charged as
in these products, and if the units between lines and AXI, which have no clock gate, kept every register clocked that
has no enable. Writes docs/results/energy-unit-gates.json.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import acf
import acf.sim
from acf.bench.provenance import commit_of
from acf.cost.control import CONTROL_UNITS, pins_pj
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.lockstep.run import run_lockstep
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.activity import Activity, program_activity
from acf.sim.registry import spec_of_kind

RECORD = Path(__file__).parents[1] / "results" / "energy-unit-gates.json"
STEPS = RECORD.with_name("fabric-steps.json")
LEAN = "acf-512-lean"
SHOWN = (0.0, 0.9)
FABRIC = acf.sim.spec(LEAN, mesh_rows=2, mesh_columns=2)
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


def effects(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of published steps on the lean fabric: energy of tensor cores over it as charged, and as units are clocked."""
    rows = json.loads(STEPS.read_text(encoding="utf-8"))["data"]
    lean = [row for row in rows if row["beside"] == LEAN and row["seed"] == 0]
    found = []
    for row in (each for each in lean if each["machine"] == LEAN and each["sparsity"] in SHOWN):
        peer = next(each for each in lean if each["machine"] == "tensorcore" and _step(each) == _step(row))
        run = runs[0] if row["sparsity"] == 0.0 else runs[1]
        longer_j, ungated_j = further_j(row, run)
        found.append(
            _step(row)
            | {
                "charged": peer["energy_j"] / row["energy_j"],
                "as_clocked": peer["energy_j"] / (row["energy_j"] + longer_j),
                "and_ungated": peer["energy_j"] / (row["energy_j"] + longer_j + ungated_j),
            }
        )
    return found


def _step(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("network", "sparsity", "zeros")}


def further_j(row: dict[str, Any], run: dict[str, Any]) -> tuple[float, float]:
    """Joules that units take which are clocked longer than charged, and those of the units without a gate."""
    fabric = spec_of_kind(AdaptiveFabric, row["machine"])
    activity = Activity.of_counters(row["counters"])
    busy = activity.busy_cycles(fabric)
    longer_pj = 0.0
    for kind in ("cluster", "row controller", "column controller"):
        unit = CONTROL_UNITS[f"wide {kind}"]
        further = busy[kind] * (run["clocked"][kind] / run["charged"][kind] - 1)
        longer_pj += further * (unit.clock_pj(gated=False) + unit.switching_pj)
    device, lines = CONTROL_UNITS["wide device"], fabric.mesh_rows + fabric.mesh_columns
    idle = lines * activity.cycles - busy["device"]
    return longer_pj * 1e-12, idle * pins_pj(device.clock_pins - device.gated_flip_flops) * 1e-12


def main() -> None:
    """Run both products and write."""
    fabric = FabricSimulation.of(FabricSizes(FABRIC, command_depth=512, memory_flits=4096), "verilator", "-O1")
    runs = [compared(fabric, *case) for case in CASES]
    record = {
        "command": "python docs/figures/unit_gates.py",
        "commit": commit_of(Path(acf.__file__).parent),
        "date": datetime.now(UTC).date().isoformat(),
        "units": {"scu": FABRIC.scus, "cluster": FABRIC.clusters, "row controller": 2, "column controller": 2},
        "runs": runs,
        "effects": effects(runs),
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
