"""Control logic and clock of the fabric: how many of each unit it has, and what they take in energy and area."""

from typing import TYPE_CHECKING

from acf.cost.control import (
    CONTROL_UNITS,
    HELD_ROW_BITS,
    HELD_ROW_LOADED,
    HELD_SUM_GATES,
    STALL_COUNTERS,
    SUM_BITS,
    SUMMED_LANE_GATES,
    SUMMED_ROW_GATES,
    ControlUnit,
    charge_scale,
    gates_mm2,
    pins_pj,
)
from acf.sim.fabric.activity import Activity

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric

SYNTHESISED_TILE, SYNTHESISED_LINK_BYTES = 16, 32
"""The shape that `CONTROL_UNITS` were synthesised for; others are scaled by structure."""

WIDE_LANES, WIDE_LINK_BYTES = 16, 64
"""The same for the units of `acf-512-wide`."""

WORKING_UNITS = ("scu", "lane", "wide scu")
"""Units that switch only in cycles in which an SCU works; others switch in every cycle of a product."""

LOADED_IN_PART = ("scu", "lane", "router", "index controller", "index walker")
"""Kinds of units of which only some registers are clocked in a cycle with work."""

COUNTING_UNITS = ("scu", "scu-serial", "wide scu")
"""Units that have performance counters."""

SYNTHESISED_CLUSTERS = 64
"""Clusters that the index controller was synthesised for; it has registers for each cluster of its mesh rows."""

INDEX_CONTROLLER_BYTES = 65_536 + 23_072 + 5_376
"""Memories of an index controller in gates: an index buffer of 16,384 words (`acf.rtl.device.WalkerOption`), its tables
of addresses and owners, and those of a split-K round: 64 words of four rows, 512 bits, and of four columns, 160."""


def control_units(spec: "AdaptiveFabric") -> dict[str, float]:
    """How many of each of `CONTROL_UNITS` a fabric has, as multiples of the unit that was synthesised.

    With zeros of both operands skipped only SCUs of one lane were synthesised; more lanes are charged as one. With sums
    in registers and one operand skipped, units are those of `acf-512-wide`.
    An SCU's registers hold rows of a tile, a port's bitmaps of whole tiles, a router's flits; each grows accordingly.
    """
    lines = spec.mesh_rows + spec.mesh_columns
    units = _wide_units(spec, lines) if _is_wide(spec) else _narrow_units(spec, lines)
    share = spec.clusters / spec.walking_controllers / SYNTHESISED_CLUSTERS
    controllers = {"index controller": spec.index_controllers * max(1.0, share)}
    return units | controllers | {"index walker": lines, "prefix sum": lines, "route planner": 1, "sorter": 1}


def _is_wide(spec: "AdaptiveFabric") -> bool:
    """Whether a fabric is built as `acf-512-wide` is, whose units were synthesised with sums in registers."""
    return spec.skip == "serial" and spec.accumulate_in == "registers"


