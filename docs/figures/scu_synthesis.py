"""Measures an SCU of `acf-512-wide` and its port in gates, for docs/results/energy-synthesis.json.

    python docs/figures/scu_synthesis.py osu018_stdcells.lib

Area: every module mapped to the cells of the liberty file. Energy: clock pins and other gate inputs in a cycle of work,
from a product of 64 x 64 x 64 on one cluster in lockstep with the simulator (`acf rtl power --on acf-512-wide --scu
--clock-gating --size 64 --sparsity 0`), without zeros and with half of the serial operand zeros. Multipliers, adders
and a quarter of the sums' registers are the MAC's (`acf.cost.control.SUMS_OF_MACS`); performance counters are charged
apart. `acf.cost.control` is to be brought in line by hand: tests/cost/test_control.py compares both.
"""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import acf
from acf.bench.provenance import commit_of
from acf.cost.control import SUMS_OF_MACS, ControlUnit
from acf.rtl.design.arithmetic.number import NUMBER
from acf.rtl.design.fabric.block_datapath import BlockDatapath
from acf.rtl.design.fabric.counters import StallCounters
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.store_port import StorePort
from acf.rtl.design.fabric.walker import Walker
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.area import measure_area
from acf.rtl.verify.fabric_power import measure_scu_power
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.workloads import Layer
from acf.sim.fabric import AdaptiveFabric
from acf.sim.registry import spec_of_kind

RECORD = Path(__file__).parents[1] / "results" / "energy-synthesis.json"
CONFIG, SIZE, ZEROS = "acf-512-wide", 64, (0.0, 0.5)
UNITS = {
    "scu": ("datapath", "walker", "block_rows", "row_sums"),
    "port": ("port", "few_bits", "value_group", "group_value"),
}
"""Modules of each unit, by how their names begin."""


def areas(liberty: Liberty) -> dict[str, Any]:
    """Gate equivalents, clock pins and gated flip-flops by module."""
    sizes = FabricSizes(spec_of_kind(AdaptiveFabric, CONFIG), products=False)
    parts = {
        "datapath": BlockDatapath(sizes),
        "walker": Walker(sizes),
        "port": StorePort(sizes),
        "counters": StallCounters(),
    }
    found: dict[str, Any] = {}
    for name, component in parts.items():
        found |= {key: asdict(area) for key, area in measure_area(component, name, liberty, True).modules.items()}
    return found


def cycles() -> dict[str, Any]:
    """Gate inputs that switch in a cycle of work, clock nets with them and alone, by module; for all zeros."""
    products = [Product.of_layer(Layer(SIZE, SIZE, SIZE, zeros, 0.0), 16) for zeros in ZEROS]
    reports = measure_scu_power(spec_of_kind(AdaptiveFabric, CONFIG), products, clock_gating=True)
    return {
        str(zeros): {"cycles_of_work": report.cycles, "modules": report.modules, "clocks": report.clocks}
        for zeros, report in zip(ZEROS, reports, strict=True)
    }


def charges(modules: dict[str, Any], runs: dict[str, Any]) -> list[dict[str, Any]]:
    """What is charged for SCU and port, by zeros."""
    lanes = spec_of_kind(AdaptiveFabric, CONFIG).lanes
    rows = []
    for unit, names in UNITS.items():
        own = modules["port"] if unit == "port" else _sum(modules["datapath"], modules["walker"])
        pins, gated, gates = own["clock_pins"], own["gated_flip_flops"], own["gate_equivalents"]
        arithmetic = [modules[f"datapath_{part}_0"]["gate_equivalents"] for part in ("adder", "multiplier")]
        of_macs = round(lanes * NUMBER.size * SUMS_OF_MACS) if unit == "scu" else 0
        pins, gated = pins - of_macs, gated - of_macs
        gates -= lanes * sum(arithmetic) if unit == "scu" else 0
        for zeros, run in runs.items():
            inside = [name for name in run["modules"] if name.startswith(names)]
            clocked = sum(run["clocks"][name] for name in inside) / 2
            switched = sum(run["modules"][name] for name in inside) - 2 * clocked
            clocked -= of_macs
            loaded = 1 - (pins - clocked) / gated
            charged = ControlUnit(gates, pins, gated, loaded, switched, "")
            rows.append(
                {"config": CONFIG, "unit": unit, "zeros": float(zeros), "gate_equivalents": round(gates, 1)}
                | {"clock_pins": pins, "gated_flip_flops": gated, "clocked_pins": round(clocked, 1)}
                | {"loaded": round(loaded, 5), "switched": round(switched, 1)}
                | {"clock_pj": round(charged.clock_pj(True), 2), "switching_pj": round(charged.switching_pj, 2)}
            )
    return rows


def _sum(*modules: dict[str, Any]) -> dict[str, Any]:
    return {name: sum(module[name] for module in modules) for name in modules[0]}


def main(library: Path) -> None:
    """Measure and write."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    modules = areas(Liberty.read(library))
    runs = cycles()
    made = {
        "command": f"python docs/figures/scu_synthesis.py {library.name}",
        "commit": commit_of(Path(acf.__file__).parent),
        "date": datetime.now(UTC).date().isoformat(),
    }
    record["area"]["SCU of acf-512-wide"] = made | {"modules": modules}
    record["power"]["SCU of acf-512-wide"] = made | {"zeros": runs}
    record["scu_cycles"] = charges(modules, runs)
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
