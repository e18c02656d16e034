"""Energy and area of control logic and clock, from our own synthesis: the published tables have none of the fabric's.

Cells of a 180 nm library before layout, brought to 65 nm by two rules of thumb: area with the square of the node,
energy with the node (capacitance) and the square of the supply. `docs/results/energy.md` has commands and record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from acf.cost.figures import MAC_65NM_PJ, Figure
from acf.cost.mesh import MESH_FIGURES
from acf.cost.technology import logic_area_scale

_RECORD = "own synthesis, docs/results/energy-synthesis.json: Yosys 0.70, osu018_stdcells.lib (180 nm, 1.8 V)"

SYNTHESIS_FIGURES: dict[str, Figure] = {
    "node_nm": Figure(180.0, "nm", _RECORD),
    "supply_v": Figure(1.8, "V", _RECORD),
    "gate_um2": Figure(24.0, "um2", _RECORD + "; NAND2X1, one gate equivalent"),
    "clock_pin_pf": Figure(0.0279235, "pF", _RECORD + "; pin CLK of DFFPOSX1"),
    "gate_input_pf": Figure(
        0.0215, "pF", "docs/rtl.md, acf-1 at 50 % zeros: 56.7 pF switch in a cycle besides the clock, 2,633 gate inputs"
    ),
    "mac_pj": Figure(7.3, "pJ at 65 nm", _RECORD + "; acf rtl costs: multiply-accumulate unit, a cycle without zeros"),
    "clock_tree_share": Figure(
        0.5, "of the pins", "assumption: wires and buffers of the clock tree, over the pins of the registers they drive"
    ),
}
"""What control energy is derived from."""

CONTROL_ENERGY = ("synthesised", "calibrated", "none")
"""synthesised: as our library gives it at 65 nm; calibrated: times the published MAC over our own MAC, because the same
flow makes a MAC 2.5 times the published one; none: control is not charged."""


@dataclass(frozen=True)
class ControlUnit:
    """Control logic of one unit, its memories, multipliers and adders not counted.

    ``gate_equivalents``: area. ``clock_pins``: registers; all are clocked in every cycle without clock gating.
    ``gated_flip_flops``: those with an enable; with clock gating they are clocked in the share ``loaded`` of the
    cycles. ``switched``: other gate inputs that switch in a cycle of work.
    """

    gate_equivalents: float
    clock_pins: float
    gated_flip_flops: float
    loaded: float
    switched: float
    source: str

    @property
    def clocked_pins(self) -> float:
        """Registers that are clocked in a cycle with clock gating."""
        return self.clock_pins - self.gated_flip_flops * (1 - self.loaded)

    def clock_pj(self, gated: bool) -> float:
        """Picojoules of the clock in one cycle at 65 nm, with its share of the clock tree."""
        return pins_pj(self.clocked_pins if gated else self.clock_pins)

    @property
    def switching_pj(self) -> float:
        """Picojoules of everything else in one cycle of work at 65 nm."""
        return self.switched * _scaled_pj(SYNTHESIS_FIGURES["gate_input_pf"].value)

    @property
    def area_mm2(self) -> float:
        """Square millimetres at 65 nm."""
        return gates_mm2(self.gate_equivalents)

    def times(self, count: float) -> "ControlUnit":
        """So many of this unit as one."""
        sizes = ("gate_equivalents", "clock_pins", "gated_flip_flops", "switched")
        return replace(self, **{name: count * getattr(self, name) for name in sizes})

    def plus(self, part: "ControlUnit") -> "ControlUnit":
        """This unit with another part."""
        return self._with(part, 1, "with")

    def without(self, part: "ControlUnit") -> "ControlUnit":
        """This unit with a part of it left out."""
        return self._with(part, -1, "without")

    def _with(self, part: "ControlUnit", count: int, word: str) -> "ControlUnit":
        gated = self.gated_flip_flops + count * part.gated_flip_flops
        loaded = self.gated_flip_flops * self.loaded + count * part.gated_flip_flops * part.loaded
        return ControlUnit(
            self.gate_equivalents + count * part.gate_equivalents,
            self.clock_pins + count * part.clock_pins,
            gated,
            loaded / gated,
            self.switched + count * part.switched,
            f"{self.source}; {word}: {part.source}",
        )

    def in_turn_with(self, other: "UnitCycle", share: float) -> "ControlUnit":
        """This unit where it does something else in a share of its cycles."""
        loaded = self.loaded + share * (other.loaded - self.loaded)
        return replace(self, loaded=loaded, switched=self.switched + share * (other.switched - self.switched))


@dataclass(frozen=True)
class UnitCycle:
    """What a unit does in a cycle of some kind of work: ``loaded`` and ``switched`` as for `ControlUnit`."""

    loaded: float
    switched: float


@dataclass(frozen=True)
class RowLoads:
    """Register ``bits`` of an SCU and its port that a row of a parallel tile goes through.

    And rows that were loaded in a cycle of the recorded runs, ``of_full_tiles`` and ``of_others``.
    """

    bits: float
    of_full_tiles: float
    of_others: float


def pins_pj(pins: float) -> float:
    """Picojoules of clocking so many pins in one cycle at 65 nm, with their share of the clock tree."""
    tree = 1 + SYNTHESIS_FIGURES["clock_tree_share"].value
    return pins * tree * _scaled_pj(2 * SYNTHESIS_FIGURES["clock_pin_pf"].value)


def gates_mm2(gate_equivalents: float) -> float:
    """Square millimetres of so many gate equivalents at 65 nm."""
    scale = logic_area_scale(65) / logic_area_scale(int(SYNTHESIS_FIGURES["node_nm"].value))
    return gate_equivalents * SYNTHESIS_FIGURES["gate_um2"].value * 1e-6 * scale


def _scaled_pj(picofarads: float) -> float:
    """Energy of switched capacitance at 180 nm, half of it times the supply squared, brought to 65 nm."""
    supply = SYNTHESIS_FIGURES["supply_v"].value
    at_library = picofarads * supply**2 / 2
    return at_library * 65 / SYNTHESIS_FIGURES["node_nm"].value * (MESH_FIGURES["supply_65nm_v"].value / supply) ** 2


HELD_SUM_GATES = 34 * 6.0
"""Gate equivalents of a register that holds one sum of 34 bits, for designs that were not synthesised: a flip-flop (4)
and its share of the multiplexer that reads it (2) per bit, assumed. The gates of acf-512-wide have 34 x 7.2 by acf rtl
area, docs/results/energy-synthesis.json."""

_NARROW = _RECORD + ", acf rtl area --config acf-512 --clock-gating"
_WIDE = (
    _RECORD + ", acf rtl area --config acf-512-lanes4 and acf-512-wide --clock-gating: a line through 4 and 16 lanes"
)
_CONTROLLERS = _RECORD + ", python docs/figures/control_synthesis.py"
_TOPOLOGY_UNITS = _CONTROLLERS + ": a plane through acf-512, acf-512-wide and acf-16384-hbm3e"
_HELD = _RECORD + ", acf-512-wide: gates with sums in registers"
_BLOCK = _RECORD + ", python docs/figures/scu_synthesis.py: gates that hold a block, in a lockstep run"

SCU_LOADED = Figure(
    0.375,
    "of the cycles",
    _RECORD + ": acf rtl power on one SCU of four lanes clocks 500 of 1,030 registers in a cycle, without those of "
    "products (the MAC's own) and three quarters of the row buffer (a port of four SCUs fills it in one of four)",
).value
"""Share of cycles in which an SCU's registers with an enable are loaded."""

