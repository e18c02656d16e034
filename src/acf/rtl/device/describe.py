"""Documentation of a fabric generated from the design: hierarchy, command encoding, registers, ports."""

from typing import Any

from amaranth.lib import data

from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.ports import ports_of
from acf.rtl.device.device import Device
from acf.rtl.device.registers import register_table
from acf.rtl.tools.hierarchy import count_instances, count_submodules, split_modules
from acf.rtl.tools.verilog import to_rtlil

MEANINGS: dict[str, str] = {
    "parallel": "0: a serial tile, 1: a block",
    "packed": "payload is the non-zero values with a bitmap or in CSC form; else all values",
    "flits": "flits of the packet",
    "address": "its first flit in the memory behind the controller; of a round of partial sums: flits of zeros before "
    "it",
    "destinations": "routers that keep a copy; of a round of partial sums: rows that must have closed it",
    "headers": "one header per router of the line, the nearest in the lowest bits",
    "sum_flits": "reduction: flits of partial sums of this round",
    "sum_stride": "reduction: cycles from one of them to the next",
    "sum_cycles": "reduction: cycles until the banks are empty",
    "transposed": "the payload in memory is the dense transpose of the tile",
    "blocks": "blocks of the k_step that the tile is multiplied by, a bit each in order of arrival",
    "sums": "tiles of the bank that they add to, in the same order",
    "count": "blocks of the k_step in this cluster",
    "edge_valid": "one of them is narrower than a tile",
    "edge": "which one",
    "round": "round of the cluster, modulo 256; its lowest bit is the bank",
    "last_of_k_step": "the k_step's block slots are free once this tile is done",
    "last_of_round": "the bank is closed once this tile is done",
    "tiles": "result tiles that leave then",
}
"""Meanings of the fields of command words."""


def hierarchy_drawing(text: str, top: str) -> str:
    """The modules of an RTLIL text as a Mermaid flowchart; edges carry the number of instances."""
    inside = count_submodules(split_modules(text))
    counts = count_instances(inside, top)
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'  {name}["{name} ({counts[name]:,})"]' for name in counts]
    lines += [f"  {name} -->|{count}| {cell}" for name in counts for cell, count in inside[name].items()]
    return "\n".join([*lines, "```"])


def field_table(layout: data.StructLayout) -> str:
    """The fields of a word as a Markdown table."""
    lines = ["| field | bits | meaning |", "|---|---|---|"]
    for name, field in layout:
        top = field.offset + field.width - 1
        bits = str(field.offset) if field.width == 1 else f"{top}:{field.offset}"
        lines.append(f"| {name} | {bits} | {MEANINGS[name]} |")
    return "\n".join(lines)


def port_table(component: Any) -> str:
    """The ports of a component as a Markdown table."""
    lines = ["| port | direction | bits |", "|---|---|---|"]
    lines += [f"| {port.name} | {'in' if port.is_input else 'out'} | {port.width} |" for port in ports_of(component)]
    return "\n".join(lines)


def describe(sizes: FabricSizes) -> str:
    """Drawing, command encoding, registers and ports of a fabric as Markdown."""
    shape, device = sizes.shape, Device(sizes)
    parts = (
        ("Modules", hierarchy_drawing(to_rtlil(device, "device"), "device")),
        ("Command word of a row controller", field_table(sizes.command(shape.mesh_columns, serial=True))),
        ("Header in it, for each router", field_table(sizes.header)),
        ("Command word of a column controller", field_table(sizes.command(shape.mesh_rows, serial=False))),
        ("Registers, AXI4-Lite", register_table()),
        ("Ports", port_table(device)),
    )
    return "\n\n".join(f"### {title}\n{text}" for title, text in parts)
