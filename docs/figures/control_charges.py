"""Writes docs/results/energy-charges.json: what control, clock and memories are charged, as `acf.cost` has it today.

    python docs/figures/control_charges.py

Nothing is measured here: the synthesis behind it is docs/results/energy-synthesis.json. The record gives the page its
table of units, the picojoules that follow from it, and areas.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import acf
from acf.bench.provenance import commit_of
from acf.cost import MAC_65NM_PJ, REGISTER_65NM_PJ_PER_BYTE, sram_pj_per_byte
from acf.cost.control import CONTROL_UNITS, FULL_TILES, SYNTHESIS_FIGURES, ControlUnit, charge_scale, pins_pj
from acf.cost.mesh import MESH_FIGURES
from acf.files import write_whole
from acf.lowering.fabric_shape import SUM_BYTES
from acf.sim import spec
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.activity import Activity
from acf.sim.fabric.control import control_j
from acf.sim.registry import spec_of_kind

RECORD = Path(__file__).parents[1] / "results" / "energy-charges.json"
TOPOLOGY_LINKS = (32, 64)
AREAS = {
    "acf-512": spec("acf-512"),
    "acf-512-wide": spec("acf-512-wide"),
    "acf-512-lean": spec("acf-512-lean"),
    "acf-h200": spec("acf-h200"),
    "tensorcore-512, 24 MB": spec("tensorcore-512"),
    "tensorcore-512, 48 MB": spec("tensorcore-512", on_chip_bytes=spec("acf-512-lean").on_chip_bytes),
}
"""Machines whose area the record has."""


def units() -> dict[str, ControlUnit]:
    """Every unit that is charged, by name; those that differ by the work they do or by the link, once for each."""
    full = {f"{name}, no zeros": CONTROL_UNITS[name].in_turn_with(cycle, 1.0) for name, cycle in FULL_TILES.items()}
    unit, byte = CONTROL_UNITS["topology unit"], CONTROL_UNITS["topology link byte"]
    topology = {f"topology unit, {link} bytes": unit.plus(byte.times(link)) for link in TOPOLOGY_LINKS}
    return {name: each for name, each in CONTROL_UNITS.items() if "topology" not in name} | full | topology


def unit_rows() -> list[dict[str, Any]]:
    """A row for each of `units`."""
    quantities = ("gate_equivalents", "clock_pins", "gated_flip_flops", "clocked_pins", "switched")
    return [
        {"unit": name} | {quantity: round(getattr(unit, quantity), 1) for quantity in quantities}
        for name, unit in units().items()
    ]


def figures() -> dict[str, float]:
    """Picojoules at 65 nm, and ratios between them."""
    mac_pj, own_mac_pj = MAC_65NM_PJ.value, SYNTHESIS_FIGURES["mac_pj"].value
    clock_pin_pj = pins_pj(1) / (1 + SYNTHESIS_FIGURES["clock_tree_share"].value)
    register_bit_pj = REGISTER_65NM_PJ_PER_BYTE.value / 8
    one_input = replace(CONTROL_UNITS["scu"], switched=1.0)
    at_library_pj = SYNTHESIS_FIGURES["gate_input_pf"].value * SYNTHESIS_FIGURES["supply_v"].value ** 2 / 2
    return {
        "mac_pj": mac_pj,
        "own_mac_pj": own_mac_pj,
        "own_mac_over_published": own_mac_pj / mac_pj,
        "calibrated_scale": 1 / charge_scale("calibrated"),
        "clock_pin_fj": 1e3 * clock_pin_pj,
        "clock_pin_with_tree_fj": 1e3 * pins_pj(1),
        "gate_input_fj": 1e3 * one_input.switching_pj,
        "register_bit_fj": 1e3 * register_bit_pj,
        "own_register_over_published": clock_pin_pj / register_bit_pj,
        "supply_v": SYNTHESIS_FIGURES["supply_v"].value,
        "supply_65nm_v": MESH_FIGURES["supply_65nm_v"].value,
        "energy_scale": one_input.switching_pj / at_library_pj,
    }


def pj_per_slot(name: str) -> dict[str, float]:
    """Clock and switching of a cycle in which every SCU works, and a sum in the banks, for each MAC of a fabric."""
    fabric = spec_of_kind(AdaptiveFabric, name)
    cycle_j = control_j(fabric, Activity(cycles=1, work_cycles=fabric.scus))
    charges_pj = {part: 1e12 * joules / fabric.macs_per_cycle for part, joules in cycle_j.items()}
    return charges_pj | {"sum_in_bank": bank_pj_per_sum(fabric)}


def bank_pj_per_sum(fabric: AdaptiveFabric) -> float:
    """Reading and writing a sum in an accumulator bank, for each MAC: of all, or of a row of a tile without zeros."""
    moved_pj = SUM_BYTES * sum(
        sram_pj_per_byte(fabric.technology_nm, fabric.accumulator_bytes, write) for write in (False, True)
    )
    return moved_pj / (fabric.tile if fabric.accumulate_in == "registers" else 1)


def record() -> dict[str, Any]:
    """All of it, without the call's own fields."""
    return {
        "figures": figures(),
        "units": unit_rows(),
        "pj_per_slot": {name: pj_per_slot(name) for name in ("acf-512", "acf-512-wide")},
        "area_mm2": {name: machine.area_mm2 | machine.vector_area_mm2 for name, machine in AREAS.items()},
    }


def main() -> None:
    """Write the record."""
    made = {
        "command": "python docs/figures/control_charges.py",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit_of(Path(acf.__file__).parent),
    }
    write_whole(RECORD, (json.dumps(made | record(), indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
