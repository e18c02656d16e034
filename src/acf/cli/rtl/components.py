"""Commands about one component or a whole fabric as a design: Verilog, FPGA resources, area, power, costs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from acf.cli.options import Json, print_json
from acf.cli.specs import spec_command
from acf.extras import require
from acf.files import write_whole
from acf.terminal import working

if TYPE_CHECKING:
    from acf.rtl.verify.workloads import PowerWorkload

app = typer.Typer()

UnitName = Annotated[
    str | None, typer.Argument(help="A component's name; `acf rtl units` lists them. Or --on.", show_default=False)
]
FabricName = Annotated[str | None, typer.Option("--on", help="A fabric's name, for example acf-512, or TOML file.")]
ClockGating = Annotated[bool, typer.Option(help="Gate the clock of registers that share an enable.")]
CellLibrary = Annotated[Path, typer.Option(help="The liberty file of a cell library.")]


@app.command()
def units(as_json: Json = False) -> None:
    """List the components by name."""
    require("amaranth", needed_by="the RTL flow")
    from acf.rtl.design.registry import UNITS
    from acf.rtl.tools.reports.tables import units_table
    from acf.terminal import show

    if as_json:
        print_json("rtl-units", {name: unit.about for name, unit in UNITS.items()})
    else:
        show(units_table(UNITS))


@app.command()
def emit(
    unit: UnitName = None,
    config: FabricName = None,
    output: Annotated[Path, typer.Option("--out", help="The Verilog file to write.")] = Path("acf.v"),
    lint: Annotated[bool, typer.Option(help="Let Verilator check it; exit code 1 if it finds something.")] = False,
    as_json: Json = False,
) -> None:
    """Write a component, or the whole fabric of a configuration, as Verilog-2005: the same text on every run."""
    require("amaranth", "pyosys", needed_by="the RTL flow")
    from acf.rtl.device.designs import find_design
    from acf.rtl.tools.lint import lint as check
    from acf.rtl.tools.verilator import find_verilator
    from acf.rtl.tools.verilog import emit_verilog

    design = find_design(unit, config)
    verilator = find_verilator() if lint else None
    with working(f"write {design.top}", visible=not as_json):
        text = emit_verilog(design.build(), design.top)
        write_whole(output, text.encode())
        found = check(text, verilator) if verilator else []
    modules = text.count("\nmodule ")
    if as_json:
        facts = {"file": str(output), "top": design.top, "modules": modules}
        print_json("rtl-emit", facts | {"warnings": [vars(each) for each in found]})
    else:
        typer.echo(f"{output}: {modules} modules, top {design.top}")
        for each in found:
            typer.echo(f"{each.kind}: {each.text}")
    if found:
        raise typer.Exit(1)


@app.command()
def synth(
    unit: UnitName = None,
    config: FabricName = None,
    target: Annotated[str, typer.Option(help="The FPGA family: xcup (UltraScale+).")] = "xcup",
    as_json: Json = False,
) -> None:
    """Synthesise a component or a whole fabric: LUTs, flip-flops, DSPs, memories and logic depth of every module.

    Says whether all of it fits a VU9P. Every different module is synthesised once, and kept in the cache.
    """
    require("amaranth", "pyosys", needed_by="the RTL flow")
    from acf.rtl.device.designs import find_design
    from acf.rtl.tools.reports.synthesis import check_family, synthesise
    from acf.rtl.tools.reports.tables import synthesis_table

    design = find_design(unit, config)
    check_family(target)
    with working(f"synthesise {design.top}", visible=not as_json):
        report = synthesise(design.build(), design.top, target)
    _show("rtl-synth", report, synthesis_table, as_json)


@app.command()
def area(
    liberty: CellLibrary,
    unit: UnitName = None,
    config: FabricName = None,
    clock_gating: ClockGating = False,
    as_json: Json = False,
) -> None:
    """Area of a component or a whole fabric in gate equivalents, with the cells of a liberty file."""
    require("amaranth", "pyosys", needed_by="the RTL flow")
    from acf.rtl.device.designs import find_design
    from acf.rtl.tools.liberty import Liberty
    from acf.rtl.tools.reports.area import measure_area
    from acf.rtl.tools.reports.tables import area_table

    design, cells = find_design(unit, config, products=False), Liberty.read(liberty)
    with working(f"map {design.top} to cells", visible=not as_json):
        report = measure_area(design.build(), design.top, cells, clock_gating)
    _show("rtl-area", report, area_table, as_json)


@app.command()
def costs(
    liberty: Annotated[Path, typer.Option(help="The liberty file of a cell library; areas in square micrometres.")],
    node: Annotated[int, typer.Option(min=1, help="The library's technology node in nm, for example 180.")],
    config: Annotated[str, typer.Option("--on", help="A fabric's name, for example acf-512, or TOML file.")],
    as_json: Json = False,
) -> None:
    """Area and energy per operation as synthesised, beside what the simulator charges."""
    require("amaranth", "pyosys", needed_by="the RTL flow")
    from acf.rtl.design.fabric.shapes import find_fabric
    from acf.rtl.tools.liberty import Liberty
    from acf.rtl.tools.reports.costs import compare_costs
    from acf.rtl.tools.reports.tables import cost_table
    from acf.rtl.tools.verilator import find_verilator

    fabric, cells = find_fabric(config), Liberty.read(liberty)
    find_verilator()
    with working("synthesise every component", visible=not as_json):
        report = compare_costs(fabric, cells, node)
    _show("rtl-costs", report, cost_table, as_json)


@spec_command(app, workload="acf.rtl.verify.workloads:PowerWorkload")
def power(
    workload: "PowerWorkload",
    unit: UnitName = None,
    config: FabricName = None,
    liberty: Annotated[Path | None, typer.Option(help="The liberty file; without it gate inputs are counted.")] = None,
    clock_gating: ClockGating = False,
    scu: Annotated[
        bool, typer.Option("--scu", help="fabric: an SCU and its port alone, by its cycles of work.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Relative power of a component, or of a small fabric that computes a product, from the toggles of its gates."""
    require("amaranth", "pyosys", needed_by="the RTL flow")
    from acf.rtl.design.fabric.shapes import find_shape
    from acf.rtl.device.designs import find_design
    from acf.rtl.tools.liberty import Liberty
    from acf.rtl.tools.reports.power import measure_power
    from acf.rtl.tools.reports.stimuli import stimulus_of
    from acf.rtl.tools.reports.tables import power_table
    from acf.rtl.tools.verilator import find_verilator
    from acf.rtl.verify.fabric_power import measure_fabric_power, measure_scu_power
    from acf.rtl.verify.lockstep.products import Product

    design = find_design(unit, config)
    cells = None if liberty is None else Liberty.read(liberty)
    find_verilator()
    with working(f"synthesise {design.top} and count its toggles", visible=not as_json):
        if unit is None:
            shape = find_shape(config)
            product = Product.of_layer(workload.layer, shape.tile)
            if scu:
                report = measure_scu_power(shape, [product], clock_gating)[0]
            else:
                report = measure_fabric_power(shape, product, cells, clock_gating)
        else:
            component = design.build()
            inputs = stimulus_of(unit)(component, workload.cycles, workload.zeros, workload.seed)
            report = measure_power(component, design.top, inputs, workload.cycles, cells, clock_gating)
    _show("rtl-power", report, power_table, as_json)


def _show(kind: str, report: Any, table: Callable[[Any], Table], as_json: bool) -> None:
    from acf.terminal import show

    if as_json:
        print_json(kind, report.to_dict())
    else:
        show(table(report))