OTHERS_LOADED = 0.25
"""The same for controllers and clusters: an assumption; the measured runs load fewer."""

CONTROL_UNITS: dict[str, ControlUnit] = {
    # datapath without multipliers, adders and the registers of their products; walker; counters
    "scu": ControlUnit(8_203.0, 1_133.0, 895.0, SCU_LOADED, 674.0, _NARROW),
    # the same where only zeros of the serial operand are skipped, without what grows with the lanes
    "scu-serial": ControlUnit(5_549.0, 850.0, 800.0, SCU_LOADED, 600.0, _WIDE),
    "lane-serial": ControlUnit(745.0, 46.3, 3.2, SCU_LOADED, 101.0, _WIDE),
    "port": ControlUnit(14_190.0, 671.0, 0.0, 0.0, 700.0, _NARROW),
    "port-serial": ControlUnit(20_213.0, 654.0, 0.0, 0.0, 700.0, _WIDE),
    # units of acf-512-wide: an SCU of 16 lanes that holds a block, without counters; its port, and what is around them
    "wide scu": ControlUnit(32_919.8, 4_661.0, 4_579.0, 0.11856, 1_971.5, _BLOCK),
    "wide port": ControlUnit(19_262.6, 122.0, 71.0, 0.3693, 659.1, _BLOCK),
    "wide cluster": ControlUnit(43_475.0, 959.0, 780.0, OTHERS_LOADED, 322.0, _HELD),
    "wide router": ControlUnit(0.0, 4_211.0, 4_115.0, 0.0, 0.0, _HELD),
    "wide row controller": ControlUnit(3_731.0, 472.0, 276.0, OTHERS_LOADED, 0.0, _HELD),
    "wide column controller": ControlUnit(2_812.0, 271.0, 79.0, OTHERS_LOADED, 0.0, _HELD),
    "wide device": ControlUnit(9_476.0, 1_321.0, 1_163.0, OTHERS_LOADED, 0.0, _HELD),
    # receivers, results, credits, and the adders of a column's sums
    "cluster": ControlUnit(26_381.0, 1_211.0, 919.0, OTHERS_LOADED, 322.0, _NARROW),
    # lines: their area and the flits that pass are charged as mesh, so only registers that no flit loads count here
    "router": ControlUnit(0.0, 2_632.0, 2_487.0, 0.0, 0.0, _NARROW),
    "row controller": ControlUnit(5_744.0, 755.0, 511.0, OTHERS_LOADED, 0.0, _NARROW),
    "column controller": ControlUnit(3_436.0, 321.0, 95.0, OTHERS_LOADED, 0.0, _NARROW),
    # fetcher, collectors, writer and registers of the device, one line's share
    "device": ControlUnit(9_628.0, 1_399.0, 1_238.0, OTHERS_LOADED, 0.0, _NARROW),
    # stream of blocks, prefix sum, owner planner, split-K part; `acf.sim.fabric.control` says how it grows with a mesh
    "index controller": ControlUnit(112_557.0, 7_570.0, 6_403.0, OTHERS_LOADED, 0.0, _CONTROLLERS),
    "wide index controller": ControlUnit(70_527.0, 3_800.0, 3_100.0, OTHERS_LOADED, 0.0, _CONTROLLERS),
    # one of as many controllers as mesh rows, in 16 x 16 clusters
    "16-row index controller": ControlUnit(
        140_099.0, 7_331.0, 6_768.0, OTHERS_LOADED, 0.0, _CONTROLLERS + ": acf-16384-hbm3e --no-sharing"
    ),
    # the same in 32 x 32 clusters
    "32-row index controller": ControlUnit(
        231_359.0, 10_876.0, 10_360.0, OTHERS_LOADED, 0.0, _CONTROLLERS + ": acf-h200 --no-sharing"
    ),
    # used at topology updates alone, stopped else; what a byte of the link adds, and what a mesh column
    "topology unit": ControlUnit(47_161.5, 4_663.667, 4_508.333, 0.0, 0.0, _TOPOLOGY_UNITS),
    "topology link byte": ControlUnit(114.2675, 16.30556, 16.11111, 0.0, 0.0, _TOPOLOGY_UNITS),
    "topology mesh column": ControlUnit(45.77546, 3.69444, 2.88889, 0.0, 0.0, _TOPOLOGY_UNITS),
}
"""Control of the fabric by unit. A vector unit has no entry: its model charges its own."""

