"""Tables of the RTL commands."""

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from acf.rtl.design.registry import Unit
    from acf.rtl.tools.reports.area import AreaReport
    from acf.rtl.tools.reports.costs import CostTable
    from acf.rtl.tools.reports.power import PowerReport
    from acf.rtl.tools.reports.synthesis import Resources, SynthesisReport


def units_table(units: "dict[str, Unit]") -> Table:
    """The units by name."""
    table = Table(title="Components")
    table.add_column("unit")
    table.add_column("what it is")
    for name, unit in units.items():
        table.add_row(name, unit.about)
    return table


def synthesis_table(report: "SynthesisReport") -> Table:
    """Resources of every module and of all, shares of the parts of the family, and whether they are enough."""
    from acf.rtl.tools.fpga_parts import FPGA_PARTS

    table = Table(
        title=f"{report.name} on {report.family}",
        caption=f"one instance of each module, with all in it; logic depth {report.logic_depth} primitives between "
        f"registers, in {report.deepest}; before placement, so the clock rate is unmeasured",
    )
    for heading in ("module", "instances", "LUTs", "FFs", "DSPs", "BRAMs", "URAMs", "depth"):
        table.add_column(heading, justify="left" if heading == "module" else "right")
    for name, use in report.modules.items():
        table.add_row(name, f"{use.instances:,}", *_counts(use.resources), f"{use.logic_depth}")
    table.add_section()
    table.add_row("in all", "", *_counts(report.resources), f"{report.logic_depth}")
    for name, part in FPGA_PARTS.items():
        if part.family == report.family:
            shares = report.resources.share_of(part)
            table.add_row(f"share of a {name.upper()}", "", *(f"{share:.3%}" for share in shares.values()))
            table.add_row(f"{'fits' if report.fits(part) else 'does not fit'} a {name.upper()}")
    return table


def _counts(resources: "Resources") -> list[str]:
    return [f"{value:,.1f}".removesuffix(".0") for value in vars(resources).values()]


def area_table(report: "AreaReport") -> Table:
    """Gate equivalents of every module, and bits of memory beside them."""
    table = Table(
        title=f"{report.name}: {report.gate_equivalents:,.0f} gate equivalents, {report.memory_bits:,} bits of memory",
        caption="one instance of each module, with all in it; cells, before layout; a gate equivalent is the area "
        f"{report.gate_area:g} of the smallest two-input NAND",
    )
    for heading in ("module", "instances", "gate equivalents", "bits of memory", "gate equivalents, all instances"):
        table.add_column(heading, justify="left" if heading == "module" else "right")
    for name, area in report.modules.items():
        every = area.instances * area.gate_equivalents
        table.add_row(
            name, f"{area.instances:,}", f"{area.gate_equivalents:,.0f}", f"{area.memory_bits:,}", f"{every:,.0f}"
        )
    return table


def power_table(report: "PowerReport") -> Table:
    """Switched capacitance of every module."""
    table = Table(
        title=f"{report.name}: {report.switched_per_cycle:,.1f} switched per cycle, "
        f"of that {report.clock_per_cycle:,.1f} by the clock",
        caption=f"{report.cycles:,} cycles; in {report.unit}; before layout: compare with each other only",
    )
    table.add_column("module")
    table.add_column("switched per cycle, all instances", justify="right")
    table.add_column("share", justify="right")
    for name, switched in report.modules.items():
        table.add_row(name, f"{switched:,.1f}", f"{switched / report.switched_per_cycle:.0%}")
    return table


def cost_table(report: "CostTable") -> Table:
    """Synthesised costs beside the simulator's."""
    table = Table(
        title=f"Area and energy: synthesis at {report.node_nm} nm, {report.voltage:g} V, and the simulator at 65 nm",
        caption="cells, before layout: no wires, no clock tree, no filling, and input pins as the only load",
    )
    for heading in ("quantity", "unit", f"at {report.node_nm} nm", "at 65 nm", "simulator", "ratio"):
        table.add_column(heading, justify="left" if heading in ("quantity", "unit") else "right")
    for cost in report.costs:
        values = (f"{value:,.4g}" for value in (cost.synthesised, cost.scaled, cost.simulated))
        table.add_row(cost.name, cost.unit, *values, f"{cost.ratio:.2f}")
    return table
