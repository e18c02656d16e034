"""Area in gate equivalents: mapped to the cells of a liberty file, before layout."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from acf.rtl.tools.gate_mapping import CLOCK_GATE, MEMORY_CELL, gate_commands, memory_bits
from acf.rtl.tools.hierarchy import (
    Cells,
    count_instances,
    count_primitives,
    isolate,
    parse_cell_counts,
    split_modules,
    subtree_of,
)
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.result_cache import cached, for_each
from acf.rtl.tools.verilog import to_rtlil
from acf.rtl.tools.yosys import run_yosys

GATED_FLIP_FLOP = "$gated_flip_flop"
"""Counted beside the cells of a module: flip-flops, already among them, whose clock is gated."""


@dataclass(frozen=True)
class ModuleArea:
    """A module of the hierarchy: how often it is there, and what one of it takes, its submodules included.

    ``clock_pins``: flip-flops, and latches of clock gates; ``gated_flip_flops``: those whose clock is gated.
    """

    instances: int
    gate_equivalents: float
    memory_bits: int
    clock_pins: int = 0
    gated_flip_flops: int = 0


@dataclass(frozen=True)
class AreaReport:
    """Area of the whole and of every module, in two-input NANDs of the liberty file, each ``gate_area`` large.

    Cells alone: no wires, no clock tree, no filling. Memories of more than a few words are no gates: their bits are
    given beside; smaller ones are made of flip-flops.
    """

    name: str
    gate_equivalents: float
    memory_bits: int
    gate_area: float
    modules: dict[str, ModuleArea]
    cells: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def measure_area(
    component: Any, name: str, liberty: Liberty, clock_gating: bool = False, sharing: bool = True
) -> AreaReport:
    """Gate equivalents of a component, every different module mapped once.

    ``clock_gating`` and ``sharing``: as for `gate_commands`.
    """
    modules = split_modules(to_rtlil(component, name))
    inside = subtree_of(modules, name)
    commands = {each: _commands(each, modules[each], liberty, clock_gating, sharing) for each in inside}
    found = for_each(
        inside, lambda each: cached("area", _cells, each, isolate(modules, each), commands[each], liberty.text)
    )
    counts = count_instances(found, name)
    areas = {each: _area(found, each, liberty) / liberty.gate_area for each in inside}
    own_bits = {each: sum(memory_bits(modules[each]).values()) for each in inside}
    bits = {each: _total(found, own_bits, each) for each in inside}
    own_pins = {each: _clock_pins(found[each], liberty) for each in inside}
    own_gated = {each: found[each].get(GATED_FLIP_FLOP, 0) for each in inside}
    return AreaReport(
        name,
        areas[name],
        bits[name],
        liberty.gate_area,
        {
            each: ModuleArea(
                count, areas[each], bits[each], _total(found, own_pins, each), _total(found, own_gated, each)
            )
            for each, count in counts.items()
        },
        count_primitives(found, counts),
    )


def _commands(name: str, text: str, liberty: Liberty, clock_gating: bool, sharing: bool) -> str:
    memories = [(name, memory) for memory in memory_bits(text)]
    commands = gate_commands(name, memories, liberty, clock_gating, sharing)
    return "\n".join([*commands, "tee -q -o statistics.json stat -json"])


def _cells(name: str, text: str, commands: str, library: str) -> dict[str, int]:
    """Cells of one module by type, black boxes by their name, flip-flops with a gated clock as `GATED_FLIP_FLOP`."""
    inputs = {"top.il": text, "cells.lib": library, "clock_gate.v": CLOCK_GATE}
    run = run_yosys(commands.splitlines(), inputs, ["statistics.json"])
    cells = dict(parse_cell_counts(run.files["statistics.json"])[name])
    gated = re.search(r"Converted (\d+) FFs", run.log)
    return cells | ({GATED_FLIP_FLOP: int(gated[1])} if gated and gated[1] != "0" else {})


def _clock_pins(cells: Mapping[str, int], liberty: Liberty) -> int:
    """Cells of one module that the clock reaches."""
    clocked = {name for name, cell in liberty.cells.items() if any(pin.is_clock for pin in cell.pins.values())}
    return sum(count for name, count in cells.items() if name in clocked)


def _area(cells: Cells, module: str, liberty: Liberty) -> float:
    """One module with all in it, in the unit of the file."""
    return sum(
        count * (_area(cells, cell, liberty) if cell in cells else liberty.cells[cell].area)
        for cell, count in cells[module].items()
        if cell not in (MEMORY_CELL, GATED_FLIP_FLOP)
    )


def _total(cells: Cells, own: dict[str, int], module: str) -> int:
    """The sum of ``own`` over a module and all in it."""
    inside = (count * _total(cells, own, cell) for cell, count in cells[module].items() if cell in cells)
    return own[module] + sum(inside)
