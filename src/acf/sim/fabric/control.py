"""Control logic and clock of the fabric: how many of each unit it has, and what they take in energy and area."""

from math import ceil
from typing import TYPE_CHECKING

from acf.cost.control import (
    CONTROL_UNITS,
    FULL_TILES,
    HELD_SUM_GATES,
    ROW_LOADS,
    STALL_COUNTERS,
    ControlUnit,
    charge_scale,
    gates_mm2,
    pins_pj,
)
from acf.sim.fabric.activity import Activity
from acf.sim.fabric.index_traffic import sharing_controllers

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric

SYNTHESISED_TILE, SYNTHESISED_LINK_BYTES = 16, 32
"""The shape that `CONTROL_UNITS` were synthesised for; others are scaled by structure."""

WIDE_LANES, WIDE_LINK_BYTES = 16, 64
"""The same for the units of `acf-512-wide`."""

WORKING_UNITS = ("scu", "lane", *FULL_TILES)
"""Units that switch only in cycles in which an SCU works; others switch in every cycle of a product."""

LOADED_IN_PART = ("scu", "lane", "router", "index controller")
"""Kinds of units of which only some registers are clocked in a cycle with work; so are those of `FULL_TILES`."""

COUNTING_UNITS = ("scu", "scu-serial")
"""Units that were synthesised with performance counters; "wide scu" was without them."""

INDEX_CONTROLLERS = {
    "wide index controller": (4, 12),
    "index controller": (8, 48),
    "16-row index controller": (16, 31),
    "32-row index controller": (32, 63),
}
"""Index controllers that were synthesised: mesh rows or mesh columns, and clusters that they send to."""


MACRO_BITS = 1_024
"""Memories of the gates with at most so many bits are registers, and part of what was synthesised."""


def topology_unit_bytes(spec: "AdaptiveFabric") -> int:
    """Memories of the topology unit in gates, for layers of 256 x 256 blocks of which 4,096 are present.

    A slot for each block, a block for each slot; by column of blocks a mark and a number for each mesh column.
    """
    number_bits = max(1, spec.accumulator_tiles - 1).bit_length()
    bits = 13 * 256**2 + 16 * 4096 + 256 * spec.mesh_columns * (1 + number_bits)
    return bits // 8


