"""The module hierarchy of a design: split into modules, isolated with black boxes, counted by instance.

RTLIL and Verilog text are both flat lists of modules that refer to each other by name. Mapping, area, power and
hierarchical Verilation all work module by module, so the text is cut up here and nowhere else.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from acf.errors import RtlError

_RTLIL_MODULE = re.compile(r"(?m)^(?:attribute [^\n]*\n)*module \\(\S+)$.*?^end$\n?", re.S)
_RTLIL_PORT = re.compile(r"(?m)^ +wire width \d+ (?:input|output|inout) \d+ +\S+$")
_RTLIL_CELL = re.compile(r"(?m)^\s*cell \\(\S+) ")
_VERILOG_MODULE = re.compile(r"(?m)^module (\S+?)\s*\(.*?^endmodule$\n?", re.S)
_VERILOG_CELL = re.compile(r"(?m)^  (\S+) \S+ \($")

Modules = Mapping[str, str]
"""Text of every module by its name."""

Cells = Mapping[str, Mapping[str, int]]
"""Number of cells by type, of every module by name; a type may itself be a module."""


def split_modules(rtlil: str) -> dict[str, str]:
    """The modules of an RTLIL text by name."""
    return {match[1]: match[0] for match in _RTLIL_MODULE.finditer(rtlil)}


def count_submodules(modules: Modules) -> dict[str, dict[str, int]]:
    """Instances of other modules in each RTLIL module, by name."""
    cells = {name: Counter(_RTLIL_CELL.findall(text)) for name, text in modules.items()}
    return {name: {cell: count for cell, count in found.items() if cell in modules} for name, found in cells.items()}


def submodules_of(modules: Modules, name: str) -> list[str]:
    """The different modules directly inside an RTLIL module."""
    return sorted({cell for cell in _RTLIL_CELL.findall(modules[name]) if cell in modules})


def subtree_of(modules: Modules, name: str) -> list[str]:
    """An RTLIL module and the different modules inside it, at any depth."""
    found = {name}
    for inner in submodules_of(modules, name):
        found.update(subtree_of(modules, inner))
    return sorted(found)


def isolate(modules: Modules, name: str) -> str:
    """RTLIL of one module; its submodules are black boxes, which have ports and nothing else."""
    boxes = [black_box(inner, modules[inner]) for inner in submodules_of(modules, name)]
    return "".join([*boxes, modules[name].replace("attribute \\top 1\n", "")])


def black_box(name: str, text: str) -> str:
    """A module with its ports and nothing else."""
    return "\n".join(["attribute \\blackbox 1", f"module \\{name}", *_RTLIL_PORT.findall(text), "end", ""])


def parse_cell_counts(statistics: str) -> Cells:
    """The cells of every module, from the output of Yosys' ``stat -json``."""
    modules = json.loads(statistics)["modules"]
    return {name.removeprefix("\\"): dict(facts["num_cells_by_type"]) for name, facts in modules.items()}


def count_instances(cells: Cells, module: str, count: int = 1) -> dict[str, int]:
    """Instances of every module under ``module``, itself first.

    >>> count_instances({"top": {"pair": 2}, "pair": {"unit": 2, "LUT6": 1}, "unit": {"LUT6": 4}}, "top")
    {'top': 1, 'pair': 2, 'unit': 4}
    """
    found = {module: count}
    for cell, number in cells[module].items():
        if cell in cells:
            for name, inside in count_instances(cells, cell, count * number).items():
                found[name] = found.get(name, 0) + inside
    return found


def count_primitives(cells: Cells, instances: Mapping[str, int]) -> dict[str, int]:
    """Primitive cells of a whole hierarchy by type; ``instances`` as from `count_instances`."""
    found: dict[str, int] = {}
    for module, count in instances.items():
        for cell, number in cells[module].items():
            if cell not in cells:
                found[cell] = found.get(cell, 0) + count * number
    return dict(sorted(found.items()))


def cut_verilog(verilog: str, top: str, blocks: Sequence[str]) -> dict[str, str]:
    """Verilog of every block with its whole subtree, and under ``top`` the rest of the design without the blocks.

    For hierarchical Verilation: Verilator writes the logic of every instance anew, so that 64 clusters would make 64
    times the C++. A block is Verilated once as a library, and all of its instances call that library.
    """
    modules = {match[1]: match[0] for match in _VERILOG_MODULE.finditer(verilog)}
    for name in (top, *blocks):
        if name not in modules:
            raise RtlError(f"there is no module {name!r} in this design; name one of {', '.join(sorted(modules))}")
    cut = {block: _verilog_subtree(modules, block, leave_out=()) for block in blocks}
    cut[top] = _verilog_subtree(modules, top, leave_out=blocks)
    return {name: "\n".join(modules[module] for module in subtree) for name, subtree in cut.items()}


def _verilog_subtree(modules: Modules, name: str, leave_out: Sequence[str]) -> dict[str, None]:
    """Names of a module and of those inside it, each once, in order of first use; an ordered set."""
    found = {name: None}
    for cell in _VERILOG_CELL.findall(modules[name]):
        if cell in modules and cell not in leave_out and cell not in found:
            found |= _verilog_subtree(modules, cell, leave_out)
    return found
