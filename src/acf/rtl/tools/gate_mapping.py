"""Yosys commands that map modules to the cells of a liberty file or to simple gates; large memories stay memories."""

import re
from collections.abc import Iterable

from acf.errors import RtlError
from acf.rtl.tools.liberty import Liberty

MACRO_BITS = 1024
"""Memories with more bits than this would be SRAM macros on a chip; smaller ones are mapped to flip-flops."""

MEMORY_CELL = "$mem_v2"
"""Yosys' cell type of a memory that was not mapped to gates."""

GATED_BITS = 4
"""Registers of fewer bits that share an enable keep their clock: a gate would cost more than it saves."""

CLOCK_GATE = """
module acf_clock_gate(input enable, input clock, output gated);
  wire held;
  \\$_DLATCH_N_ latch(.E(clock), .D(enable), .Q(held));
  \\$_AND_ gate(.A(clock), .B(held), .Y(gated));
endmodule
"""
"""A clock gate in Verilog: the enable passes a latch while the clock is low, so that the gated clock has no glitch."""

_GATE_CLOCKS = (
    # a reset becomes part of the enable, so that it reaches a register whose clock is gated
    "dfflegalize -cell $_SDFFCE_PP?P_ x -cell $_DFFE_PP_ x -cell $_SDFF_PP?_ x -cell $_DFF_P_ x",
    "opt_merge",  # one enable for all bits of a register
    "opt_clean",
    f"clockgate -pos acf_clock_gate enable:clock:gated -min_net_size {GATED_BITS}",
    "read_verilog -icells clock_gate.v",
    "techmap -map clock_gate.v",
    "delete acf_clock_gate",
    "dfflegalize -cell $_DFF_P_ x -cell $_DLATCH_P_ x",
)

_MEMORY = re.compile(r"(?m)^  memory width (\d+) size (\d+) (\S+)$")


def memory_bits(text: str) -> dict[str, int]:
    """Bits of every memory of an RTLIL module that stays a memory, by its name."""
    found = {name: int(width) * int(size) for width, size, name in _MEMORY.findall(text)}
    return {name: bits for name, bits in found.items() if bits > MACRO_BITS}


def gate_commands(
    name: str,
    memories: Iterable[tuple[str, str]],
    liberty: Liberty | None,
    clock_gating: bool = False,
    sharing: bool = True,
) -> list[str]:
    """Yosys commands that map ``top.il`` to the cells of ``cells.lib``, or to simple gates; hierarchy is kept.

    ``memories`` are (module, memory) pairs to leave alone. ``clock_gating``: registers of at least `GATED_BITS` bits
    that share an enable get a gated clock instead of a multiplexer in front; needs `CLOCK_GATE` as ``clock_gate.v``.
    ``sharing``: adders and shifters that never work in the same cycle become one; the proof of it takes hours where a
    module has hundreds of them.
    """
    without = "".join(f" {module}/c:{memory.removeprefix(chr(92))} %d" for module, memory in memories)
    made = [
        "read_rtlil top.il",
        f"synth -top {name}{'' if sharing else ' -noshare'} -run begin:fine",
        "opt -fast -full",
        f"memory_map t:{MEMORY_CELL}{without}",
        "opt -undriven -fine",
        "techmap",
        "opt -fast",
    ]
    without_init = "setattr -unset init */w:*"  # no power-on values: gates begin with a reset
    if clock_gating:
        if liberty is not None and not re.search(r"\blatch\s*\(", liberty.text):
            raise RtlError(
                "clock gating needs a latch and the liberty file has none; use one with a latch, or no gating"
            )
        made += [without_init, *_GATE_CLOCKS]
    if liberty is None:
        return [*made, "abc -g simple", "clean"]
    return [
        *made,
        without_init,
        *(() if clock_gating else ("dfflegalize -cell $_DFF_P_ x",)),  # resets and enables become logic
        "dfflibmap -liberty cells.lib",
        "abc -liberty cells.lib",
        "clean",
    ]