STALL_COUNTERS = ControlUnit(
    2_382.7,
    348.0,
    288.0,
    50.0 / 288.0,
    221.0,
    _RECORD
    + ", module counters of an SCU: 110 pins are clocked and 221 other gate inputs switch in a cycle of the run",
)
"""The performance counters of an SCU, which are part of "scu" and "scu-serial"."""

FULL_TILES: dict[str, UnitCycle] = {
    "wide scu": UnitCycle(0.11061, 1_415.0),
    "wide port": UnitCycle(0.25965, 263.5),
}
"""The same units in a cycle of work on serial tiles without zeros, from the same record,
docs/results/energy-synthesis.json; `CONTROL_UNITS` has a cycle on tiles of which half are zeros."""

SUMS_OF_MACS = 0.25
"""Share of the sums' registers that the published MAC includes: it is a quarter of a PE with four multipliers and one
accumulator (TensorDash, Table III). The other registers of sums are charged as part of "wide scu"."""

ROW_LOADS = RowLoads(256.0 + 32.0, 0.125, 0.249)
"""Registers that a row goes through in gates that hold a block: the block's row in an SCU, and a mask of its columns in
two stages of a port; an SCU of eight rows loads a row in one of eight cycles without zeros, and for every k at which
one of its rows is not zero."""


def charge_scale(control_energy: str) -> float:
    """What a synthesised energy is multiplied by under a choice of `CONTROL_ENERGY`.

    >>> charge_scale("none")
    0.0
    """
    scales: Mapping[str, float] = {
        "synthesised": 1.0,
        "calibrated": MAC_65NM_PJ.value / SYNTHESIS_FIGURES["mac_pj"].value,
        "none": 0.0,
    }
    return scales[control_energy]