def reached_clusters(spec: "AdaptiveFabric") -> int:
    """Clusters that one index controller sends something to: those of its own mesh rows and mesh columns."""
    sharing = sharing_controllers(spec, spec.walking_controllers)
    rows, columns = -(-spec.mesh_rows // sharing), -(-spec.mesh_columns // sharing)
    return rows * spec.mesh_columns + columns * spec.mesh_rows - rows * columns


def index_controller(spec: "AdaptiveFabric") -> tuple[str, float]:
    """The one of `INDEX_CONTROLLERS` that a fabric is charged by, and how many times as large the fabric's is.

    A controller has registers for the clusters that it reaches, makes a header for every mesh column, and has a bit for
    every mesh row: one of a larger mesh grows at most as fast as the one of these that grows most. Of those that bound
    the fabric's, it is the least.
    """
    side, reached = max(spec.mesh_rows, spec.mesh_columns), reached_clusters(spec)
    sizes = {
        name: max(1.0, side / own_side, reached / own_reached)
        for name, (own_side, own_reached) in INDEX_CONTROLLERS.items()
    }
    name = min(sizes, key=lambda each: sizes[each] * CONTROL_UNITS[each].gate_equivalents)
    return name, sizes[name]


def index_controller_bytes(spec: "AdaptiveFabric") -> int:
    """Memories of an index controller in gates.

    An index buffer of 16,384 words (`acf.rtl.device.WalkerOption`), tables of addresses and owners, and with an entry
    for every mesh column those of owned tiles and of a split-K round: for 8 columns 1,280 bytes, and 64 words of four
    rows, 512 bits, and of four columns, 160. Two tables of the owner planner are memories where they have more than
    `MACRO_BITS`, else registers: what each of the columns needs, and the owner of each of 256 output columns.
    """
    columns = spec.mesh_columns
    planner_bits = (64 * columns, 256 * (columns - 1).bit_length())
    planner_bytes = sum(bits for bits in planner_bits if bits > MACRO_BITS) // 8
    return 65_536 + 21_792 + ceil((1_280 + 5_376) / 8 * columns) + planner_bytes


def control_units(spec: "AdaptiveFabric") -> dict[str, float]:
    """How many of each of `CONTROL_UNITS` a fabric has, as multiples of the unit that was synthesised.

    With zeros of both operands skipped only SCUs of one lane were synthesised; more lanes are charged as one. With sums
    in registers and one operand skipped, units are those of `acf-512-wide`. An SCU's registers hold rows of a tile, a
    port's bitmaps of whole tiles, a router's flits; each grows accordingly.
    """
    lines = spec.mesh_rows + spec.mesh_columns
    units = _wide_units(spec, lines) if _is_wide(spec) else _narrow_units(spec, lines)
    name, size = index_controller(spec)
    return units | {name: spec.index_controllers * size, "topology unit": 1.0}


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
    return {"control": switching_pj * scale, "clock": clock_pj * scale}


def _by_register_pj(spec: "AdaptiveFabric", activity: Activity) -> tuple[float, float]:
    """Picojoules of clock and switching if at most single registers are stopped."""
    gated = spec.clock_gating == "enables"
    clock_pj = switching_pj = 0.0
    for name, count in control_units(spec).items():
        unit = _unit(spec, name, activity.full_share)
        clock_pj += count * unit.clock_pj(gated) * activity.cycles
        busy = activity.work_cycles / spec.scus if name.startswith(WORKING_UNITS) else activity.cycles
        switching_pj += count * unit.switching_pj * busy
    return clock_pj, switching_pj


def _by_unit_pj(spec: "AdaptiveFabric", activity: Activity) -> tuple[float, float]:
    """Picojoules of clock and switching if every unit is stopped while it has no work.

    In a cycle with work all registers of a unit are clocked, but for those of SCUs and index controllers that are not
    loaded, and those of routers that a flit loads, which are charged as mesh. A clock gate is a pin in every cycle. An
    SCU that holds sums works with its port, and both load a row as often as the product has it read.
    """
    busy = activity.busy_cycles(spec)
    clock_pj = switching_pj = 0.0
    for name, count in control_units(spec).items():
        unit = _unit(spec, name, activity.full_share)
        kind = name.removeprefix("wide ").removeprefix("16-row ").removeprefix("32-row ").removesuffix("-serial")
        cycles = activity.work_cycles if name in FULL_TILES else busy.get(kind, 0.0)
        cycles *= index_controller(spec)[1] if kind == "index controller" else 1.0
        in_part = kind in LOADED_IN_PART or name in FULL_TILES
        clock_pj += unit.clock_pj(gated=in_part) * cycles + pins_pj(count) * activity.cycles
        switching_pj += unit.switching_pj * cycles
    if _is_wide(spec):
        clock_pj += pins_pj(_further_row_bits(spec, activity)) * activity.work_cycles
    return clock_pj, switching_pj


def _further_row_bits(spec: "AdaptiveFabric", activity: Activity) -> float:
    """Bits of rows that an SCU and its port load in a cycle beyond those of the recorded runs, or below 0."""
    recorded = activity.full_share * ROW_LOADS.of_full_tiles + (1 - activity.full_share) * ROW_LOADS.of_others
    return ROW_LOADS.bits * (activity.read_share - recorded)


def _unit(spec: "AdaptiveFabric", name: str, full_share: float = 0.0) -> ControlUnit:
    """A unit as this fabric has it, in a cycle on tiles of which ``full_share`` have no zeros."""
    unit = CONTROL_UNITS[name]
    if name == "topology unit":
        unit = unit.plus(CONTROL_UNITS["topology mesh column"].times(spec.mesh_columns))
        return unit.plus(CONTROL_UNITS["topology link byte"].times(spec.link_bytes))
    if name in FULL_TILES:
        unit = unit.in_turn_with(FULL_TILES[name], full_share)
    if spec.stall_counters == "none" and name in COUNTING_UNITS:
        return unit.without(STALL_COUNTERS)
    return unit.plus(STALL_COUNTERS) if spec.stall_counters == "all" and name == "wide scu" else unit


def control_mm2(spec: "AdaptiveFabric") -> float:
    """Square millimetres of control logic, and of registers that hold sums, as synthesised; 0 if not charged."""
    if spec.control_energy == "none":
        return 0.0
    units = sum(count * _unit(spec, name).area_mm2 for name, count in control_units(spec).items())
    is_assumed = spec.accumulate_in == "registers" and not _is_wide(spec)
    held = spec.held_rows * spec.tile * spec.scus if is_assumed else 0
    return units + gates_mm2(held * HELD_SUM_GATES)
