"""Modules that occur often, compiled once: a design cut into blocks that are Verilated apart, and the rest around them.

Verilator writes the logic of every instance anew, so that 64 clusters make 64 times the C++. A block becomes a library
with a wrapper of the module's name; the rest is Verilated over the wrappers, and every instance calls that library.
"""

import re
from collections.abc import Mapping, Sequence

from acf.errors import RtlError

_MODULE = re.compile(r"(?m)^module (\S+?)\s*\(.*?^endmodule$\n?", re.S)
_CELL = re.compile(r"(?m)^  (\S+) \S+ \($")


def cut(verilog: str, top: str, blocks: Sequence[str]) -> dict[str, str]:
    """The Verilog of every block with all that it holds, and under ``top`` that of the rest without the blocks."""
    modules = {match[1]: match[0] for match in _MODULE.finditer(verilog)}
    for name in (top, *blocks):
        if name not in modules:
            raise RtlError(f"there is no module {name!r} in this design; name one of {', '.join(sorted(modules))}")
    pieces = {block: _text(modules, _inside(modules, block, leave_out=())) for block in blocks}
    return pieces | {top: _text(modules, _inside(modules, top, leave_out=blocks))}


def _inside(modules: Mapping[str, str], name: str, leave_out: Sequence[str]) -> dict[str, None]:
    """Names of a module and of all modules in it, each once, in the order in which they are met."""
    found = {name: None}
    for cell in _CELL.findall(modules[name]):
        if cell in modules and cell not in leave_out and cell not in found:
            found |= _inside(modules, cell, leave_out)
    return found


def _text(modules: Mapping[str, str], names: Mapping[str, None]) -> str:
    return "\n".join(modules[name] for name in names)