def _wide_units(spec: "AdaptiveFabric", lines: int) -> dict[str, float]:
    tiles = spec.tile / SYNTHESISED_TILE
    ports = -(-spec.scus_per_cluster // spec.scus_per_port)
    return {
        "wide scu": spec.macs_per_cycle / WIDE_LANES * tiles,
        "wide port": spec.clusters * ports * tiles**2,
        "wide cluster": spec.clusters * tiles**2,
        "wide router": spec.clusters * spec.link_bytes / WIDE_LINK_BYTES,
        "wide row controller": spec.mesh_rows,
        "wide column controller": spec.mesh_columns,
        "wide device": lines,
    }


def _narrow_units(spec: "AdaptiveFabric", lines: int) -> dict[str, float]:
    tiles = spec.tile / SYNTHESISED_TILE
    ports = -(-spec.scus_per_cluster // spec.scus_per_port)
    if spec.skip == "serial":
        scus = {"scu-serial": spec.scus * tiles, "lane-serial": float(spec.macs_per_cycle)}
    else:
        scus = {"scu": spec.scus * tiles}
    return scus | {
        "port-serial" if spec.skip == "serial" else "port": spec.clusters * ports * tiles**2,
        "cluster": spec.clusters * tiles**2,
        "router": spec.clusters * spec.link_bytes / SYNTHESISED_LINK_BYTES,
        "row controller": spec.mesh_rows,
        "column controller": spec.mesh_columns,
        "device": lines,
    }


def control_j(spec: "AdaptiveFabric", activity: Activity) -> dict[str, float]:
    """Joules of one product by component; empty if not charged.

    With ``clock_gating`` "units" a unit is clocked, and its logic switches, only in cycles in which it has work;
    otherwise the clock runs in every cycle of the product, and of the units only SCUs stop switching when they wait.
    """
    if spec.control_energy == "none":
        return {}
    scale = charge_scale(spec.control_energy) * 1e-12
    charge = _by_unit_pj if spec.clock_gating == "units" else _by_register_pj
    clock_pj, switching_pj = charge(spec, activity)
    clock_pj -= _summed_pj(spec, activity)
    return {"control": switching_pj * scale, "clock": clock_pj * scale}


def _by_register_pj(spec: "AdaptiveFabric", activity: Activity) -> tuple[float, float]:
    """Picojoules of clock and switching if at most single registers are stopped."""
    gated = spec.clock_gating == "enables"
    clock_pj = switching_pj = 0.0
    for name, count in control_units(spec).items():
        unit = _unit(spec, name)
        clock_pj += count * unit.clock_pj(gated) * activity.cycles
        busy = activity.work_cycles / spec.scus if name.startswith(WORKING_UNITS) else activity.cycles
        switching_pj += count * unit.switching_pj * busy
    return clock_pj, switching_pj


def _by_unit_pj(spec: "AdaptiveFabric", activity: Activity) -> tuple[float, float]:
    """Picojoules of clock and switching if every unit is stopped while it has no work.

    In a cycle with work all registers of a unit are clocked, but for those of SCUs and index controllers that are not
    loaded, and those of routers that a flit loads, which are charged as mesh. A clock gate is a pin in every cycle. An
    SCU loads a row as often as the product has it read.
    """
    busy = activity.busy_cycles(spec)
    clock_pj = switching_pj = 0.0
    for name, count in control_units(spec).items():
        unit, kind = _unit(spec, name), name.removeprefix("wide ").removesuffix("-serial")
        cycles = busy.get(kind, 0.0)
        clock_pj += unit.clock_pj(gated=kind in LOADED_IN_PART) * cycles + pins_pj(count) * activity.cycles
        switching_pj += unit.switching_pj * cycles
    if _is_wide(spec):
        clock_pj -= pins_pj(HELD_ROW_BITS * (HELD_ROW_LOADED - activity.read_share)) * activity.work_cycles
    return clock_pj, switching_pj


def _summed_pj(spec: "AdaptiveFabric", activity: Activity) -> float:
    """Picojoules of clocking sums that are not written: of full tiles one in ``summed_products`` is."""
    unwritten = spec.lanes * SUM_BITS * (1 - 1 / spec.summed_products) * activity.full_share
    return pins_pj(unwritten) * activity.work_cycles


def _unit(spec: "AdaptiveFabric", name: str) -> ControlUnit:
    unit = CONTROL_UNITS[name]
    counts_stalls = name in COUNTING_UNITS and spec.stall_counters == "none"
    return unit.without(STALL_COUNTERS) if counts_stalls else unit


def control_mm2(spec: "AdaptiveFabric") -> float:
    """Square millimetres of control logic, and of registers that hold sums, as synthesised; 0 if not charged."""
    if spec.control_energy == "none":
        return 0.0
    units = sum(count * _unit(spec, name).area_mm2 for name, count in control_units(spec).items())
    is_assumed = spec.accumulate_in == "registers" and not _is_wide(spec)
    held = spec.held_rows * spec.tile * spec.scus if is_assumed else 0
    return units + gates_mm2(held * HELD_SUM_GATES + spec.scus * _summing_gates(spec))


def _summing_gates(spec: "AdaptiveFabric") -> float:
    """Gate equivalents of an SCU that adds up products before the sum: rows besides the two it has, multiplexers."""
    if spec.summed_products == 1:
        return 0.0
    rows = max(0, spec.summed_products - 2) * spec.tile * 8 * spec.value_bytes
    return rows * SUMMED_ROW_GATES + spec.lanes * SUM_BITS * SUMMED_LANE_GATES
