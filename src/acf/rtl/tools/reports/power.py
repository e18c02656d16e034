"""Relative power before layout: toggles of a run on the mapped gates, weighted by the load of each net."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from acf.errors import RtlError
from acf.rtl.design.primitives.ports import ports_of
from acf.rtl.tools.gate_mapping import CLOCK_GATE, MEMORY_CELL, gate_commands, memory_bits
from acf.rtl.tools.hierarchy import split_modules
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.port_arrays import Words
from acf.rtl.tools.reports.part_gates import SUFFIX, Parts, gates_of_parts
from acf.rtl.tools.simulation import Simulation, VerilatorBackend, is_clocked
from acf.rtl.tools.verilog import to_rtlil
from acf.rtl.tools.yosys import run_yosys

NO_GATES = (MEMORY_CELL, "$scopeinfo")
"""Cells of a mapped netlist that load no net."""

Toggles = dict[str, dict[str, int]]
"""Changes of every net, by instance path and by name of the net."""


@dataclass(frozen=True)
class PowerReport:
    """Switched capacitance per cycle, in the capacitance unit of the liberty file, or in gate inputs without one.

    Energy per cycle is half of it times the square of the voltage. Loads are input pins of gates alone: wires, clock
    tree, leakage, memories of more than a few words and what cells burn inside are not in it, so compare such figures
    with each other and with nothing else. ``modules`` adds up all instances of a module, its own gates alone;
    ``clocks`` is the part of it on nets that clock a register, gated or not.
    """

    name: str
    cycles: int
    switched_per_cycle: float
    clock_per_cycle: float
    instances: dict[str, float]
    modules: dict[str, float]
    clocks: dict[str, float]
    unit: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class GateSimulation(Simulation):
    """A component as gates in simulation, reset first; runs that name the input ``recorded``, or all, count toggles.

    ``optimise`` is the C++ compiler's: gates of a fabric take minutes with more than "-O0". ``clock_gating``: as for
    `acf.rtl.tools.gate_mapping.gate_commands`. ``parts``: only they are gates, without a liberty file.
    """

    def __init__(
        self,
        component: Any,
        liberty: Liberty | None = None,
        recorded: str | None = None,
        optimise: str = "-O1",
        clock_gating: bool = False,
        parts: Parts | None = None,
    ) -> None:
        rtlil = to_rtlil(component, "top")
        files = _gates(rtlil, liberty, clock_gating) if parts is None else gates_of_parts(rtlil, parts, clock_gating)
        self.ports = ports_of(component)
        self.inputs = [port for port in self.ports if port.is_input]
        self.outputs = [port for port in self.ports if not port.is_input]
        self.backend = "verilator"
        self.netlist = json.loads(files["gates.json"])["modules"]
        self.toggles: Toggles = {}
        self.recorded_cycles = 0
        self.parts = parts
        self._recorded = recorded
        self._gates = VerilatorBackend.of_verilog(files["gates.v"], self.ports, is_clocked(rtlil), optimise)
        self._runner = self._gates

    def run(self, inputs: Mapping[str, ArrayLike], cycles: int | None = None) -> dict[str, Words]:
        """As `Simulation.run`."""
        if self._recorded is not None and self._recorded not in inputs:
            return super().run(inputs, cycles)
        with tempfile.TemporaryDirectory(prefix="acf-saif-") as folder:
            path = Path(folder) / "run.saif"
            self._gates.record(path)
            outputs = super().run(inputs, cycles)
            self._gates.record(None)
            self.toggles = parse_saif(path.read_text(encoding="utf-8"))
        self.recorded_cycles = len(next(iter(outputs.values())))
        return outputs


def measure_power(
    component: Any,
    name: str,
    inputs: Mapping[str, ArrayLike],
    cycles: int,
    liberty: Liberty | None = None,
    clock_gating: bool = False,
) -> PowerReport:
    """Map to gates, run ``inputs`` (as for `Simulation.run`) on them, and weigh every toggle."""
    simulation = GateSimulation(component, liberty, clock_gating=clock_gating)
    simulation.run(inputs, cycles)
    return weigh_toggles(simulation, name, liberty)


def weigh_toggles(simulation: GateSimulation, name: str, liberty: Liberty | None, below: str = "top") -> PowerReport:
    """What the gates switched in the recorded run, of the instances at or below a path; what stayed RTL is left out."""
    modules, toggles, cycles = simulation.netlist, simulation.toggles, simulation.recorded_cycles
    whole = _paths("top", "top", modules)
    mapped = "" if simulation.parts is None else SUFFIX
    paths = {
        path: module for path, module in whole.items() if f"{path}.".startswith(f"{below}.") and module.endswith(mapped)
    }
    loads = {module: _loads(modules[module], modules, liberty) for module in set(paths.values())}
    own: dict[str, float] = {}
    clock_nets = {module: _clock_nets(modules[module], liberty) for module in loads}
    of_module, of_clock = dict.fromkeys(sorted(loads), 0.0), dict.fromkeys(sorted(loads), 0.0)
    for path, module in paths.items():
        found = toggles.get(path, {})
        switched = {}
        for names, load in loads[module].items():
            name_there = next((each for each in names if each in found), None)
            if name_there is None:
                raise RtlError(
                    f"net {names[0]} of {path} is not in the simulation's record; give its signal a plain name"
                )
            switched[name_there] = load * found[name_there] / cycles
        own[path.replace(below, name, 1)] = sum(switched.values())
        of_module[module] += sum(switched.values())
        of_clock[module] += sum(value for net, value in switched.items() if net in clock_nets[module])
    unit = "capacitance unit of the liberty file" if liberty else "gate inputs"

    def named(values: dict[str, float]) -> dict[str, float]:
        return {module.replace(whole[below], name, 1): value for module, value in values.items()}

    clock = sum(of_clock.values())
    return PowerReport(name, cycles, sum(own.values()), clock, own, named(of_module), named(of_clock), unit)


_IN_PLACE_OF_CELLS = (
    "setattr -mod -set keep_hierarchy 1 *",
    "read_liberty -overwrite cells.lib",
    "flatten -noscopeinfo",  # a scope for every cell would make the simulation several times as large
)
"""What a cell of the library does, written where the cell was; modules stay."""


def _gates(rtlil: str, liberty: Liberty | None, clock_gating: bool) -> Mapping[str, str]:
    """The mapped netlist as JSON, and as Verilog together with what its cells do."""
    memories = [(name, memory) for name, text in split_modules(rtlil).items() for memory in memory_bits(text)]
    commands = [
        *gate_commands("top", memories, liberty, clock_gating),
        "rename -hide w:*",  # names that the simulation keeps as they are: ports' own, and a number for every other net
        "rename -enumerate -pattern net_%",
        "write_json gates.json",
        *(_IN_PLACE_OF_CELLS if liberty else []),
        "write_verilog -noattr gates.v",
    ]
    inputs = {"top.il": rtlil, "clock_gate.v": CLOCK_GATE} | ({"cells.lib": liberty.text} if liberty else {})
    return run_yosys(commands, inputs, ["gates.json", "gates.v"]).files


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


def _loads(
    module: Mapping[str, Any], modules: Mapping[str, Any], liberty: Liberty | None
) -> dict[tuple[str, ...], float]:
    """What the cells of one module load each of its nets with, by all names that the net has.

    Cells that are modules count inside themselves.
    """
    loads: dict[int, float] = {}
    for cell in module["cells"].values():
        if cell["type"] in modules or cell["type"] in NO_GATES:
            continue
        for pin, bit in _input_bits(cell, liberty):
            load = 1.0 if liberty is None else liberty.cells[cell["type"]].pins[pin].capacitance
            loads[bit] = loads.get(bit, 0.0) + load
    names = _names(module)
    return {tuple(names[bit]): load for bit, load in loads.items() if bit in names}


def _names(module: Mapping[str, Any]) -> dict[int, list[str]]:
    """All names of every net of a module."""
    names: dict[int, list[str]] = {}
    for net, facts in module["netnames"].items():
        for place, bit in enumerate(facts["bits"]):
            if isinstance(bit, int):
                names.setdefault(bit, []).append(net if len(facts["bits"]) == 1 else f"{net}[{place}]")
    return names


def _clock_nets(module: Mapping[str, Any], liberty: Liberty | None) -> set[str]:
    """Names of the nets that clock a flip-flop or a latch of one module, and of the clock itself."""
    names = _names(module)
    clocked = {name for cell in module["cells"].values() for bit in _clock_bits(cell, liberty) for name in names[bit]}
    return clocked | {"clk"}


def _clock_bits(cell: Mapping[str, Any], liberty: Liberty | None) -> Iterator[int]:
    """Nets at the clock pin of one cell, if it has one."""
    for pin, bits in cell["connections"].items():
        if liberty is None:
            is_clock = any(kind in cell["type"] and pin == clock for kind, clock in _CLOCK_PINS.items())
        else:
            is_clock = cell["type"] in liberty.cells and liberty.cells[cell["type"]].pins[pin].is_clock
        if is_clock:
            yield from (bit for bit in bits if isinstance(bit, int))


_CLOCK_PINS = {"DFF": "C", "DLATCH": "E"}
"""Part of the type, and clock pin, of Yosys' own registers."""


def _input_bits(cell: Mapping[str, Any], liberty: Liberty | None) -> Iterator[tuple[str, int]]:
    for pin, bits in cell["connections"].items():
        is_input = cell["port_directions"][pin] == "input" if liberty is None else not _is_output(cell, pin, liberty)
        for bit in bits:
            if is_input and isinstance(bit, int):
                yield pin, bit


def _is_output(cell: Mapping[str, Any], pin: str, liberty: Liberty) -> bool:
    return liberty.cells[cell["type"]].pins[pin].is_output
