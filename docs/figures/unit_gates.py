"""Cycles in which gates clock each unit beside those that the lean fabric is charged for, on products in lockstep.

    python docs/figures/unit_gates.py osu018_stdcells.lib
    python docs/figures/unit_gates.py                       # only the steps, with the record's runs and pins

The fabric is `acf-512-lean` with two mesh rows and two mesh columns, compiled by Verilator; `acf.sim.fabric.activity`
counts what is charged. Then what the published steps would take if units were clocked as much longer than charged as
in these products; if besides the units between lines and AXI, which have no clock gate, kept every register clocked
that has no enable; and if besides all registers were clocked that Yosys leaves without a gate, because fewer than four
share their enable. Writes docs/results/energy-unit-gates.json.
"""

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import acf
import acf.sim
from acf.bench.provenance import commit_of
from acf.cost.control import CONTROL_UNITS, pins_pj
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.cluster import Cluster
from acf.rtl.design.fabric.controller import Controller
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.walker import Walker
from acf.rtl.design.index.index_controller import IndexController, IndexSizes
from acf.rtl.tools.gate_mapping import CLOCK_GATE, gate_commands, memory_bits
from acf.rtl.tools.hierarchy import isolate, parse_cell_counts, split_modules
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.verilog import to_rtlil
from acf.rtl.tools.yosys import run_yosys
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
TOP = "top"
STATISTICS = "tee -q -o statistics.json stat -json"
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


def pins_of(component: Any, liberty: Liberty) -> dict[str, int]:
    """Clock pins of a unit, and those whose clock is gated, without modules that are units of their own."""
    modules = split_modules(to_rtlil(component, TOP))
    found = {"clock_pins": 0, "gated_flip_flops": 0}
    for name in (each for each in modules if each.startswith(TOP)):
        commands = [*gate_commands(name, _memories(name, modules[name]), liberty, True, False), STATISTICS]
        inputs = {"top.il": isolate(modules, name), "cells.lib": liberty.text, "clock_gate.v": CLOCK_GATE}
        run = run_yosys(commands, inputs, ["statistics.json"])
        cells = parse_cell_counts(run.files["statistics.json"])[name]
        clocked = {cell for cell, each in liberty.cells.items() if any(pin.is_clock for pin in each.pins.values())}
        found["clock_pins"] += sum(count for cell, count in cells.items() if cell in clocked)
        gated = re.search(r"Converted (\d+) FFs", run.log)
        found["gated_flip_flops"] += int(gated[1]) if gated else 0
    return found


def _memories(name: str, text: str) -> list[tuple[str, str]]:
    return [(name, memory) for memory in memory_bits(text)]


def gated_pins(liberty: Liberty) -> dict[str, dict[str, int]]:
    """`pins_of` the units of the lean fabric that have a clock gate, but for lines."""
    sizes = FabricSizes(acf.sim.spec(LEAN), products=False)
    rows, columns = sizes.shape.mesh_rows, sizes.shape.mesh_columns
    units = {
        "walker": Walker(sizes),
        "cluster": Cluster(sizes, is_first_row=False, counts=False),
        "row controller": Controller(sizes, columns, serial=True),
        "column controller": Controller(sizes, rows, serial=False),
        "index controller": IndexController(IndexSizes(sizes, sharing=2)),
    }
    return {name: pins_of(unit, liberty) for name, unit in units.items()}


def effects(runs: list[dict[str, Any]], pins: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    """Of published steps on the lean fabric: energy of tensor cores over it as charged, and as units are clocked."""
    rows = json.loads(STEPS.read_text(encoding="utf-8"))["data"]
    lean = [row for row in rows if row["beside"] == LEAN and row["seed"] == 0]
    found = []
    for row in (each for each in lean if each["machine"] == LEAN and each["sparsity"] in SHOWN):
        peer = next(each for each in lean if each["machine"] == "tensorcore" and _step(each) == _step(row))
        run = runs[0] if row["sparsity"] == 0.0 else runs[1]
        longer_j, ungated_j = further_j(row, run)
        left_j = ungated_pins(pins) * pins_pj(1) * row["counters"]["cycles"] * 1e-12
        found.append(
            _step(row)
            | {
                "charged": peer["energy_j"] / row["energy_j"],
                "as_clocked": peer["energy_j"] / (row["energy_j"] + longer_j),
                "and_ungated": peer["energy_j"] / (row["energy_j"] + longer_j + ungated_j),
                "and_single": peer["energy_j"] / (row["energy_j"] + longer_j + ungated_j + left_j),
            }
        )
    return found


def ungated_pins(pins: dict[str, dict[str, int]]) -> int:
    """Clock pins of the whole lean fabric that no gate stops, in units that have one."""
    fabric = spec_of_kind(AdaptiveFabric, LEAN)
    counts = {
        "walker": fabric.scus,
        "cluster": fabric.clusters,
        "row controller": fabric.mesh_rows,
        "column controller": fabric.mesh_columns,
        "index controller": fabric.index_controllers,
    }
    return sum(counts[name] * (each["clock_pins"] - each["gated_flip_flops"]) for name, each in pins.items())


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


def measured(liberty: Path) -> dict[str, Any]:
    """The record without steps: both products in lockstep, and the pins of every unit."""
    fabric = FabricSimulation.of(FabricSizes(FABRIC, command_depth=512, memory_flits=4096), "verilator", "-O1")
    runs = [compared(fabric, *case) for case in CASES]
    return {
        "command": "python docs/figures/unit_gates.py osu018_stdcells.lib",
        "commit": commit_of(Path(acf.__file__).parent),
        "date": datetime.now(UTC).date().isoformat(),
        "units": {"scu": FABRIC.scus, "cluster": FABRIC.clusters, "row controller": 2, "column controller": 2},
        "runs": runs,
        "pins": gated_pins(Liberty.read(liberty)),
    }


def main() -> None:
    """Measure, or take what was measured from the record; then charge the published steps and write."""
    record = measured(Path(sys.argv[1])) if len(sys.argv) > 1 else json.loads(RECORD.read_text(encoding="utf-8"))
    charged = {"effects": effects(record["runs"], record["pins"]), "charged_at": commit_of(Path(acf.__file__).parent)}
    record = {name: value for name, value in record.items() if name not in charged} | charged
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
