"""Yosys commands that map modules to the cells of a liberty file or to simple gates; large memories stay memories."""

import re
from collections.abc import Iterable

from acf.rtl.tools.liberty import Liberty

MACRO_BITS = 1024
"""Memories with more bits than this would be SRAM macros on a chip; smaller ones are mapped to flip-flops."""

MEMORY_CELL = "$mem_v2"
"""Yosys' cell type of a memory that was not mapped to gates."""

_MEMORY = re.compile(r"(?m)^  memory width (\d+) size (\d+) (\S+)$")


def memory_bits(text: str) -> dict[str, int]:
    """Bits of every memory of an RTLIL module that stays a memory, by its name."""
    found = {name: int(width) * int(size) for width, size, name in _MEMORY.findall(text)}
    return {name: bits for name, bits in found.items() if bits > MACRO_BITS}


def gate_commands(name: str, memories: Iterable[tuple[str, str]], liberty: Liberty | None) -> list[str]:
    """Yosys commands that map ``top.il`` to the cells of ``cells.lib``, or to simple gates; hierarchy is kept.

    ``memories`` are (module, memory) pairs to leave alone.
    """
    without = "".join(f" {module}/c:{memory.removeprefix(chr(92))} %d" for module, memory in memories)
    made = [
        "read_rtlil top.il",
        f"synth -top {name} -run begin:fine",
        "opt -fast -full",
        f"memory_map t:{MEMORY_CELL}{without}",
        "opt -undriven -fine",
        "techmap",
        "opt -fast",
    ]
    if liberty is None:
        return [*made, "abc -g simple", "clean"]
    return [
        *made,
        "setattr -unset init */w:*",  # no power-on values: gates begin with a reset
        "dfflegalize -cell $_DFF_P_ x",  # resets and enables become logic: libraries differ in what they have
        "dfflibmap -liberty cells.lib",
        "abc -liberty cells.lib",
        "clean",
    ]
