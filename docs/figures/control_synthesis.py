"""Measures index controllers and topology units in gates, for docs/results/energy-synthesis.json.

    python docs/figures/control_synthesis.py osu018_stdcells.lib index-controller acf-512-wide
    python docs/figures/control_synthesis.py osu018_stdcells.lib index-controller acf-h200 --no-sharing
    python docs/figures/control_synthesis.py osu018_stdcells.lib topology-unit acf-512-wide acf-512

Every unit is mapped to the cells of the liberty file, its clocks gated, in the shape that a fabric has: an index
controller for the mesh rows and mesh columns of its own share, a topology unit for the link. ``--no-sharing`` leaves
out Yosys' search for adders that can be one, which takes hours for the controllers of large meshes: gates are then an
upper bound. `acf.cost.control` is to be brought in line by hand: tests/cost/test_control.py compares both.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import acf
from acf.bench.provenance import commit_of
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.index_controller import IndexController, IndexSizes
from acf.rtl.device.topology.unit import TopologyUnit
from acf.rtl.device.walking import WalkerOption
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.area import measure_area
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.control import reached_clusters
from acf.sim.fabric.index_traffic import sharing_controllers
from acf.sim.fabric.topology_unit import SORTER_MOVES
from acf.sim.registry import spec_of_kind

RECORD = Path(__file__).parents[1] / "results" / "energy-synthesis.json"
TOP = "top"
QUANTITIES = ("gate_equivalents", "memory_bits", "clock_pins", "gated_flip_flops")


Measured = Callable[[Any], dict[str, Any]]
"""The `QUANTITIES` of a component."""


def sizes_of(fabric: AdaptiveFabric) -> FabricSizes:
    """Sizes of a fabric's gates; lanes, which neither unit has, are one where more cannot be built."""
    return FabricSizes(replace(fabric, lanes=1) if fabric.skip == "both" else fabric, products=False)


def index_controller(fabric: AdaptiveFabric, measured: Measured) -> dict[str, Any]:
    """One controller of those that share a product."""
    sharing = sharing_controllers(fabric, fabric.walking_controllers)
    found = measured(IndexController(IndexSizes(sizes_of(fabric), sharing=sharing)))
    return {"sharing": sharing, "mesh_columns": fabric.mesh_columns, "clusters": reached_clusters(fabric)} | found


def topology_unit(fabric: AdaptiveFabric, measured: Measured) -> dict[str, Any]:
    """The unit of a device with the limits of `WalkerOption`, which moves as many blocks as the simulator counts on."""
    limits = WalkerOption(moves=SORTER_MOVES).topology(fabric)
    assert limits is not None
    sizes = sizes_of(fabric)
    found = measured(TopologyUnit(limits, fabric.tile, sizes.flit_bits))
    return {"link_bytes": fabric.link_bytes, "mesh_columns": fabric.mesh_columns} | found


def measured(liberty: Liberty, sharing: bool, component: Any) -> dict[str, Any]:
    """Gates of a component with gated clocks."""
    area = asdict(measure_area(component, TOP, liberty, clock_gating=True, sharing=sharing).modules[TOP])
    return {name: area[name] for name in QUANTITIES}


UNITS = {"index-controller": index_controller, "topology-unit": topology_unit}
"""What can be measured."""


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("liberty", type=Path)
    parser.add_argument("unit", choices=tuple(UNITS))
    parser.add_argument("fabrics", nargs="+")
    parser.add_argument("--no-sharing", action="store_true", help="no search for adders that can be one")
    return parser.parse_args()


def main() -> None:
    """Measure and write."""
    given = _parsed()
    measure = partial(measured, Liberty.read(given.liberty), not given.no_sharing)
    for config in given.fabrics:
        option = " --no-sharing" if given.no_sharing else ""
        row = UNITS[given.unit](spec_of_kind(AdaptiveFabric, config), measure) | {
            "command": f"python docs/figures/control_synthesis.py {given.liberty.name} {given.unit} {config}{option}",
            "commit": commit_of(Path(acf.__file__).parent),
            "date": datetime.now(UTC).date().isoformat(),
        }
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        record["units"][f"{given.unit} of {config}{option.replace(' --', ', ').replace('-', ' ')}"] = row
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
