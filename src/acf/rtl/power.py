"""Switching activity of a real run on the gates, weighed by what each net drives: relative power, before layout."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from acf.errors import RtlError
from acf.rtl.area import gate_commands
from acf.rtl.flow.ports import Port, columns_of, pack_inputs, ports_of
from acf.rtl.flow.verilog import to_rtlil
from acf.rtl.flow.yosys import run_yosys
from acf.rtl.liberty import Liberty
from acf.rtl.simulation import VerilatorBackend, is_clocked

Toggles = dict[str, dict[str, int]]
"""Changes of every net, by instance path and by name of the net."""


@dataclass(frozen=True)
class PowerReport:
    """Switched capacitance per cycle, in the capacitance unit of the liberty file, or in gate inputs without one.

    Energy per cycle is half of it times the square of the voltage. Loads are input pins alone: wires, clock tree,
    leakage and what cells burn inside are not in it, so compare such figures with each other and with nothing else.
    """

    name: str
    cycles: int
    switched_per_cycle: float
    clock_per_cycle: float
    instances: dict[str, float]
    unit: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def measure_power(
    component: Any, name: str, inputs: Mapping[str, ArrayLike], cycles: int, liberty: Liberty | None = None
) -> PowerReport:
    """Map to gates, run ``inputs`` (as for `Simulation.run`) on them, and weigh every toggle."""
    rtlil = to_rtlil(component, "top")
    files = _gates(rtlil, liberty)
    ports = ports_of(component)
    toggles = _run(files["gates.v"], rtlil, ports, inputs, cycles)
    modules = json.loads(files["gates.json"])["modules"]
    own = dict.fromkeys(_paths("top", "top", modules), 0.0)
    clock = 0.0
    for path, module in _paths("top", "top", modules).items():
        for net, load in _loads(modules[module], modules, liberty).items():
            if net not in toggles.get(path, {}):
                raise RtlError(f"net {net} of {path} is not in the simulation's record; give its signal a plain name")
            switched = load * toggles[path][net] / cycles
            own[path] += switched
            clock += switched if net == "clk" else 0.0
    unit = "capacitance unit of the liberty file" if liberty else "gate inputs"
    renamed = {path.replace("top", name, 1): value for path, value in own.items()}
    return PowerReport(name, cycles, sum(own.values()), clock, renamed, unit)


def _gates(rtlil: str, liberty: Liberty | None) -> Mapping[str, str]:
    """The mapped netlist as JSON, and as Verilog together with what its cells do."""
    # Names that the simulation keeps as they are: ports' own, and a number for every other net.
    named = ["rename -hide w:*", "rename -enumerate -pattern net_%", "write_json gates.json"]
    write = "write_verilog -noattr gates.v"
    if liberty is None:
        commands = ["read_rtlil top.il", "synth -top top", "abc -g simple", "clean", *named, write]
        return run_yosys(commands, {"top.il": rtlil}, ["gates.json", "gates.v"]).files
    commands = [*gate_commands("top"), *named, "read_liberty -overwrite cells.lib", write]
    return run_yosys(commands, {"top.il": rtlil, "cells.lib": liberty.text}, ["gates.json", "gates.v"]).files


def _run(verilog: str, rtlil: str, ports: list[Port], inputs: Mapping[str, ArrayLike], cycles: int) -> Toggles:
    """Toggles of all nets while the gates compute ``inputs``."""
    words = pack_inputs([port for port in ports if port.is_input], inputs, cycles)
    read = np.zeros((cycles, columns_of([port for port in ports if not port.is_input])), dtype=np.uint64)
    backend = VerilatorBackend.of_verilog(verilog, ports, is_clocked(rtlil))
    with tempfile.TemporaryDirectory(prefix="acf-saif-") as folder:
        path = Path(folder) / "run.saif"
        backend.record(path)
        backend.run(words, read)
        backend.record(None)
        return parse_saif(path.read_text(encoding="utf-8"))


def parse_saif(text: str) -> Toggles:
    """Toggle counts of a SAIF file, by instance path below Verilator's outermost scope.

    >>> parse_saif("(SAIFILE (INSTANCE TOP (INSTANCE top (NET (a (T0 1) (TC 5)) (b\\\\[1\\\\] (T0 1) (TC 2))))))")
    {'top': {'a': 5, 'b[1]': 2}}
    """
    toggles: Toggles = {}
    scopes: list[str] = []  # instance names, and "" for every other group
    tokens = re.finditer(
        r"\(\s*INSTANCE\s+(?:\"[^\"]*\"\s+)?(\S+)|\(\s*([^\s()]+)\s*\(T0|\(\s*TC\s+(\d+)\s*\)|[()]", text
    )
    net = ""
    for token in tokens:
        if token[1]:
            scopes.append(token[1])
        elif token[2]:
            net = token[2].replace("\\", "")
            scopes += ["", ""]
        elif token[3]:
            path = [scope for scope in scopes if scope][1:]
            if path:
                toggles.setdefault(".".join(path), {})[net] = int(token[3])
        elif token[0] == "(":
            scopes.append("")
        else:
            scopes.pop()
    return toggles


def _paths(module: str, path: str, modules: Mapping[str, Any]) -> dict[str, str]:
    """The module of every instance path."""
    found = {path: module}
    for name, cell in modules[module]["cells"].items():
        if cell["type"] in modules:
            found |= _paths(cell["type"], f"{path}.{name}", modules)
    return found


def _loads(module: Mapping[str, Any], modules: Mapping[str, Any], liberty: Liberty | None) -> dict[str, float]:
    """What the cells of one module load each of its nets with; cells that are modules count inside themselves."""
    loads: dict[int, float] = {}
    for cell in module["cells"].values():
        if cell["type"] in modules:
            continue
        for pin, bit in _input_bits(cell, liberty):
            load = 1.0 if liberty is None else liberty.cells[cell["type"]].pins[pin].capacitance
            loads[bit] = loads.get(bit, 0.0) + load
    names: dict[int, str] = {}
    for net, facts in module["netnames"].items():
        for place, bit in enumerate(facts["bits"]):
            if isinstance(bit, int) and (bit not in names or not net.startswith("$")):
                names[bit] = net if len(facts["bits"]) == 1 else f"{net}[{place}]"
    return {names[bit]: load for bit, load in loads.items() if bit in names}


def _input_bits(cell: Mapping[str, Any], liberty: Liberty | None) -> Iterator[tuple[str, int]]:
    for pin, bits in cell["connections"].items():
        is_input = cell["port_directions"][pin] == "input" if liberty is None else not _is_output(cell, pin, liberty)
        for bit in bits:
            if is_input and isinstance(bit, int):
                yield pin, bit


def _is_output(cell: Mapping[str, Any], pin: str, liberty: Liberty) -> bool:
    return liberty.cells[cell["type"]].pins[pin].is_output
