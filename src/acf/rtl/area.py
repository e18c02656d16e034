"""Area in gate equivalents: mapped to the cells of a liberty file, before layout."""

from dataclasses import asdict, dataclass
from typing import Any

from acf.rtl.flow.hierarchy import Cells, all_cells, cells_of_modules, instances
from acf.rtl.flow.verilog import to_rtlil
from acf.rtl.flow.yosys import run_yosys
from acf.rtl.liberty import Liberty


@dataclass(frozen=True)
class AreaReport:
    """Area of the whole and of every module (its own cells, times its instances), in two-input NANDs.

    Cells alone: no wires, no clock tree, no filling. Memories are made of flip-flops, so give them small.
    """

    name: str
    gate_equivalents: float
    modules: dict[str, float]
    cells: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def gate_commands(name: str) -> list[str]:
    """Yosys commands that map ``top.il`` to the cells of ``cells.lib``, hierarchy kept."""
    return [
        "read_rtlil top.il",
        f"synth -top {name}",
        "setattr -unset init */w:*",  # no power-on values: gates begin with a reset
        "dfflegalize -cell $_DFF_P_ x",  # resets and enables become logic: libraries differ in what they have
        "dfflibmap -liberty cells.lib",
        "abc -liberty cells.lib",
        "clean",
    ]


def measure_area(component: Any, name: str, liberty: Liberty) -> AreaReport:
    """Gate equivalents of a component."""
    commands = [*gate_commands(name), "tee -q -o statistics.json stat -json"]
    inputs = {"top.il": to_rtlil(component, name), "cells.lib": liberty.text}
    files = run_yosys(commands, inputs, ["statistics.json"]).files
    cells = cells_of_modules(files["statistics.json"])
    counts = instances(cells, name)
    areas = {module: _own_area(cells, module, liberty) * counts[module] / liberty.gate_area for module in counts}
    return AreaReport(name, sum(areas.values()), areas, all_cells(cells, counts))


def _own_area(cells: Cells, module: str, liberty: Liberty) -> float:
    return sum(liberty.cells[cell].area * count for cell, count in cells[module].items() if cell not in cells)
