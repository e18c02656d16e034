"""Gates of a few instances within a design that stays RTL: what one unit switches in a run of the whole."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acf.errors import RtlError
from acf.rtl.tools.gate_mapping import CLOCK_GATE, gate_commands, memory_bits
from acf.rtl.tools.hierarchy import black_box, split_modules, submodules_of
from acf.rtl.tools.verilog import verilog_and_netlist
from acf.rtl.tools.yosys import run_yosys

SUFFIX = "_gates"
"""End of the name of a module that was mapped to gates."""

_CELL = re.compile(r"(?m)^\s*cell \\(\S+) \\(\S+)$")


@dataclass(frozen=True)
class Parts:
    """Instances, by name, of the module ``parent`` of a design; modules in them that ``rtl`` matches stay RTL."""

    parent: str
    instances: Sequence[str]
    rtl: str = "$^"


def gates_of_parts(rtlil: str, parts: Parts, clock_gating: bool) -> dict[str, str]:
    """A design in which ``parts`` are simple gates and all else is RTL: ``gates.v``, and ``gates.json``, its netlist.

    Gates of a whole fabric take long to build and to run; one unit of it is enough to see what such a unit switches.
    """
    modules = split_modules(rtlil)
    texts = dict(modules)
    units = {name: unit for unit, name in _CELL.findall(modules[parts.parent])}
    for instance in parts.instances:
        if instance not in units:
            raise RtlError(f"{parts.parent} holds no instance {instance!r}; name one of {', '.join(sorted(units))}")
        cell = f"cell \\{units[instance]}"
        texts[parts.parent] = texts[parts.parent].replace(f"{cell} \\{instance}\n", f"{cell}{SUFFIX} \\{instance}\n")
    for unit in sorted({units[instance] for instance in parts.instances}):
        texts |= _map_unit(modules, unit, parts.rtl, clock_gating)
    verilog, netlist = verilog_and_netlist("\n".join(texts.values()))
    return {"gates.v": verilog, "gates.json": netlist}


def _split_unit(modules: Mapping[str, str], unit: str, rtl: str) -> tuple[set[str], set[str]]:
    """Modules of a unit to map, itself among them, and those directly inside them that stay RTL."""
    inside, boxes = {unit}, set()
    for name in submodules_of(modules, unit):
        if re.search(rtl, name):
            boxes.add(name)
        else:
            mapped, kept = _split_unit(modules, name, rtl)
            inside, boxes = inside | mapped, boxes | kept
    return inside, boxes


def _map_unit(modules: Mapping[str, str], unit: str, rtl: str, clock_gating: bool) -> dict[str, str]:
    """RTLIL of a module, and of what in it is not ``rtl``, as gates; every module's name ends with `SUFFIX`."""
    inside, boxes = _split_unit(modules, unit, rtl)
    names = re.compile(r"(?m)^(\s*cell \\|module \\)(" + "|".join(map(re.escape, sorted(inside))) + r")(?= |$)")
    own = {f"{name}{SUFFIX}": names.sub(rf"\1\2{SUFFIX}", modules[name]) for name in sorted(inside)}
    memories = [(name, memory) for name, text in own.items() for memory in memory_bits(text)]
    commands = [
        *gate_commands(f"{unit}{SUFFIX}", memories, None, clock_gating),
        "rename -hide w:*",  # as for the gates of a whole design
        "rename -enumerate -pattern net_%",
        "write_rtlil gates.il",
    ]
    empty = [black_box(name, modules[name]) for name in sorted(boxes)]
    inputs = {"top.il": "\n".join([*empty, *own.values()]), "clock_gate.v": CLOCK_GATE}
    texts = split_modules(run_yosys(commands, inputs, ["gates.il"]).files["gates.il"])
    return {name: texts[name] for name in own}
